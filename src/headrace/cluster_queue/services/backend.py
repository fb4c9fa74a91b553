"""The interface of a graph to the services: a graph sent by a client, or that of the live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]


class Unanswerable(Exception):
    """A request cannot be answered; the message tells its sender why."""


class Pods(NamedTuple):
    """Pods of a group.

    Each has whole cores, bytes of memory and storage, and GPUs. `in_zone`: all of them are on one node of one zone.
    """

    group: str
    number: int
    cores: int
    memory: int = 0
    gpus: int = 0
    storage: int = 0
    in_zone: bool = False


class Matched(NamedTuple):
    """The result of a match.

    `allocation` is the selected part of the graph (JGF), `cores` the cores on each node by name, and `at` the time
    (seconds) from which the resources are allocated. `overhead` is the duration of the match in seconds.
    """

    jobid: int
    allocation: Object
    cores: tuple[tuple[str, int], ...]
    is_reserved: bool
    at: int
    overhead: float


class Backend(Protocol):
    """A graph with jobs.

    All methods but `init` and `groups` raise Unanswerable; `init` raises it for an invalid graph.
    """

    async def init(self, policy: str, jgf: str) -> bool:
        """Begin with a graph (JGF) without jobs; False if the client may not choose the graph."""

    async def match(self, jobspec: str, reserves: bool) -> Matched:
        """Give resources to a jobspec (YAML or JSON) now or, with `reserves`, as soon as it fits."""

    async def match_pods(self, pods: Pods) -> Matched:
        """Give pods resources now."""

    async def cancel(self, jobid: int) -> None:
        """Release the resources of a job."""

    def resources(self) -> str:
        """The whole graph (JGF)."""

    def groups(self) -> Mapping[str, int]:
        """The number of pods in each group."""
