"""The index of free resources at any moment: which jobs hold what then.

The index itself knows no time. The timeline keeps it at one moment by taking running jobs out of it as they end, and
putting them back when a question goes back to an earlier moment; questions mostly move forward, from one release to the
next, so a step is the work of one job. Reservations are looked at beside it, by those questions whose time they fall
into.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headrace.graph.candidates import ChildOrder
from headrace.graph.free import Footprint
from headrace.graph.index import Answer, FreeIndex, index_of
from headrace.graph.model import Graph
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request
from headrace.graph.reservations import Reservations
from headrace.graph.selection import Selection


class _Entry(NamedTuple):
    start: int
    end: int
    selection: Selection
    # None until the index is there to say.
    job: Footprint | None


class Timeline:
    """Running jobs in order of their ends, of which those before `_left` have been taken out of the index, and
    reservations in order of their starts.
    """

    def __init__(self, graph: Graph, policy: Policy, order: ChildOrder) -> None:
        self._new_index = partial(index_of, graph, policy, order)
        self._made = False
        self._index: FreeIndex | None = None
        self._now = 0
        self._at = 0
        self._jobs: dict[int, _Entry] = {}
        self._ended: list[tuple[int, int]] = []
        self._left = 0
        self._later: list[tuple[int, int]] = []
        self._reserved: Reservations | None = None
        # What running jobs touch from each of their ends backwards; None when that changed.
        self._running: tuple[list[int], list[int]] | None = None
        # The moments at which jobs end, and how many do at each.
        self.ends: list[int] = []
        self._ending: dict[int, int] = {}

    @property
    def now(self) -> int:
        """The present, as far as it was told."""
        return self._now

    def add(self, jobid: int, start: int, end: int, selection: Selection) -> None:
        job = self._index.state.footprint(selection) if self._index is not None else None
        entry = self._jobs[jobid] = _Entry(start, end, selection, job)
        count = self._ending.get(end, 0)
        self._ending[end] = count + 1
        if not count:
            insort(self.ends, end)
        if start > self._now:
            insort(self._later, (start, jobid))
            self._promise(jobid, entry)
        else:
            self._enter(jobid)

    def remove(self, jobid: int) -> None:
        entry = self._jobs.pop(jobid)
        count = self._ending[entry.end] - 1
        if count:
            self._ending[entry.end] = count
        else:
            del self._ending[entry.end], self.ends[bisect_left(self.ends, entry.end)]
        if entry.start > self._now:
            del self._later[bisect_left(self._later, (entry.start, jobid))]
            self._lift(jobid, entry)
            return
        self._running = None
        i = bisect_left(self._ended, (entry.end, jobid))
        del self._ended[i]
        if i < self._left:
            self._left -= 1
        elif entry.job is not None and self._index is not None:
            self._index.state.gave(entry.job)

    def hand_over(self, jobid: int, successor: int) -> None:
        """Another job is there instead of one, at the same time."""
        entry = self._jobs[jobid]
        if entry.start > self._now:
            self.remove(jobid)
            self.add(successor, entry.start, entry.end, entry.selection)
            return
        self._jobs[successor] = self._jobs.pop(jobid)
        del self._ended[bisect_left(self._ended, (entry.end, jobid))]
        insort(self._ended, (entry.end, successor))

    def _enter(self, jobid: int) -> None:
        entry = self._jobs[jobid]
        self._running = None
        insort(self._ended, (entry.end, jobid))
        if entry.end <= self._at:
            self._left += 1
        else:
            self._comes(jobid)

    # Reservations

    def _promise(self, jobid: int, entry: _Entry) -> None:
        """Enter what a reservation means to questions about its time."""
        if entry.job is not None and self._reserved is not None and entry.end > entry.start:
            self._reserved.add(jobid, entry.start, entry.end, entry.job)

    def _lift(self, jobid: int, entry: _Entry) -> None:
        """Undo `_promise`."""
        if entry.job is not None and self._reserved is not None and entry.end > entry.start:
            self._reserved.remove(jobid, entry.start, entry.end, entry.job)

    def lift(self, jobid: int) -> bool:
        """Answer as if a reservation were not there, until `restore`. False: it cannot be left out this way."""
        entry = self._jobs[jobid]
        if entry.start <= self._now or entry.job is None:
            return False
        self._lift(jobid, entry)
        return True

    def restore(self, jobid: int) -> None:
        """Undo `lift`."""
        self._promise(jobid, self._jobs[jobid])

    def same_reservations_until(self, at: int, end: int) -> int:
        """The earliest end for which [at, end) still meets the same reservations."""
        i = bisect_left(self._later, (end,))
        return max(at, self._later[i - 1][0]) + 1 if i else at + 1

    def forget(self) -> None:
        """The graph has changed: the index is made anew when next asked."""
        self._index, self._reserved, self._made = None, None, False
        for jobid, entry in self._jobs.items():
            self._jobs[jobid] = entry._replace(job=None)
        self._running = None

    def switch(self, v: int, up: bool) -> None:
        """A vertex has come up or gone down."""
        if self._index is not None:
            self._index.state.switch(v, up)

    def prepare(self) -> FreeIndex | None:
        """Make the index if it is not there, and enter the jobs of its moment. None: there can be none."""
        if not self._made:
            self._made = True
            index = self._index = self._new_index()
            if index is not None:
                self._reserved = Reservations(index.layout)
                for jobid, entry in self._jobs.items():
                    self._jobs[jobid] = entry._replace(job=index.state.footprint(entry.selection))
                for _, jobid in self._ended[self._left :]:
                    self._comes(jobid)
                for _, jobid in self._later:
                    self._promise(jobid, self._jobs[jobid])
        return self._index

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

    # Questions

    def match(
        self,
        requests: Sequence[Request],
        allowed: frozenset[int] | None,
        at: int,
        end: int,
        may: Callable[[int], object] | None = None,
    ) -> Answer | None:
        """What is to be taken during [at, end); `NOTHING` if there is nothing, None if it cannot be told.

        Nodes for which `may` is false are known not to serve.
        """
        index = self.prepare() if at >= self._now else None
        if index is None or self._reserved is None:
            return None
        if self._later or at > self._now:
            answer = index.match_untouched(requests, allowed, lambda: self._touched(at, end))
            if answer is not None:
                return answer
        self._move(at)
        if not self._later or self._later[0][0] >= end:
            return index.match(requests, allowed)
        window = self._reserved.window(index.state, at, end, may)
        answer = index.match(requests, allowed, window)
        window.close()
        return answer

    def _touched(self, at: int, end: int) -> int:
        """The nodes that anybody uses at some moment of [at, end), by preference."""
        if self._running is None:
            bits = 0
            ends, found = [], []
            for end_, jobid in reversed(self._ended):
                job = self._jobs[jobid].job
                if job is not None:
                    bits |= job.touched.ranks
                ends.append(end_)
                found.append(bits)
            ends.reverse()
            found.reverse()
            self._running = ends, found
        ends, found = self._running
        i = bisect_right(ends, at)
        reserved = 0 if self._reserved is None else self._reserved.touched_in(at, end)
        return reserved | (found[i] if i < len(found) else 0)

    def _move(self, at: int) -> None:
        ended = self._ended
        self._at = at
        while self._left < len(ended) and ended[self._left][0] <= at:
            self._leaves(ended[self._left][1])
            self._left += 1
        while self._left and ended[self._left - 1][0] > at:
            self._left -= 1
            self._comes(ended[self._left][1])

    def _comes(self, jobid: int) -> None:
        """Enter a running job into the index."""
        job = self._jobs[jobid].job
        if job is not None and self._index is not None:
            self._index.state.took(job)

    def _leaves(self, jobid: int) -> None:
        """Take a running job out of the index."""
        job = self._jobs[jobid].job
        if job is not None and self._index is not None:
            self._index.state.gave(job)
