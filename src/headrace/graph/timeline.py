"""The index of free resources at any moment: which jobs hold what then.

The index itself knows no time. The timeline keeps it at one moment by taking jobs out of it as they end, and putting
them back when a question goes back to an earlier moment; questions mostly move forward, from one release to the next,
so a step is the work of one job. Reservations that fall into the time asked about are entered for that question only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.graph.free import Footprint, Nodes
from headrace.graph.index import FreeIndex
from headrace.graph.matcher import Pick
from headrace.graph.planner import Planner
from headrace.graph.request import Request
from headrace.graph.selection import Chosen

_NO_NODES = Nodes(0, 0)


class _Entry(NamedTuple):
    start: int
    end: int
    order: Sequence[Chosen]
    # None until the index is there to say.
    job: Footprint | None


class Timeline:
    """Jobs in order of their ends. Those before `_left` in `_ended` have been taken out of the index."""

    def __init__(self, index: FreeIndex) -> None:
        self._index = index
        self._now = 0
        self._at = 0
        self._jobs: dict[int, _Entry] = {}
        self._ended: list[tuple[int, int]] = []
        self._left = 0
        self._later: list[tuple[int, int]] = []
        # Reservations that are entered for the question asked last.
        self._over: set[int] = set()
        # As a planner, one step a moment however many jobs end then.
        self._ends = Planner()

    def add(self, jobid: int, start: int, end: int, order: Sequence[Chosen]) -> None:
        job = self._index.state.footprint(order) if self._index.state.ready and self._index.state.usable else None
        self._jobs[jobid] = _Entry(start, end, order, job)
        self._ends.add(-1, end, 1)
        if start > self._now:
            insort(self._later, (start, jobid))
        else:
            self._enter(jobid)

    def remove(self, jobid: int) -> None:
        entry = self._jobs.pop(jobid)
        self._ends.add(-1, entry.end, -1)
        if entry.start > self._now:
            del self._later[bisect_left(self._later, (entry.start, jobid))]
            self._lift(jobid, entry)
            return
        i = bisect_left(self._ended, (entry.end, jobid))
        del self._ended[i]
        if i < self._left:
            self._left -= 1
        elif entry.job is not None:
            self._index.state.gave(entry.job)

    def _enter(self, jobid: int) -> None:
        entry = self._jobs[jobid]
        insort(self._ended, (entry.end, jobid))
        if entry.end <= self._at:
            self._left += 1
        elif entry.job is not None:
            self._index.state.took(entry.job)

    def _lift(self, jobid: int, entry: _Entry) -> None:
        """Take a reservation out of the question it was entered for."""
        if jobid in self._over:
            self._over.remove(jobid)
            if entry.job is not None:
                self._index.state.gave_rest(entry.job)

    def ends_after(self, now: int) -> list[int]:
        """The moments after `now` at which jobs end, earliest first."""
        times = self._ends.times
        return times[bisect_right(times, now) :]

    def forget(self) -> None:
        """The graph or its status changed: the index is built anew when next asked."""
        self._index.forget()

    def prepare(self) -> bool:
        """Build the index if it is not there, and enter the jobs of its moment. False: it cannot serve."""
        index = self._index.state
        if not index.ready and index.usable:
            index.build()
            self._over.clear()
            if index.usable:
                for jobid, entry in self._jobs.items():
                    self._jobs[jobid] = entry._replace(job=index.footprint(entry.order))
                for _, jobid in self._ended[self._left :]:
                    self._step(jobid, index.took)
        return index.usable

    def _step(self, jobid: int, change: Callable[[Footprint], None]) -> None:
        job = self._jobs[jobid].job
        if job is not None:
            change(job)

    def settle(self, now: int) -> None:
        """The present is now `now`: reservations whose time has come are jobs like others."""
        if now <= self._now:
            return
        self._now = now
        # What has ended leaves first: what begins may take its place.
        self._move(now)
        while self._later and self._later[0][0] <= now:
            _, jobid = self._later.pop(0)
            self._lift(jobid, self._jobs[jobid])
            self._enter(jobid)

    def match(
        self, requests: Sequence[Request], allowed: frozenset[int] | None, at: int, end: int
    ) -> list[Pick] | None:
        """What is to be taken during [at, end): picks, an empty list if there is nothing, None if it cannot be told."""
        index = self._index
        if at < self._now or not self.prepare():
            return None
        self._move(at)
        self._overlay(at, end)
        return index.match(requests, allowed)

    def _overlay(self, at: int, end: int) -> None:
        """Enter the reservations that fall into [at, end), and no others."""
        if not self._later and not self._over:
            self._index.state.over = _NO_NODES
            return
        index, jobs = self._index.state, self._jobs
        ranks = numbers = 0
        wanted: set[int] = set()
        for start, jobid in self._later:
            if start >= end:
                break
            entry = jobs[jobid]
            if entry.end > at and entry.job is not None:
                ranks |= entry.job.whole.ranks
                numbers |= entry.job.whole.numbers
                if entry.job.users or entry.job.bits or entry.job.blocks:
                    wanted.add(jobid)
        index.over = Nodes(ranks, numbers)
        for jobid in self._over - wanted:
            self._step(jobid, index.gave_rest)
        for jobid in wanted - self._over:
            self._step(jobid, index.took_rest)
        self._over = wanted

    def _move(self, at: int) -> None:
        ended, index = self._ended, self._index.state
        self._at = at
        while self._left < len(ended) and ended[self._left][0] <= at:
            self._step(ended[self._left][1], index.gave)
            self._left += 1
        while self._left and ended[self._left - 1][0] > at:
            self._left -= 1
            self._step(ended[self._left][1], index.took)
