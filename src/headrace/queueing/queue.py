"""A queue of pending jobs in front of a graph's scheduler.

`schedule` starts what can start and promises starts to those the policy names; a promise is a reservation in the graph,
so whoever is matched later cannot delay it. Most waiting jobs are alike: once a shape of request does not fit now, no
other job of that shape is tried, whatever the number of jobs.

Nothing is planned anew: what becomes free is offered to the promised jobs in order, each of which may only move
forward. A call that would take too long leaves the rest to the next one, and says so (`unfinished`).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace, merge
from typing import NamedTuple

from headrace.graph.matcher import Failure
from headrace.graph.request import JobRequest
from headrace.graph.scheduler import Scheduler
from headrace.graph.usage import Allocation
from headrace.queueing.compression import Compression
from headrace.queueing.failed_searches import FOR_EVER
from headrace.queueing.pending import PendingJobs, Place
from headrace.queueing.policies import QueuePolicy, by_name
from headrace.queueing.reserved_starts import ReservedStarts
from headrace.queueing.start_search import StartSearch

# How long a job that has outlived its end is assumed to go on holding its resources, in seconds, at most.
OVERRUN = 30
# How many questions to the graph one call may ask to make or improve promises; with what follows from the answer, one
# takes .2 to .4 ms when many promises have been made.
EFFORT = 32
# How many jobs one call starts in order, before it leaves the rest to the next; a start takes about .04 ms.
STARTS = 64
# So few promised jobs are looked at one by one, rather than shape by shape.
_FEW_PROMISES = 64


def overrun(late: int) -> int:
    """How many seconds more a job is assumed to hold its resources that should have ended `late` seconds ago: as long
    again, since most end in the second that they are planned to."""
    return min(1 + late, OVERRUN)


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


class Queue:
    """Pending jobs, with their reservations. `depth` bounds how many jobs one call looks at to backfill or to improve.

    `effort` bounds how many questions to the graph one call asks for promises, None for no bound; while `unfinished`,
    the next call, at any time, goes on with the rest. The first waiting jobs of a policy that limits their number get
    their promises in any case.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        policy: QueuePolicy | str = "easy",
        depth: int = 500,
        reservations: int | None = None,
        effort: int | None = EFFORT,
    ) -> None:
        self.scheduler = scheduler
        self.policy = by_name(policy) if isinstance(policy, str) else policy
        if reservations is not None:
            self.policy = self.policy._replace(reservations=reservations)
        self.depth = depth
        self.line = PendingJobs()
        self.pending = self.line.entries
        self.running: set[int] = set()
        # Only policies that promise starts ask so much that gaps are worth their upkeep.
        self._outlook = StartSearch(scheduler, self.policy.reservations != 0, effort)
        self._promises = ReservedStarts(self.line, self._outlook)
        self._improver = Compression(self.line, self._promises, self._outlook)
        self.planned = self._promises.kept
        # No running job ends before.
        self._first_end = 0
        # The length for which jobs of a shape are known to be possible, in the present generation of the graph.
        self._possible: dict[str, int] = {}
        self._generation = scheduler.generation
        # Jobs that nobody has asked whether they are possible.
        self._new: list[int] = []
        self._changed = False
        # Jobs may hold something else than was entered.
        self._resized = False
        # Up to which gift promised jobs were offered a start at once.
        self._offered = 0
        # The place of the last job that was offered a start before the effort ended, and at which moment and gift.
        self._offered_to: Place | None = None
        self._offered_in = (0, 0)

    @property
    def unfinished(self) -> bool:
        """Whether the last call left something to the next."""
        return self._outlook.unfinished

    # What happens to jobs

    def submit(self, jobid: int, request: JobRequest, priority: int = 16, arrival: float | None = None) -> None:
        """Add a pending job. Those of the same priority are in order of arrival: of all calls, or by `arrival` if all
        have it. Raises ValueError for an id that is in use.
        """
        if jobid in self.pending or jobid in self.running:
            raise ValueError(f"job {jobid}: already in the queue")
        self._promises.first = min(self._promises.first, self.line.add(jobid, request, priority, arrival))
        # Where nobody passes the first, nobody looks at the others before their turn.
        if self.policy.backfill and request.duration > self._possible.get(self.pending[jobid].shape, -1):
            self._new.append(jobid)
        self._changed = True

    def reprioritize(self, jobid: int, priority: int) -> None:
        """Change a pending job's priority. Raises KeyError."""
        place = self.pending[jobid].place
        self._promises.first = min(self._promises.first, *self.line.move(jobid, priority))
        self._promises.moved(jobid, place)
        self._changed = True

    def cancel(self, jobid: int) -> None:
        """Forget a pending job. Raises KeyError."""
        if jobid not in self.pending:
            raise KeyError(jobid)
        if jobid in self.planned:
            self._promises.drop(jobid)
        self._remove(jobid)
        self._changed = True

    def finish(self, jobid: int) -> None:
        """A running job has ended: its resources are free. Raises KeyError."""
        self.running.remove(jobid)
        end = self.scheduler.jobs[jobid].end
        self.scheduler.cancel(jobid)
        self._outlook.gave(self._outlook.now, end, self._outlook.remove(jobid))
        self._changed = True

    def touch(self) -> None:
        """The graph changed in a way this queue did not cause: another queue's job ended, a node came up."""
        self._resized = True
        self._outlook.gave(self._outlook.now, FOR_EVER)
        self._changed = True

    def drop_plans(self, before: int = FOR_EVER) -> None:
        """Take back the promises of starts before a moment; the next `schedule` makes them anew."""
        if self.planned:
            self._promises.drop_before(before)
            self._changed = True

    def first(self, count: int) -> list[int]:
        """The first `count` waiting jobs, in order."""
        return [jobid for _, _, jobid in self.line.order.first(count)]

    def alike(self, count: int) -> list[int]:
        """The first waiting jobs, `count` at most, as long as they ask for the same as the first."""
        return self.line.alike(count)

    def hold(self, jobid: int, allocation: Allocation) -> None:
        """A job runs that was started elsewhere."""
        self.running.add(jobid)
        self._first_end = min(self._first_end, allocation.end)
        self._outlook.put(jobid, allocation)

    def hand_over(self, jobid: int, heir: int) -> None:
        """A waiting job without a promise holds from now on what an ended one held, until the same end."""
        self._remove(heir)
        self.running.remove(jobid)
        self.running.add(heir)
        allocation = self.scheduler.hand_over(jobid, heir)
        self._outlook.remove(jobid)
        self._outlook.put(heir, allocation)
        # Nothing became free, but somebody else may be the first now.
        self._changed = True

    def next_start(self) -> int | None:
        """The earliest promised start: when `schedule` must be called next even if nothing happens."""
        return self._promises.next_start()

    def _remove(self, jobid: int) -> None:
        shape = self.pending[jobid].shape
        self._promises.forget(jobid)
        self._promises.first -= self.line.remove(jobid) < self._promises.first
        if shape not in self.line.shapes:
            self._outlook.forget(shape)
            self._possible.pop(shape, None)

    # Scheduling

    def schedule(self, now: int) -> list[Decision]:
        """Start and promise what the policy says, as things stand at `now`."""
        outlook = self._outlook
        outlook.arrive(now)
        if self._resized:
            self._resized = False
            outlook.compare()
        self._hold_overrun(now)
        if self._generation != self.scheduler.generation:
            self._drop_lost()
        first = self._promises.next_start()
        if not (self._changed or outlook.unfinished or (first is not None and first <= now)):
            return []
        decisions: list[Decision] = []
        fresh = not outlook.unfinished
        outlook.begin()
        self._refuse_new(decisions)
        self._start_due(now, decisions)
        if not self.policy.keeps:
            self._demote()
        # What became free is theirs first who were promised a start. When that takes more than a call, every other call
        # lets new jobs have their turn before.
        if fresh:
            self._improve(decisions)
        self._serve_first(now, decisions)
        if not outlook.unfinished:
            self._improve(decisions)
        # Nobody goes ahead of jobs that have not had their turn.
        if self.policy.backfill and self.policy.reservations is not None and not outlook.unfinished:
            self._backfill(now, decisions)
        decisions += [Planned(jobid, start) for jobid, start in self._promises.news()]
        self._changed = False
        return decisions

    def _hold_overrun(self, now: int) -> None:
        """Running jobs past their end still hold their resources: say so, which breaks the promises of that time."""
        if now < self._first_end:
            return
        jobs = self.scheduler.jobs
        late = [jobid for jobid in self.running if jobs[jobid].end <= now]
        self._first_end = min((max(jobs[jobid].end, now + 1) for jobid in self.running), default=FOR_EVER)
        if not late:
            return
        self._changed = True
        self._promises.drop_before(now + OVERRUN)
        for jobid in late:
            held = jobs[jobid]
            self.scheduler.cancel(jobid)
            self._outlook.put(jobid, self.scheduler.add(jobid, held.selection, held.start, now + OVERRUN, False))

    def _drop_lost(self) -> None:
        """The graph has changed: promises of what is down cannot be kept."""
        self._generation = self.scheduler.generation
        self._possible.clear()
        self._outlook.redraw(self.running | self.planned.keys())
        self._promises.first = 0
        up = self.scheduler.graph.up
        for jobid, allocation in list(self.planned.items()):
            if not all(up[v] for v in allocation.selection.marks):
                self._promises.drop(jobid)
        self._changed = True

    def _demote(self) -> None:
        """Others have come ahead of promised jobs: only the first may have a promise."""
        limit, places = self.policy.reservations, self._promises.places
        while limit is not None and places and self.line.before(places[-1]) >= limit:
            self._promises.drop(places[-1][2])

    def _start_due(self, now: int, decisions: list[Decision]) -> None:
        for jobid in self._promises.due(now):
            allocation, places = self._promises.take_out(jobid)
            if allocation.start == now:
                held = self.scheduler.add(jobid, allocation.selection, now, allocation.end, False)
                self._start(jobid, held, decisions)
            else:
                # Called too late for the promise as it was made: `_serve_first` finds the job a start like any other.
                self._outlook.gave(now, allocation.end, places)
                self._promises.count_anew(jobid)

    def _start(self, jobid: int, allocation: Allocation, decisions: list[Decision]) -> None:
        self._remove(jobid)
        self.hold(jobid, allocation)
        decisions.append(Started(jobid, allocation))

    def _improve(self, decisions: list[Decision]) -> None:
        self._improver.improve(self.depth, lambda jobid, allocation: self._start(jobid, allocation, decisions))

    def _try(self, jobid: int, now: int, decisions: list[Decision]) -> bool:
        """Start a job now if it fits."""
        entry, outlook = self.pending[jobid], self._outlook
        if entry.length >= outlook.dead.get(entry.shape, FOR_EVER + 1):
            return False
        allocation = None
        if outlook.may_fit(entry):
            allocation = self.scheduler.allocate(jobid, entry.request, now, explain=False).allocation
        if allocation is None:
            outlook.failed_now(entry)
            return False
        self._start(jobid, allocation, decisions)
        return True

    def _serve_first(self, now: int, decisions: list[Decision]) -> None:
        """Jobs in order, until as many wait as the policy makes promises to."""
        limit, outlook = self.policy.reservations, self._outlook
        offered = outlook.misses.count
        offers = offered != self._offered
        order, planned = self.line.order, self.planned
        if offers and limit is None and not self._offer_now(decisions):
            return
        waiting = 0 if limit is not None else self._promises.first
        begun = 0
        while waiting < len(order):
            jobid = order[waiting][2]
            kept = planned.get(jobid)
            if kept is not None:
                early = self._improver.start_early(self.pending[jobid], kept) if offers else None
                if early is not None:
                    self._start(jobid, early, decisions)
                else:
                    waiting += 1
            elif begun == STARTS:
                outlook.unfinished = True
                break
            elif limit is not None and waiting >= limit:
                if self.policy.backfill:
                    break
                if self._try(jobid, now, decisions):
                    begun += 1
                elif not self._refuse_hopeless(jobid, decisions):
                    break
            else:
                left = outlook.left()
                if left == 0 and limit is None and waiting:
                    outlook.unfinished = True
                    break
                found = self._plan(jobid, now, None if limit is not None or not waiting else left, decisions)
                if found is None:
                    outlook.unfinished = True
                    break
                waiting += found
                begun += not found
        self._promises.first = waiting
        if not outlook.unfinished:
            self._offered = offered

    def _offer_now(self, decisions: list[Decision]) -> bool:
        """Have promised jobs start now that can, in line. False if the effort ended before all had their turn."""
        outlook, state = self._outlook, (self._outlook.now, self._outlook.misses.count)
        after = self._offered_to if state == self._offered_in else None
        while True:
            for place in self._startable(after):
                if outlook.left() == 0:
                    outlook.unfinished = True
                    self._offered_in, self._offered_to = (outlook.now, outlook.misses.count), after
                    return False
                after = place
                jobid = place[2]
                early = self._improver.start_early(self.pending[jobid], self.planned[jobid])
                if early is not None:
                    self._start(jobid, early, decisions)
                    # What its promise held is free again, for any shape.
                    break
            else:
                return True

    def _startable(self, after: Place | None) -> Iterator[Place]:
        """The places in line, behind one, of promised jobs that may start now, as far as gaps tell at a glance.

        Among the first jobs may be some without a promise: what they ask for is down, so no start was found for them.
        """
        outlook, entries, kept, first = self._outlook, self.pending, self.planned, self._promises.first
        if not first:
            return iter(())
        now, last = outlook.now, self.line.order[first - 1]
        if first < _FEW_PROMISES:
            return (
                place for place in self.line.order.first(first) if place[2] in kept and (after is None or place > after)
            )
        since = min(self._promises.checked.values())
        rows = []
        for row in self.line.shapes.values():
            begin = 0 if after is None else row.behind(after)
            if begin == len(row) or row[begin] > last:
                continue
            longest = outlook.longest_now(entries[row[begin][2]], since)
            if longest:
                rows.append(
                    [
                        place
                        for place in row.between(begin, last)
                        if place[2] in kept
                        and (entries[place[2]].length <= longest or kept[place[2]].start <= now + longest)
                    ]
                )
        return merge(*rows)

    def _plan(self, jobid: int, now: int, effort: int | None, decisions: list[Decision]) -> int | None:
        """Start a job or promise it a start. 1 if it goes on waiting, 0 if it does not, None if the effort is spent."""
        entry, outlook = self.pending[jobid], self._outlook
        found = outlook.search(entry, outlook.ranges(entry), effort)
        known = found.selection is not None or found.spent
        outlook.misses.missed(entry.shape, entry.length, found.start if known else FOR_EVER)
        if found.selection is not None:
            allocation = self.scheduler.enter(jobid, found.selection, found.start, found.end, found.start > now)
            if found.start == now:
                self._start(jobid, allocation, decisions)
                return 0
            self._promises.make(jobid, allocation)
        elif found.spent:
            return None
        elif self._refuse_hopeless(jobid, decisions):
            return 0
        outlook.failed_now(entry)
        return 1

    def _refuse_new(self, decisions: list[Decision]) -> None:
        """Jobs that ask for what there is not are told at once, wherever they stand in line."""
        new, self._new = self._new[:STARTS], self._new[STARTS:]
        for jobid in new:
            if jobid in self.pending:
                self._refuse_hopeless(jobid, decisions)
        if self._new:
            self._outlook.unfinished = True

    def _refuse_hopeless(self, jobid: int, decisions: list[Decision]) -> bool:
        entry = self.pending[jobid]
        if entry.request.duration <= self._possible.get(entry.shape, -1):
            return False
        outcome = self.scheduler.satisfiable(entry.request)
        if outcome.unsatisfiable:
            self._remove(jobid)
            decisions.append(Refused(jobid, outcome.failure))
        else:
            self._possible[entry.shape] = entry.request.duration
        return outcome.unsatisfiable

    def _backfill(self, now: int, decisions: list[Decision]) -> None:
        """Others in order, shape by shape, leaving out shapes that do not fit."""
        dead, pending, planned, never = self._outlook.dead, self.pending, self.planned, FOR_EVER + 1
        shortest = {shape: lengths[0] for shape, lengths in self.line.lengths.items()}
        lists = {
            shape: list(places)
            for shape, places in self.line.shapes.items()
            if shortest[shape] < dead.get(shape, never)
        }
        heap = [(places[0], 0, shape) for shape, places in lists.items()]
        heapify(heap)
        looked_at = begun = 0
        while heap and looked_at < self.depth:
            (_, _, jobid), i, shape = heap[0]
            looked_at += 1
            entry = pending.get(jobid)
            if entry is not None and entry.length < dead.get(shape, never) and jobid not in planned:
                begun += self._try(jobid, now, decisions)
                if begun == STARTS:
                    self._outlook.unfinished = True
                    break
            places = lists[shape]
            if i + 1 < len(places) and shortest[shape] < dead.get(shape, never):
                heapreplace(heap, (places[i + 1], i + 1, shape))
            else:
                heappop(heap)
