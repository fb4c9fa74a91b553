"""When jobs start and end: the moments at which something is released, and whether the present is simple.

The present is settled when every entered job is running: none lies ahead, none has outlived its end. Then what is free
is simply what nobody holds, and the index of free resources can answer.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush

from headrace.graph.planner import Planner


class Clock:
    """Starts and ends of entered jobs."""

    __slots__ = ("_ends", "_jobs", "_later", "_soonest")

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[int, int]] = {}
        self._ends = Planner()
        self._later: list[tuple[int, int]] = []
        self._soonest: list[tuple[int, int]] = []

    def add(self, jobid: int, start: int, end: int) -> None:
        self._jobs[jobid] = (start, end)
        # As a planner, one step a moment however many jobs end then.
        self._ends.add(-1, end, 1)
        heappush(self._later, (-start, jobid))
        heappush(self._soonest, (end, jobid))

    def remove(self, jobid: int) -> None:
        _, end = self._jobs.pop(jobid)
        self._ends.add(-1, end, -1)

    def ends_after(self, now: int) -> list[int]:
        """The moments after `now` at which jobs end, earliest first."""
        times = self._ends.times
        return times[bisect_right(times, now) :]

    def settled(self, now: int) -> bool:
        """Whether all entered jobs are running at `now`."""
        jobs = self._jobs
        if not jobs:
            self._later.clear()
            self._soonest.clear()
            return True
        while True:
            start, jobid = self._later[0]
            known = jobs.get(jobid)
            if known is not None and known[0] == -start:
                if -start > now:
                    return False
                break
            heappop(self._later)
        while True:
            end, jobid = self._soonest[0]
            known = jobs.get(jobid)
            if known is not None and known[1] == end:
                return end > now
            heappop(self._soonest)
