"""What falls due for jobs: begin-times by the time of day, time limits by a clock that nobody sets. Pure.

Who sets the clock back must not give a running job more time than it was given, nor take it away: the time that is left
when a limit is set is what it gets.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator


class Deadlines:
    """`steady()` counts seconds since whenever."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self.steady = steady
        self._begins: list[tuple[float, int, str]] = []
        self._limits: list[tuple[float, int, float]] = []

    def begin(self, time: float, job: int, what: str) -> None:
        """The dependency `what` of a job is met at `time`, in seconds since the epoch."""
        heapq.heappush(self._begins, (time, job, what))

    def limit(self, expiration: float, job: int, now: float) -> None:
        """A job's time is over at `expiration`, in seconds since the epoch, as `now` is."""
        heapq.heappush(self._limits, (self.steady() + (expiration - now), job, expiration))

    def next(self, now: float) -> float | None:
        """When something is due next, on the steady clock."""
        begin = self.steady() + (self._begins[0][0] - now) if self._begins else math.inf
        limit = self._limits[0][0] if self._limits else math.inf
        return min(begin, limit) if self._begins or self._limits else None

    def begun(self, now: float) -> Iterator[tuple[int, str]]:
        """Take the begin-times that have come: job and dependency."""
        while self._begins and self._begins[0][0] <= now:
            _, job, what = heapq.heappop(self._begins)
            yield job, what

    def over(self) -> Iterator[tuple[int, float]]:
        """Take the limits that were reached: job and expiration, which may have been moved meanwhile."""
        while self._limits and self._limits[0][0] <= self.steady():
            _, job, expiration = heapq.heappop(self._limits)
            yield job, expiration
