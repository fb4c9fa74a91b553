"""The operator's knowledge of one MiniCluster: the input of `reconcile` and of `status`. Data only.

Objects are dictionaries as the API server sends them; only objects that the MiniCluster's uid owns are included. Times
are seconds since the epoch.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from . import pods

Object = dict[str, Any]


class Lead(Struct, frozen=True, kw_only=True):
    """The state of a running MiniCluster's lead, from its channel (`minicluster.channel`).

    Its first fields are those of `channel_messages.State`.
    `resized` has the sizes, by group ("" is the MiniCluster's own pods), for which the lead has finished its part:
    hosts beyond them are drained and idle; `left` are jobs that had such hosts when the last size was asked for.
    `config` is the broker configuration of the last reload. `saved_at` is when the instance was last saved on request
    (0: never); `save_error` is the reason if the last attempt failed, at `save_failed`.
    """

    state: str = "starting"
    brokers_up: int = 0
    brokers_silent: int = 0
    silent: str = ""
    jobs: dict[str, int] = {}
    demand_nodes: int = 0
    idle_since: float | None = None
    saved: bool = False
    resized: dict[str, int] = {}
    left: tuple[str, ...] = ()
    config: dict[str, Any] | None = None
    saved_at: float = 0.0
    save_error: str = ""
    save_failed: float = 0.0


class Observed(Struct, frozen=True, kw_only=True):
    """`cluster` is the MiniCluster object. `secret`: whether its own Secret exists, None before anybody has looked.
    `taken` names objects with our names and another owner ("Service/hello"); they are tried again at `try_taken_at`.
    `refused` is the API server's refusal of the last step, "" if it succeeded. `lead` is None without a connection to
    the lead; `channel_closed` is why the operator wants none, "" if it does. `metrics_elsewhere` names the
    APIServices for metrics that another program has, with its Service; `metrics_unanswered` is why requests for metrics
    are refused. `other_operator_until` is when the Go operator's Lease expires (0: it is not held). `warnings` are
    messages of Events about the MiniCluster's Jobs and pods that no status has, such as an exceeded quota; `pulled` are
    the containers, by their pods' uids and their names, whose images the kubelet has begun to pull. `deleting_since` is
    when this operator first saw that the MiniCluster is being deleted (0: it is not).
    """

    cluster: Object
    jobs: dict[str, Object] = {}
    config_maps: dict[str, Object] = {}
    services: dict[str, Object] = {}
    pods: dict[str, list[Object]] = {}
    """Pods by the name of their Job; those of the MiniCluster itself (its services) under ""."""
    secret: bool | None = None
    taken: tuple[str, ...] = ()
    try_taken_at: float = 0.0
    refused: str = ""
    lead: Lead | None = None
    channel_closed: str = ""
    metrics_elsewhere: str = ""
    metrics_unanswered: str = ""
    other_operator_until: float = 0.0
    warnings: tuple[str, ...] = ()
    pulled: frozenset[tuple[str, str]] = frozenset()
    deleting_since: float = 0.0

    @property
    def name(self) -> str:
        return str(self.cluster["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.cluster["metadata"].get("namespace") or "default")

    @property
    def uid(self) -> str:
        return str(self.cluster["metadata"]["uid"])

    @property
    def status(self) -> Object:
        """The previous status; {} of a MiniCluster that has none yet."""
        return self.cluster.get("status") or {}

    @property
    def job(self) -> Object | None:
        """The Job of the MiniCluster's own pods."""
        return self.jobs.get(self.name)

    @property
    def own_pods(self) -> list[Object]:
        return self.pods.get(self.name, [])

    @property
    def current_pods(self) -> list[Object]:
        """The newest pod of each index of each Job."""
        return [pod for name in self.jobs for pod in pods.current(self.pods.get(name, []))]

    @property
    def lead_pod(self) -> Object | None:
        """The newest pod of index 0, which may have ended."""
        return next((pod for pod in pods.current(self.own_pods) if pods.index_of(pod) == 0), None)
