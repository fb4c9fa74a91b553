"""Jobs that wait for headroom below limits, in groups of equal needs.

The jobs of an association that ask for the same size in the same queue, and wait for the same limits, are a group: if
the first has no headroom, none has. So the time of an event depends on the number of groups and of jobs that it frees,
and not on the number of jobs that wait.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple, Optional, Protocol

# The moment for which a job waits: its dependencies are removed (HOLD), it may enter SCHED (ENTRY), it may run (START).
HOLD, ENTRY, START = range(3)


class GroupKey(NamedTuple):
    """What the jobs of a group have in common.

    `holds` are their dependencies, for the moment HOLD. `shape` and `duration` are those of their requests, for START:
    a scheduler that has no resources for one of these jobs has none for the others.
    """

    moment: int
    queue: str
    nodes: int
    cores: int
    holds: tuple[str, ...] = ()
    shape: int = 0
    duration: float = 0.0


class Waiter(Protocol):
    """A job that may wait. `order` precedes the id among the jobs of a moment."""

    group: Optional[Group]
    order: int


class Group:
    """Jobs with equal needs, first come first (by `order`, then by id).

    A job that leaves, or whose order changes, stays in the heap until it is the first: then it is skipped.
    """

    __slots__ = ("heap", "key", "size")

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.heap: list[tuple[int, int, Waiter]] = []
        self.size = 0

    def add(self, jobid: int, job: Waiter) -> None:
        """Add a job that is in no group."""
        job.group = self
        self.size += 1
        self._push(jobid, job)

    def discard(self, job: Waiter) -> None:
        """Remove a job of this group."""
        job.group = None
        self.size -= 1

    def move(self, jobid: int, job: Waiter, order: int) -> None:
        """Change the order of a job of this group."""
        job.order = order
        self._push(jobid, job)

    def _push(self, jobid: int, job: Waiter) -> None:
        heap = self.heap
        heappush(heap, (job.order, jobid, job))
        if len(heap) > 2 * self.size + 64:
            heap[:] = {
                entry[1]: entry for entry in heap if entry[2].group is self and entry[0] == entry[2].order
            }.values()
            heapify(heap)

    def first(self) -> tuple[int, int] | None:
        """Order and id of the first job; None if the group is empty."""
        heap = self.heap
        while heap:
            order, jobid, job = heap[0]
            if job.group is self and job.order == order:
                return order, jobid
            heappop(heap)
        return None
