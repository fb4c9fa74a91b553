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
    """The state of a running MiniCluster's lead, from its channel (`minicluster.operator.channel`).

    The fields up to `saved` are those of `channel_messages.State`.
    """

    state: str = "starting"
    brokers_up: int = 0
    brokers_silent: int = 0
    silent: str = ""
    jobs: dict[str, int] = {}
    demand_nodes: int = 0
    idle_since: float | None = None
    saved: bool = False
    # By group ("" is the MiniCluster's own pods): the size for which the lead has finished the last resize. The hosts
    # beyond that size are drained and idle.
    resized: dict[str, int] = {}
    # The jobs that ran on removed hosts when the last resize was requested.
    left: tuple[str, ...] = ()
    # The broker configuration of the last reload.
    config: dict[str, Any] | None = None
    # The time of the last save on request (0: never), and the error and the time of the last failed attempt.
    saved_at: float = 0.0
    save_error: str = ""
    save_failed: float = 0.0


class Observed(Struct, frozen=True, kw_only=True):
    """The state of one MiniCluster as the operator sees it."""

    # The MiniCluster object.
    cluster: Object
    jobs: dict[str, Object] = {}
    config_maps: dict[str, Object] = {}
    services: dict[str, Object] = {}
    # Pods by the name of their Job. Under "": the pods that belong to the MiniCluster itself (its services).
    pods: dict[str, list[Object]] = {}
    # Whether the MiniCluster's own Secret exists; None if that was not checked yet.
    secret: bool | None = None
    # Objects that cannot be created, because objects of other owners have their names ("Service/hello"), and the time
    # of the next attempt.
    taken: tuple[str, ...] = ()
    try_taken_at: float = 0.0
    # The API server's error for the last step; "" if the step succeeded.
    refused: str = ""
    # None while there is no connection to the lead.
    lead: Lead | None = None
    # Why the operator keeps no connection to the lead; "" if it does.
    channel_closed: str = ""
    # The APIServices for metrics that belong to another program, with that program's Service.
    metrics_elsewhere: str = ""
    # Why requests for metrics are refused; "" if they are answered.
    metrics_unanswered: str = ""
    # When the Flux Operator's Lease expires (0: the Lease is not held).
    other_operator_until: float = 0.0
    # Messages of Events about the MiniCluster's Jobs and pods that appear in no status, such as an exceeded quota.
    warnings: tuple[str, ...] = ()
    # The containers (uid of the pod, name) whose images the kubelet has begun to pull.
    pulled: frozenset[tuple[str, str]] = frozenset()
    # When this operator first saw that the MiniCluster is being deleted (0: it is not).
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
