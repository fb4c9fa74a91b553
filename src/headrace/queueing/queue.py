"""A queue of pending jobs in front of a graph's scheduler.

Jobs are ordered by priority, then by arrival. `schedule` starts what can start and promises starts to those the policy
names; a promise is a reservation in the graph, so whoever is matched later cannot delay it. Most waiting jobs are
alike: once a shape of request does not fit now, no other job of that shape is tried, whatever the number of jobs.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from headrace.graph.matcher import Failure
from headrace.graph.request import JobRequest, Request
from headrace.graph.scheduler import Allocation, Scheduler
from headrace.queueing.policies import QueuePolicy, by_name

# How long a job that has outlived its end is assumed to go on holding its resources, in seconds.
OVERRUN = 30
_FOR_EVER = 2**62


class Started(NamedTuple):
    """The job runs from now on what the allocation holds."""

    jobid: int
    allocation: Allocation


class Planned(NamedTuple):
    """The job waits; it starts at `start` (seconds) at the latest unless jobs before it change."""

    jobid: int
    start: int


class Refused(NamedTuple):
    """No idle graph could ever run the job: `failure` says what is short."""

    jobid: int
    failure: Failure | None


Decision = Started | Planned | Refused
_Place = tuple[int, int, int]


class _Pending(NamedTuple):
    place: _Place
    request: JobRequest
    shape: str


class Queue:
    """Pending jobs, with their reservations. `depth` bounds how many jobs one call looks at to backfill."""

    def __init__(
        self,
        scheduler: Scheduler,
        policy: QueuePolicy | str = "easy",
        depth: int = 500,
        reservations: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.policy = by_name(policy) if isinstance(policy, str) else policy
        if reservations is not None:
            self.policy = self.policy._replace(reservations=reservations)
        self.depth = depth
        self.pending: dict[int, _Pending] = {}
        self.running: set[int] = set()
        self.planned: dict[int, Allocation] = {}
        self._order: list[_Place] = []
        self._shapes: dict[str, list[_Place]] = {}
        self._arrivals = 0
        # Jobs known to be possible, with the generation of the graph they are possible in.
        self._possible: dict[int, int] = {}
        self._changed = False
        self._freed = False

    # What happens to jobs

    def submit(self, jobid: int, request: JobRequest, priority: int = 16) -> None:
        """Add a pending job. Raises ValueError for an id that is in use."""
        if jobid in self.pending or jobid in self.running:
            raise ValueError(f"job {jobid}: already in the queue")
        self._arrivals += 1
        entry = _Pending((-priority, self._arrivals, jobid), request, shape_of(request))
        self.pending[jobid] = entry
        self._insert(entry)

    def reprioritize(self, jobid: int, priority: int) -> None:
        """Change a pending job's priority. Raises KeyError."""
        entry = self.pending[jobid]
        self._remove(entry)
        entry = entry._replace(place=(-priority, *entry.place[1:]))
        self.pending[jobid] = entry
        self._insert(entry)
        self._freed = True

    def cancel(self, jobid: int) -> None:
        """Forget a pending job. Raises KeyError."""
        entry = self.pending.pop(jobid)
        self._remove(entry)
        if self.planned.pop(jobid, None) is not None:
            self.scheduler.cancel(jobid)
            self._freed = True
        self._changed = True

    def finish(self, jobid: int) -> None:
        """A running job has ended: its resources are free. Raises KeyError."""
        self.running.remove(jobid)
        self.scheduler.cancel(jobid)
        self._changed = self._freed = True

    def touch(self) -> None:
        """The graph changed in a way this queue did not cause: another queue's job ended, a node came up."""
        self._changed = self._freed = True

    def drop_plans(self) -> None:
        """Take back all promises; the next `schedule` makes them anew."""
        self._drop_plans()
        self._changed = self._freed = True

    def first(self, count: int) -> list[int]:
        """The first `count` waiting jobs, in order."""
        return [jobid for _, _, jobid in self._order[:count]]

    def next_start(self) -> int | None:
        """The earliest promised start: when `schedule` must be called next even if nothing happens."""
        return min((allocation.start for allocation in self.planned.values()), default=None)

    def _insert(self, entry: _Pending) -> None:
        insort(self._order, entry.place)
        insort(self._shapes.setdefault(entry.shape, []), entry.place)
        self._changed = True

    def _remove(self, entry: _Pending) -> None:
        self._possible.pop(entry.place[2], None)
        del self._order[bisect_left(self._order, entry.place)]
        places = self._shapes[entry.shape]
        del places[bisect_left(places, entry.place)]
        if not places:
            del self._shapes[entry.shape]

    # Scheduling

    def schedule(self, now: int) -> list[Decision]:
        """Start and promise what the policy says, as things stand at `now`."""
        decisions: list[Decision] = []
        for _ in self.steps(now, decisions):
            pass
        return decisions

    def steps(self, now: int, decisions: list[Decision]) -> Iterator[None]:
        """`schedule` in small steps, for a caller that must not be held up: decisions are appended as they are made.

        Until the last step the queue and its scheduler must not be used for anything else, and the caller may take
        decisions out of the list between steps.
        """
        due = [jobid for jobid, allocation in self.planned.items() if allocation.start <= now]
        self._hold_overrun(now)
        if not (self._changed or due):
            return
        before = {jobid: allocation.start for jobid, allocation in self.planned.items()}
        if not self.policy.keeps:
            self._drop_plans()
        else:
            self._start_due(due, now, decisions)
        dead: dict[str, int] = {}
        yield from self._serve_first(now, dead, decisions)
        if self.policy.backfill and self.policy.reservations is not None:
            yield from self._backfill(now, dead, decisions)
        decisions += [
            Planned(jobid, allocation.start)
            for jobid, allocation in self.planned.items()
            if before.get(jobid) != allocation.start
        ]
        self._changed = self._freed = False

    def _hold_overrun(self, now: int) -> None:
        """Running jobs past their end still hold their resources: say so, and make plans anew."""
        late = [jobid for jobid in self.running if self.scheduler.jobs[jobid].end <= now]
        if not late:
            return
        self._drop_plans()
        self._changed = True
        for jobid in late:
            held = self.scheduler.jobs[jobid]
            self.scheduler.cancel(jobid)
            self.scheduler.add(jobid, held.selection, held.start, now + OVERRUN, False)

    def _drop_plans(self) -> None:
        for jobid in self.planned:
            self.scheduler.cancel(jobid)
        self.planned.clear()

    def _start_due(self, due: list[int], now: int, decisions: list[Decision]) -> None:
        for jobid in sorted(due, key=lambda j: self.pending[j].place):
            allocation = self.planned.pop(jobid)
            self.scheduler.cancel(jobid)
            if allocation.start == now:
                held = self.scheduler.add(jobid, allocation.selection, now, allocation.end, False)
                self._start(jobid, held, decisions)
            # Called too late for the promise as it was made: `_serve_first` finds the job a start like any other.

    def _start(self, jobid: int, allocation: Allocation, decisions: list[Decision]) -> None:
        self._remove(self.pending.pop(jobid))
        self.running.add(jobid)
        decisions.append(Started(jobid, allocation))

    def _try(self, jobid: int, now: int, dead: dict[str, int], decisions: list[Decision]) -> bool:
        """Start a job now if it fits. `dead` are shapes that do not fit, from what duration on."""
        entry = self.pending[jobid]
        length = entry.request.duration or _FOR_EVER
        known = dead.get(entry.shape)
        if known is not None and length >= known:
            return False
        outcome = self.scheduler.allocate(jobid, entry.request, now, explain=False)
        if outcome.allocation is not None:
            self._start(jobid, outcome.allocation, decisions)
            return True
        if known is None and length > 1:
            brief = JobRequest(entry.request.resources, 1, entry.request.constraint)
            if self.scheduler.match_at(brief, now)[0] is None:
                length = 1
        dead[entry.shape] = length
        return False

    def _hopeless_now(self, entry: _Pending, dead: dict[str, int]) -> bool:
        return (entry.request.duration or _FOR_EVER) >= dead.get(entry.shape, _FOR_EVER + 1)

    def _serve_first(self, now: int, dead: dict[str, int], decisions: list[Decision]) -> Iterator[None]:
        """Jobs in order, until as many wait as the policy makes promises to."""
        limit = self.policy.reservations
        waiting = 0
        for _, _, jobid in list(self._order):
            yield
            kept = self.planned.get(jobid)
            if kept is not None:
                if self._freed and not self._hopeless_now(self.pending[jobid], dead):
                    self._improve(jobid, kept, now, dead, decisions)
                continue
            if self._try(jobid, now, dead, decisions):
                continue
            if limit is not None and waiting >= limit:
                if not self.policy.backfill and self._refuse_hopeless(jobid, decisions):
                    continue
                return
            outcome = self.scheduler.reserve(jobid, self.pending[jobid].request, now)
            if outcome.allocation is None:
                self._refuse_hopeless(jobid, decisions)
                continue
            waiting += 1
            self.planned[jobid] = outcome.allocation

    def _refuse_hopeless(self, jobid: int, decisions: list[Decision]) -> bool:
        entry = self.pending[jobid]
        if self._possible.get(jobid) == self.scheduler.generation:
            return False
        outcome = self.scheduler.satisfiable(entry.request)
        if outcome.unsatisfiable:
            self._remove(self.pending.pop(jobid))
            decisions.append(Refused(jobid, outcome.failure))
        else:
            self._possible[jobid] = self.scheduler.generation
        return outcome.unsatisfiable

    def _improve(self, jobid: int, kept: Allocation, now: int, dead: dict[str, int], decisions: list[Decision]) -> None:
        """Start a promised job now if others' early ends allow it; else leave the promise as it was."""
        self.scheduler.cancel(jobid)
        del self.planned[jobid]
        if not self._try(jobid, now, dead, decisions):
            self.planned[jobid] = self.scheduler.add(jobid, kept.selection, kept.start, kept.end, True)

    def _backfill(self, now: int, dead: dict[str, int], decisions: list[Decision]) -> Iterator[None]:
        """Others in order, shape by shape, leaving out shapes that do not fit."""
        heap = [(places[0], 0, shape) for shape, places in self._shapes.items() if dead.get(shape, 2) > 1]
        lists = {shape: list(self._shapes[shape]) for _, _, shape in heap}
        heapify(heap)
        looked_at = 0
        while heap and looked_at < self.depth:
            (_, _, jobid), i, shape = heap[0]
            yield
            looked_at += 1
            if jobid in self.pending and jobid not in self.planned:
                self._try(jobid, now, dead, decisions)
            places = lists[shape]
            if i + 1 < len(places) and dead.get(shape, 2) > 1:
                heapreplace(heap, (places[i + 1], i + 1, shape))
            else:
                heappop(heap)


def shape_of(request: JobRequest) -> str:
    """A text that is equal for requests that differ in duration at most."""
    if request.shape is None:
        resources = [_shape(r) for r in request.resources]
        request.shape = json.dumps([resources, request.constraint], sort_keys=True)
    return request.shape


def _shape(request: Request) -> list[object]:
    count = request.count
    return [
        request.type,
        count.low,
        count.high,
        count.operator,
        count.operand,
        request.exclusive,
        [_shape(r) for r in request.with_],
    ]
