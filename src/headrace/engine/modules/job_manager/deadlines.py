"""Deadlines of jobs: begin times by the time of day, time limits by a steady clock. Pure.

A change of the system clock must neither extend nor shorten the run time of a job, so the remaining time is computed
once, when the limit is set, and then measured with the steady clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator


class Deadlines:
    """`steady()` returns seconds on a clock that is never set."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self.steady = steady
        self._begins: list[tuple[float, int, str]] = []
        self._limits: list[tuple[float, int, float]] = []

    def begin(self, time: float, job: int, what: str) -> None:
        """Set the time at which dependency `what` of a job is met, in seconds since the epoch."""
        heapq.heappush(self._begins, (time, job, what))

    def limit(self, expiration: float, job: int, now: float) -> None:
        """Set the expiration of a job. `expiration` and `now` are in seconds since the epoch."""
        heapq.heappush(self._limits, (self.steady() + (expiration - now), job, expiration))

    @property
    def limits(self) -> int:
        """The number of limits, including limits of jobs that have ended."""
        return len(self._limits)

    def keep(self, expirations: Iterable[tuple[int, float]]) -> None:
        """Remove all limits except those in `expirations`, pairs of a job id and its expiration."""
        wanted = set(expirations)
        kept: dict[int, tuple[float, int, float]] = {}
        # If a job has several limits with the same expiration, the earliest deadline is kept.
        for limit in sorted(self._limits, reverse=True):
            if limit[1:] in wanted:
                kept[limit[1]] = limit
        self._limits = list(kept.values())
        heapq.heapify(self._limits)

    def next(self, now: float) -> float | None:
        """The next deadline, on the steady clock."""
        begin = self.steady() + (self._begins[0][0] - now) if self._begins else math.inf
        limit = self._limits[0][0] if self._limits else math.inf
        return min(begin, limit) if self._begins or self._limits else None

    def begun(self, now: float) -> Iterator[tuple[int, str]]:
        """Remove and yield the begin times that have been reached, as (job id, dependency)."""
        while self._begins and self._begins[0][0] <= now:
            _, job, what = heapq.heappop(self._begins)
            yield job, what

    def over(self) -> Iterator[tuple[int, float]]:
        """Remove and yield the limits that have been reached, as (job id, expiration).

        The job's expiration may have changed since the limit was set.
        """
        while self._limits and self._limits[0][0] <= self.steady():
            _, job, expiration = heapq.heappop(self._limits)
            yield job, expiration
