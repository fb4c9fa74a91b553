"""What the operator has seen of one MiniCluster: the input of `reconcile` and of `status`. Data only.

Objects are dictionaries as the API server has them, with only those that the MiniCluster's uid owns. Times are seconds
since the epoch.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Object = dict[str, Any]


class Lead(Struct, frozen=True, kw_only=True):
    """What the lead of a running MiniCluster told over its channel (`minicluster.channel`).

    `resized` has the sizes, by group ("" is the MiniCluster's own pods), for which the lead has done its part: hosts
    beyond them are drained and idle. `config` is the broker configuration of the last reload. `demand_nodes` is how
    many nodes the active jobs want, `idle_since` when the last job ended, None while jobs are active. `saved` is set
    once the instance has been saved as asked, `save_error` says why it could not be.
    """

    state: str = "starting"
    brokers_up: int = 0
    up: str = ""
    jobs: dict[str, int] = {}
    demand_nodes: int = 0
    idle_since: float | None = None
    resized: dict[str, int] = {}
    config: dict[str, Any] | None = None
    saved: bool = False
    save_error: str = ""


class Observed(Struct, frozen=True, kw_only=True):
    """`cluster` is the MiniCluster object. `secret` says that its Secret exists and is its own. `taken` names objects
    of our names that are somebody else's ("Service/hello"); they are tried again at `try_taken_at`. `refused`
    is what the API server said of the last step, "" where it took it. `lead` is None without a connection to the lead.
    `other_operator_until` is until when the Go operator's Lease counts (0: it does not). `warnings` are messages of
    Events about the MiniCluster's Jobs and pods that no status tells, such as an exceeded quota; `pulled` are the
    containers, by the uids of their pods and their names, whose images the kubelets have begun to pull.
    """

    cluster: Object
    jobs: dict[str, Object] = {}
    config_maps: dict[str, Object] = {}
    services: dict[str, Object] = {}
    pods: dict[str, list[Object]] = {}
    """By the name of the owning Job; those of the MiniCluster itself (its services) under ""."""
    secret: bool = False
    taken: tuple[str, ...] = ()
    try_taken_at: float = 0.0
    refused: str = ""
    lead: Lead | None = None
    other_operator_until: float = 0.0
    warnings: tuple[str, ...] = ()
    pulled: frozenset[tuple[str, str]] = frozenset()

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
    def job(self) -> Object | None:
        """The Job of the MiniCluster's own pods."""
        return self.jobs.get(self.name)

    @property
    def own_pods(self) -> list[Object]:
        return self.pods.get(self.name, [])
