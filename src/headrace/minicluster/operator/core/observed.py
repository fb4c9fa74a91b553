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

    The first fields are those of `channel_messages.State`. `resized` has, for each group ("" is the MiniCluster's own
    pods), the size for which the lead has finished its part: hosts beyond the size are drained and idle. `left` are the
    jobs that had such hosts when the last resize was requested. `config` is the broker configuration of the last
    reload. `saved_at` is when the instance was last saved on request (0: never). `save_error` is why the last attempt
    failed, and `save_failed` is when.
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
    """The state of one MiniCluster as the operator sees it.

    `cluster` is the MiniCluster object. `secret`: whether its own Secret exists, None if that was not checked yet.
    `taken` lists objects that have a name we need and another owner ("Service/hello"); they are retried at
    `try_taken_at`. `refused` is the API server's refusal of the last step, "" if it succeeded. `lead` is None without a
    connection to the lead. `channel_closed` is why the operator keeps no connection to the lead, "" if it does.
    `metrics_elsewhere` names the APIServices for metrics that belong to another program, with its Service.
    `metrics_unanswered` is why requests for metrics are refused. `other_operator_until`: when the Flux Operator's Lease
    expires (0: the Lease is not held). `warnings` are messages of Events about the MiniCluster's Jobs and pods that
    appear in no status, such as an exceeded quota. `pulled` are the containers (uid of the pod, name) whose images the
    kubelet has begun to pull. `deleting_since` is when this operator first saw that the MiniCluster is being deleted
    (0: it is not).
    """

    cluster: Object
    jobs: dict[str, Object] = {}
    config_maps: dict[str, Object] = {}
    services: dict[str, Object] = {}
    pods: dict[str, list[Object]] = {}
    """Pods by the name of their Job; under "" the pods that belong to the MiniCluster itself (its services)."""
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
        """The previous status; {} if the MiniCluster has none yet."""
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
