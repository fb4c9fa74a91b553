"""When jobs will start that wait behind others, estimated from sums of cores and GPUs alone. Pure.

A plan of thousands of jobs on the graph takes seconds, and an estimate is wanted by somebody who looks at a list. So
nodes are forgotten: jobs start in order, each as soon as enough cores and GPUs are free in all, and hold them as long
as their time limit says. Jobs that may pass others start earlier than that, and jobs that need whole nodes later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple


class Waiting(NamedTuple):
    """A pending job: `pool` says which nodes it may use, `length` is its time limit in seconds, inf without one, and
    `start` is a moment (seconds since the epoch) before which it is known not to start, 0 without one."""

    id: int
    ahead: int
    pool: Hashable
    cores: int
    gpus: int
    length: float
    start: float = 0.0


class Supply:
    """What is free of the nodes of a pool, and the ends of what is not: (end, cores, gpus), in any order."""

    __slots__ = ("cores", "ends", "gpus", "start")

    def __init__(self, cores: int, gpus: int, ends: Iterable[tuple[float, int, int]]) -> None:
        self.cores = cores
        self.gpus = gpus
        self.ends = [end for end in ends if end[0] < inf]
        heapify(self.ends)
        # When the last job of the pool starts; the next starts no earlier.
        self.start = 0.0

    def take(self, job: Waiting) -> float:
        """When a job starts, inf when the ends of jobs do not say; the next job is to be asked for after it."""
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
    """Where a pending job stands: how many jobs of its queue are before it, and when it starts (inf: unknown)."""

    ahead: int
    start: float


# Something was done; it is not known yet what follows for any job.
STEP = None


def forecast(
    waiting: Iterable[Waiting], supply: Callable[[Hashable], Generator[None, None, Supply]], now: float
) -> Iterator[tuple[int, Place] | None]:
    """Each job with its place, in the order of `waiting`, one a step; STEP where a pool's supply is being counted."""
    pools: dict[Hashable, Supply] = {}
    for job in waiting:
        found = pools.get(job.pool)
        if found is None:
            found = pools[job.pool] = yield from supply(job.pool)
            found.start = now
        start = found.take(job) if job.cores or job.gpus else inf
        # A job for which there is enough in all waits for something that sums do not show.
        yield job.id, Place(job.ahead, start if start > now else inf)
