"""The index of free resources at any moment.

The index itself has no time. The timeline moves it to a moment by removing the running jobs that have ended by then,
and enters them again when a search goes back to an earlier moment. Searches mostly move forward, from one end of a
job to the next, so a step costs the work of one job. Reservations are not in the index: a search for a span of time
with reservations reads the index through a window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headrace.sched.graph.candidates import ChildOrder
from headrace.sched.graph.free import Footprint
from headrace.sched.graph.index import Answer, FreeIndex, index_of
from headrace.sched.graph.model import Graph
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.request import Request
from headrace.sched.graph.reservations import InUse, Reservations
from headrace.sched.graph.selection import Selection


class _Entry(NamedTuple):
    start: int
    end: int
    selection: Selection
    # None until the index has been built.
    job: Footprint | None


class Timeline:
    """Running jobs in order of their ends, and reservations in order of their starts.

    The first `_left` of the running jobs have been removed from the index, which is at the moment `_at`.
    """

    def __init__(self, graph: Graph, policy: Policy, order: ChildOrder, in_use: InUse) -> None:
        self._new_index = partial(index_of, graph, policy, order)
        self._in_use = in_use
        self._made = False
        self._index: FreeIndex | None = None
        self._now = 0
        self._at = 0
        self._jobs: dict[int, _Entry] = {}
        self._ended: list[tuple[int, int]] = []
        self._left = 0
        self._later: list[tuple[int, int]] = []
        self._reserved: Reservations | None = None
        # The ends of running jobs, each with the nodes of jobs that end then or later; None after a change.
        self._running: tuple[list[int], list[int]] | None = None
        # The moments at which jobs end, and the number of jobs that end at each.
        self.ends: list[int] = []
        self._ending: dict[int, int] = {}

    @property
    def now(self) -> int:
        """The present (seconds), by the last `settle`."""
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
            self._reserve(jobid, entry)
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
        """Transfer the entry of a job to another job."""
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

    def _reserve(self, jobid: int, entry: _Entry) -> None:
        """Enter a reservation."""
        if entry.job is not None and self._reserved is not None and entry.end > entry.start:
            self._reserved.add(jobid, entry.start, entry.end, entry.job)

    def _lift(self, jobid: int, entry: _Entry) -> None:
        """Remove a reservation."""
        if entry.job is not None and self._reserved is not None and entry.end > entry.start:
            self._reserved.remove(jobid, entry.start, entry.end, entry.job)

    def lift(self, jobid: int) -> bool:
        """Answer as if a reservation did not exist, until `restore`. False if it is not in the index."""
        entry = self._jobs[jobid]
        if entry.start <= self._now or entry.job is None:
            return False
        self._lift(jobid, entry)
        return True

    def restore(self, jobid: int) -> None:
        """Undo `lift`."""
        self._reserve(jobid, self._jobs[jobid])

    def same_reservations_until(self, at: int, end: int) -> int:
        """The earliest end for which [at, end) still meets the same reservations."""
        i = bisect_left(self._later, (end,))
        return max(at, self._later[i - 1][0]) + 1 if i else at + 1

    def forget(self) -> None:
        """Drop the index after a change of the graph. The next search builds it again."""
        self._index, self._reserved, self._made = None, None, False
        for jobid, entry in self._jobs.items():
            self._jobs[jobid] = entry._replace(job=None)
        self._running = None

    def switch(self, v: int, up: bool) -> None:
        """Update the index after a vertex came up or went down."""
        if self._index is not None:
            self._index.state.switch(v, up)

    def resize(self, v: int, old: int, new: int) -> None:
        """Update the index after the size of a vertex without contents changed."""
        if self._index is None:
            return
        if v in self._index.layout.sizes and 1 not in (old, new):
            self._index.state.resize(v, new - old)
        else:
            # Vertices of size 1 are single resources.
            self.forget()

    def promised(self) -> list[int]:
        """The jobs with reservations, in order of their starts."""
        return [jobid for _, jobid in self._later]

    def prepare(self) -> FreeIndex | None:
        """Build the index if there is none, and enter the running jobs. None if the graph cannot be indexed."""
        if not self._made:
            self._made = True
            index = self._index = self._new_index()
            if index is not None:
                self._reserved = Reservations(index.layout, self._in_use)
                for jobid, entry in self._jobs.items():
                    self._jobs[jobid] = entry._replace(job=index.state.footprint(entry.selection))
                for _, jobid in self._ended[self._left :]:
                    self._comes(jobid)
                for _, jobid in self._later:
                    self._reserve(jobid, self._jobs[jobid])
        return self._index

    def settle(self, now: int) -> None:
        """Set the present to `now` (seconds): reservations that have begun become running jobs."""
        if now <= self._now:
            return
        self._now = now
        # Jobs that have ended are removed first, as jobs that begin may use their resources.
        self._move(now)
        while self._later and self._later[0][0] <= now:
            _, jobid = self._later.pop(0)
            self._lift(jobid, self._jobs[jobid])
            self._enter(jobid)

    # Searches

    def match(
        self,
        requests: Sequence[Request],
        allowed: frozenset[int] | None,
        at: int,
        end: int,
        may: Callable[[int], object] | None = None,
    ) -> Answer | None:
        """The resources to take during [at, end); `NOTHING` if they do not fit, None for no answer.

        None means that the index cannot answer. Nodes (vertices) for which `may` is false are left out.
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
        """The nodes, by rank, that any job or reservation uses at some moment of [at, end)."""
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
        """Remove a running job from the index."""
        job = self._jobs[jobid].job
        if job is not None and self._index is not None:
            self._index.state.gave(job)
