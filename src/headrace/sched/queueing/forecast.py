"""The place of pending jobs: the number of jobs before each, its estimated start, and a text. Pure.

A plan of thousands of jobs on the graph takes seconds, too long for an estimate in a listing. So starts are estimated
from sums of cores and GPUs, without nodes: jobs start in order, each as soon as enough cores and GPUs are free in
total, and hold them for their time limit. With backfill, jobs may start earlier than estimated; jobs with whole nodes
may start later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple


class Waiting(NamedTuple):
    """A pending job.

    `eligible` identifies the nodes that it may use, `length` is its time limit in seconds, inf without one, and `start`
    is its reserved start (seconds since the epoch) or 0.
    """

    id: int
    ahead: int
    eligible: Hashable
    cores: int
    gpus: int
    length: float
    start: float = 0.0


class Supply:
    """The free resources of a pool's nodes, and the ends of the allocated ones.

    Ends are tuples (end, cores, gpus), in any order.
    """

    __slots__ = ("cores", "ends", "gpus", "start")

    def __init__(self, cores: int, gpus: int, ends: Iterable[tuple[float, int, int]]) -> None:
        self.cores = cores
        self.gpus = gpus
        self.ends = [end for end in ends if end[0] < inf]
        heapify(self.ends)
        # The last start of a job in the pool; the next job starts no earlier.
        self.start = 0.0

    def take(self, job: Waiting) -> float:
        """The start of a job, inf if the ends of jobs do not determine it. Jobs must be passed in order."""
        self.start = max(self.start, job.start)
        while self.cores < job.cores or self.gpus < job.gpus:
            if not self.ends:
                self.start = inf
                return inf
            end, cores, gpus = heappop(self.ends)
            self.start = max(self.start, end)
            self.cores += cores
            self.gpus += gpus
        self.cores -= job.cores
        self.gpus -= job.gpus
        if job.length < inf:
            heappush(self.ends, (self.start + job.length, job.cores, job.gpus))
        return self.start


class Place(NamedTuple):
    """A pending job's place: the jobs before it in its queue, and its estimated start (inf: unknown)."""

    ahead: int
    start: float


# A step without a result.
STEP = None


def forecast(
    waiting: Iterable[Waiting], supply: Callable[[Hashable], Generator[None, None, Supply]], now: float
) -> Iterator[tuple[int, Place] | None]:
    """Each job with its place, in the order of `waiting`.

    Each step yields one job, or STEP while a pool's supply is counted.
    """
    pools: dict[Hashable, Supply] = {}
    for job in waiting:
        found = pools.get(job.eligible)
        if found is None:
            found = pools[job.eligible] = yield from supply(job.eligible)
            found.start = now
        start = found.take(job) if job.cores or job.gpus else inf
        # A job for which enough is free in total waits for a reason that sums do not show.
        yield job.id, Place(job.ahead, start if start > now else inf)


def text(short: str, ahead: int) -> str:
    """The text of `reason_pending`: the shortage, if any, and the number of jobs before this one."""
    behind = f"behind {ahead} job{'s' if ahead != 1 else ''}" if ahead else ""
    return "; ".join(filter(None, (short, behind))) or "about to be scheduled"
