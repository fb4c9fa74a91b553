"""What the services ask of a graph, whichever it is: one that a client has sent, or that of the live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]


class Unanswerable(Exception):
    """A request that cannot be answered as it is asked; the message says why, for its sender."""


class Pods(NamedTuple):
    """So many pods of a group: whole cores, bytes of memory and storage, and GPUs for each. `in_zone`: all of them on
    one node of one zone.
    """

    group: str
    number: int
    cores: int
    memory: int = 0
    gpus: int = 0
    storage: int = 0
    in_zone: bool = False


class Matched(NamedTuple):
    """What a request was given: the selected part of the graph (JGF), the cores on each node by its name, and the time
    (seconds) from which it has them; `overhead` is the time of the match in seconds.
    """

    jobid: int
    allocation: Object
    cores: tuple[tuple[str, int], ...]
    is_reserved: bool
    at: int
    overhead: float


class Backend(Protocol):
    """A graph with jobs. All but `init` and `groups` raise Unanswerable; `init` does for a graph that is wrong."""

    async def init(self, policy: str, jgf: str) -> bool:
        """Begin with a graph (JGF) that has no jobs; False where the graph is not the client's to choose."""

    async def match(self, jobspec: str, reserves: bool) -> Matched:
        """Give a jobspec (YAML or JSON) resources now; with `reserves`, at the earliest time at which it fits."""

    async def match_pods(self, pods: Pods) -> Matched:
        """Give pods resources now."""

    async def cancel(self, jobid: int) -> None:
        """Take back what a job has."""

    def resources(self) -> str:
        """The whole graph (JGF)."""

    def groups(self) -> Mapping[str, int]:
        """How many pods each group has."""
