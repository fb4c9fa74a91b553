"""A queue of pending jobs in front of the scheduler of a graph.

`schedule` starts the jobs that can start and makes the reservations that the policy asks for. A reservation holds its
resources in the graph, so jobs that are matched later cannot delay it. Once a shape of request does not fit now, no
other job of that shape is tried.

A job is planned as if no job behind it had a reservation. So jobs that arrive in order do not change the reservations
before them. Released resources are offered to the jobs with reservations in order, and their starts only move forward.

A job without a reservation may precede jobs with one: it has a higher priority, was requeued, or its own reservation
was broken. If it cannot start at once, all reservations behind it are cancelled and made again in order, because each
may have to give way to the one before.

A call that would take too long leaves the rest to the next one (`unfinished`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from math import ceil
from typing import NamedTuple

from headrace.sched.graph.matcher import Failure
from headrace.sched.graph.request import JobRequest
from headrace.sched.graph.scheduler import Scheduler
from headrace.sched.graph.selection import Selection
from headrace.sched.graph.usage import Allocation, SpanConflictError
from headrace.sched.queueing.compression import Compression
from headrace.sched.queueing.failed_searches import FOR_EVER
from headrace.sched.queueing.pending import PendingJobs, Position
from headrace.sched.queueing.policies import QueuePolicy, by_name
from headrace.sched.queueing.reserved_starts import ReservedStarts
from headrace.sched.queueing.start_search import StartSearch

# The maximum number of seconds for which a job beyond its end is assumed to hold its resources further.
OVERRUN = 30
# How many searches of the graph one call may make for reservations. With many reservations, a search and the work that
# follows from it take .2 to .4 ms.
SEARCH_BUDGET = 32
# How many jobs one call may start in order. A start takes about .04 ms.
MAX_STARTS = 64
# How many reservations one call may cancel because they are out of order. Cancelling one takes about .12 ms.
MAX_CANCELLED = 128
# How many reservations may be made again in order per second, on average. Each takes about .5 ms of processor time, so
# without a limit a stream of urgent jobs before thousands of others would keep the scheduler busy all the time.
REORDERED_PER_SECOND = 500
# Up to this number, reservations are made again whenever they are out of order.
_REORDERED_AT_ONCE = 64
# If at least one of so many pending jobs gets another priority, all of them are sorted anew.
_SORT_FROM = 64
# Up to this number, jobs with reservations are considered one by one; more of them shape by shape.
_FEW_RESERVATIONS = 64


def overrun(late: int) -> int:
    """How many more seconds a job is assumed to hold its resources, `late` seconds after its end.

    The assumed rest is as long as the delay so far: most late jobs end within the next second.
    """
    return min(1 + late, OVERRUN)


class Started(NamedTuple):
    """The job runs from now on, on the resources of the allocation."""

    jobid: int
    allocation: Allocation


class Planned(NamedTuple):
    """The job has a reservation.

    It starts at `start` (seconds) or earlier, unless new jobs precede it or a running job exceeds its time.
    """

    jobid: int
    start: int


class Refused(NamedTuple):
    """The job could not run even if the graph were idle: `failure` has the missing resources."""

    jobid: int
    failure: Failure | None


Decision = Started | Planned | Refused


class Queue:
    """Pending jobs and their reservations.

    `depth` is how many jobs one call may try to backfill, or to move forward. `budget` is how many searches of the
    graph one call may make for reservations, None for any number. The budget does not apply if the policy limits the
    number of reservations. While `unfinished` is True, call `schedule` again: it continues with the rest.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        policy: QueuePolicy | str = "easy",
        depth: int = 500,
        reservations: int | None = None,
        budget: int | None = SEARCH_BUDGET,
    ) -> None:
        self.scheduler = scheduler
        self.policy = by_name(policy) if isinstance(policy, str) else policy
        if reservations is not None:
            self.policy = self.policy._replace(reservations=reservations)
        self.depth = depth
        self.waiting = PendingJobs()
        self.pending = self.waiting.by_id
        self.running: set[int] = set()
        # The availability profile is worth its upkeep only for policies that make reservations.
        self._search = StartSearch(scheduler, self.policy.reservations != 0, budget)
        self._reserved = ReservedStarts(self.waiting, self._search)
        self._compression = Compression(self.waiting, self._reserved, self._search)
        self.planned = self._reserved.allocations
        # No running job ends before this moment.
        self._first_end = 0
        # By shape, the longest duration that an idle graph of the present generation is known to satisfy.
        self._possible: dict[str, int] = {}
        self._generation = scheduler.generation
        # Jobs that have not been tested for satisfiability.
        self._new: list[int] = []
        self._changed = False
        # True if allocations may have changed in the scheduler without this queue.
        self._resized = False
        # The position from which on reservations must be made again in order, and the earliest time for it.
        self._disorder: Position | None = None
        self._reorder_from = 0
        # The count of releases when `_offer_now` last tried all jobs with reservations.
        self._offered = 0
        # If the search budget ended `_offer_now` early: the position that it reached, and the time and count of
        # releases of that call.
        self._offered_to: Position | None = None
        self._offered_in = (0, 0)

    @property
    def now(self) -> int:
        """The time (seconds), by the last `advance`."""
        return self._search.now

    @property
    def unfinished(self) -> bool:
        """Whether the last call left work to the next."""
        return self._search.unfinished

    # Changes of jobs

    def submit(self, jobid: int, request: JobRequest, priority: int = 16, arrival: float | None = None) -> None:
        """Add a pending job. Raises ValueError for an id that is in use.

        Jobs of one priority are in order of `arrival`, which all of them or none must have, or of the calls.
        """
        if jobid in self.pending or jobid in self.running:
            raise ValueError(f"job {jobid}: already in the queue")
        self._reserved.served = min(self._reserved.served, self.waiting.add(jobid, request, priority, arrival))
        # Without backfill, jobs are tested for satisfiability when their turn comes.
        if self.policy.backfill and request.duration > self._possible.get(self.pending[jobid].shape, -1):
            self._new.append(jobid)
        self._changed = True

    def reprioritize(self, jobid: int, priority: int) -> None:
        """Change a pending job's priority. Raises KeyError."""
        was = self.pending[jobid].position
        before, after = self.waiting.move(jobid, priority)
        self._reserved.served = min(self._reserved.served, before, after)
        self._reserved.reposition(jobid, was)
        if before != after:
            self._note_disorder(min(was, self.pending[jobid].position))
        self._changed = True

    def reprioritize_all(self, priorities: Mapping[int, int]) -> None:
        """Change the priorities of pending jobs. Raises KeyError."""
        waiting, reserved = self.waiting, self._reserved
        if len(priorities) * _SORT_FROM < len(self.pending):
            for jobid, priority in priorities.items():
                self.reprioritize(jobid, priority)
            return
        # Positions of the old order mean nothing in the new one.
        disordered = len(waiting.order) if self._disorder is None else waiting.count_before(self._disorder)
        same = waiting.move_all(priorities)
        reserved.served = min(reserved.served, same)
        reserved.reposition_all()
        first = min(same, disordered)
        self._disorder = waiting.order[first] if first < len(waiting.order) else None
        self._offered_to = None
        self._changed = True

    def cancel(self, jobid: int) -> None:
        """Remove a pending job. Raises KeyError."""
        if jobid not in self.pending:
            raise KeyError(jobid)
        if jobid in self.planned:
            self._reserved.drop(jobid)
        self._remove(jobid)
        self._changed = True

    def finish(self, jobid: int) -> None:
        """Remove a running job that has ended, and release its resources. Raises KeyError."""
        self.running.remove(jobid)
        end = self.scheduler.jobs[jobid].end
        self.scheduler.cancel(jobid)
        self._search.released(self._search.now, end, self._search.remove(jobid))
        self._changed = True

    def touch(self) -> None:
        """Note a change of the graph that this queue did not make: a job of another queue ended, or a node came up."""
        self._resized = True
        self._search.released(self._search.now, FOR_EVER)
        self._changed = True

    def drop_plans(self, before: int = FOR_EVER) -> None:
        """Cancel the reservations that start before a moment; the next `schedule` makes them again."""
        if self.planned:
            self._reserved.drop_before(before)
            self._changed = True

    def drop_plans_of(self, jobids: Iterable[int]) -> None:
        """Cancel reservations that cannot be kept; the next `schedule` makes them again."""
        for jobid in jobids:
            if jobid in self.planned:
                self._reserved.drop(jobid)
                self._changed = True

    def first(self, count: int) -> list[int]:
        """The ids of the first `count` pending jobs."""
        return [jobid for _, _, jobid in self.waiting.order.first(count)]

    def alike(self, count: int) -> list[int]:
        """The ids of the pending jobs at the front, up to `count`, whose requests equal that of the first job."""
        return self.waiting.alike(count)

    def hold(self, jobid: int, allocation: Allocation) -> None:
        """Add a running job that was not started by this queue."""
        self.running.add(jobid)
        self._first_end = min(self._first_end, allocation.end)
        self._search.add(jobid, allocation)

    def enter(self, jobid: int, selection: Selection, start: int, end: int) -> None:
        """Add a running job that was not started by this queue, with the resources that it actually holds.

        Reservations of these resources are cancelled, and the next `schedule` makes them again.
        """
        try:
            self.scheduler.add(jobid, selection, start, end, False)
        except SpanConflictError:
            self.drop_plans_of(self.scheduler.hold(jobid, selection, start, end))
        self.hold(jobid, self.scheduler.jobs[jobid])

    def hand_over(self, jobid: int, successor: int) -> None:
        """Hand the allocation of an ended job, until the same end, to a waiting job without a reservation."""
        self._remove(successor)
        self.running.remove(jobid)
        self.running.add(successor)
        allocation = self.scheduler.hand_over(jobid, successor)
        self._search.remove(jobid)
        self._search.add(successor, allocation)
        # Nothing was released, but another job may be the first now.
        self._changed = True

    def next_start(self) -> int | None:
        """The moment (seconds) at which `schedule` must be called even if nothing changes; None for none.

        It is the earliest reserved start, or the time from which reservations that are out of order may be made again.
        """
        start = self._reserved.next_start()
        if self._disorder is None:
            return start
        return self._reorder_from if start is None else min(start, self._reorder_from)

    def _remove(self, jobid: int) -> None:
        shape = self.pending[jobid].shape
        self._reserved.forget(jobid)
        self._reserved.served -= self.waiting.remove(jobid) < self._reserved.served
        if shape not in self.waiting.by_shape:
            self._search.forget_shape(shape)
            self._possible.pop(shape, None)

    # Scheduling

    def advance(self, now: int) -> None:
        """Set the time to `now` (seconds), and extend the allocations of jobs that run beyond their end.

        `schedule` begins with it. A caller that enters allocations into the scheduler between two calls must do so at
        the time of the last one.
        """
        self._search.advance(now)
        if self._resized:
            self._resized = False
            self._search.resync()
        self._hold_overrun(now)

    def schedule(self, now: int) -> list[Decision]:
        """Start jobs and make reservations at `now` (seconds), as the policy says."""
        search = self._search
        self.advance(now)
        if self._generation != self.scheduler.generation:
            self._drop_lost()
        due = self.next_start()
        if not (self._changed or search.unfinished or (due is not None and due <= now)):
            return []
        decisions: list[Decision] = []
        fresh = not search.unfinished
        search.begin_call()
        self._refuse_new(decisions)
        in_order = self._restore_order(now)
        self._start_due(now, decisions)
        if not self.policy.keeps:
            self._demote()
        # Released resources are offered to jobs with reservations first, unless a job without one precedes them. Where
        # compression takes more than one call, new jobs are served before it in every other call.
        if fresh and self._reserved.in_order:
            self._compress(decisions)
        if in_order:
            self._serve_first(now, decisions)
        if not search.unfinished:
            self._compress(decisions)
        # No job is backfilled before all jobs that the policy gives reservations have been served.
        if self.policy.backfill and self.policy.reservations is not None and not search.unfinished:
            self._backfill(now, decisions)
        decisions += [Planned(jobid, start) for jobid, start in self._reserved.changed_starts()]
        self._changed = False
        return decisions

    def _hold_overrun(self, now: int) -> None:
        """Extend allocations of jobs beyond their end, which cancels the reservations of that time."""
        if now < self._first_end:
            return
        jobs = self.scheduler.jobs
        late = [jobid for jobid in self.running if jobs[jobid].end <= now]
        self._first_end = min((max(jobs[jobid].end, now + 1) for jobid in self.running), default=FOR_EVER)
        if not late:
            return
        self._changed = True
        self._reserved.drop_before(now + OVERRUN)
        for jobid in late:
            held = jobs[jobid]
            self.scheduler.cancel(jobid)
            self.enter(jobid, held.selection, held.start, now + OVERRUN)

    def _drop_lost(self) -> None:
        """Cancel the reservations of vertices that are down, after a change of the graph."""
        self._generation = self.scheduler.generation
        self._possible.clear()
        self._search.rebuild(self.running | self.planned.keys())
        self._reserved.served = 0
        up = self.scheduler.graph.up
        for jobid, allocation in list(self.planned.items()):
            if not all(up[v] for v in allocation.selection.marks):
                self._reserved.drop(jobid)
        self._changed = True

    def _demote(self) -> None:
        """Cancel the reservations beyond the policy's number, after jobs of higher priority have arrived."""
        limit, positions = self.policy.reservations, self._reserved.positions
        while limit is not None and positions and self.waiting.count_before(positions[-1]) >= limit:
            self._reserved.drop(positions[-1][2])

    def _note_disorder(self, position: Position) -> None:
        """Schedule the reservations from a position on to be made again in order, at most REORDERED_PER_SECOND."""
        self._disorder = position if self._disorder is None else min(position, self._disorder)

    def _restore_order(self, now: int) -> bool:
        """Cancel the reservations that are out of order, the last first, if the pace allows.

        `_serve_first` makes them again. False if this call could not cancel all of them.
        """
        first, reserved = self._disorder, self._reserved
        if first is None or now < self._reorder_from:
            return True
        if reserved.reaches(first):
            if not reserved.drop_last(first, MAX_CANCELLED):
                self._search.unfinished = True
                return False
            count = len(self.waiting.order) - self.waiting.count_before(first)
            if self.policy.reservations is not None:
                count = min(count, self.policy.reservations)
            self._reorder_from = now + (ceil(count / REORDERED_PER_SECOND) if count > _REORDERED_AT_ONCE else 0)
        self._disorder = None
        return True

    def _start_due(self, now: int, decisions: list[Decision]) -> None:
        for jobid in self._reserved.due(now):
            allocation, holders = self._reserved.pop(jobid)
            if allocation.start == now:
                held = self.scheduler.add(jobid, allocation.selection, now, allocation.end, False)
                self._start(jobid, held, decisions)
            else:
                # This call comes after the reserved start, so `_serve_first` searches for a new start.
                self._search.released(now, allocation.end, holders)
                self._reserved.reopen(jobid)

    def _start(self, jobid: int, allocation: Allocation, decisions: list[Decision]) -> None:
        self._remove(jobid)
        self.hold(jobid, allocation)
        decisions.append(Started(jobid, allocation))

    def _compress(self, decisions: list[Decision]) -> None:
        self._compression.compress(self.depth, lambda jobid, allocation: self._start(jobid, allocation, decisions))

    def _try(self, jobid: int, now: int, decisions: list[Decision]) -> bool:
        """Start a job now if it fits."""
        job, search = self.pending[jobid], self._search
        if job.length >= search.unfit_from.get(job.shape, FOR_EVER + 1):
            return False
        allocation = None
        if search.may_fit(job):
            allocation = self.scheduler.allocate(jobid, job.request, now, explain=False).allocation
        if allocation is None:
            search.failed_now(job)
            return False
        self._start(jobid, allocation, decisions)
        return True

    def _serve_first(self, now: int, decisions: list[Decision]) -> None:
        """Serve jobs in order: start them, or make reservations, as many as the policy allows."""
        limit, search = self.policy.reservations, self._search
        offered = search.failed.releases
        offers = offered != self._offered
        order, planned = self.waiting.order, self.planned
        if offers and limit is None and not self._offer_now(decisions):
            return
        served = 0 if limit is not None else self._reserved.served
        started = 0
        while served < len(order):
            jobid = order[served][2]
            kept = planned.get(jobid)
            if kept is not None:
                early = self._compression.start_early(self.pending[jobid], kept) if offers else None
                if early is not None:
                    self._start(jobid, early, decisions)
                else:
                    served += 1
            elif started == MAX_STARTS:
                search.unfinished = True
                break
            elif limit is not None and served >= limit:
                if self.policy.backfill:
                    break
                if self._try(jobid, now, decisions):
                    started += 1
                elif not self._refuse_impossible(jobid, decisions):
                    break
            else:
                left = search.budget_left()
                if left == 0 and limit is None and served:
                    search.unfinished = True
                    break
                found = self._plan(jobid, now, None if limit is not None or not served else left, decisions)
                if found is None:
                    search.unfinished = True
                    break
                served += found
                started += not found
        self._reserved.served = served
        if not search.unfinished:
            self._offered = offered

    def _offer_now(self, decisions: list[Decision]) -> bool:
        """Start the jobs with reservations that can start now, in order. False if the budget ran out."""
        search, state = self._search, (self._search.now, self._search.failed.releases)
        after = self._offered_to if state == self._offered_in else None
        while True:
            for position in self._startable(after):
                if search.budget_left() == 0:
                    search.unfinished = True
                    self._offered_in, self._offered_to = (search.now, search.failed.releases), after
                    return False
                after = position
                jobid = position[2]
                early = self._compression.start_early(self.pending[jobid], self.planned[jobid])
                if early is not None:
                    self._start(jobid, early, decisions)
                    # The resources of its reservation are free again, for any shape.
                    break
            else:
                return True

    def _startable(self, after: Position | None) -> Iterator[Position]:
        """The positions after `after` of the jobs with reservations that may start now by the profile.

        Served jobs without a reservation ask for vertices that are down.
        """
        search, by_id, kept, first = self._search, self.pending, self.planned, self._reserved.served
        if not first:
            return iter(())
        now, last = search.now, self.waiting.order[first - 1]
        if first < _FEW_RESERVATIONS:
            return (
                position
                for position in self.waiting.order.first(first)
                if position[2] in kept and (after is None or position > after)
            )
        since = min(self._reserved.checked.values())
        found = []
        for positions in self.waiting.by_shape.values():
            begin = 0 if after is None else positions.count_through(after)
            if begin == len(positions) or positions[begin] > last:
                continue
            longest = search.longest_now(by_id[positions[begin][2]], since)
            if longest:
                found.append(
                    [
                        position
                        for position in positions.between(begin, last)
                        if position[2] in kept
                        and (by_id[position[2]].length <= longest or kept[position[2]].start <= now + longest)
                    ]
                )
        return merge(*found)

    def _plan(self, jobid: int, now: int, budget: int | None, decisions: list[Decision]) -> int | None:
        """Start or refuse a job (0), or make its reservation if it has a start (1).

        None: the rest is left to the next call, because the budget was used up or too many reservations are out of
        order.
        """
        job, search = self.pending[jobid], self._search
        found = search.earliest(job, search.ranges(job), budget)
        known = found.selection is not None or found.exhausted
        search.failed.add(job.shape, job.length, found.start if known else FOR_EVER)
        if found.selection is not None and found.start > now and self._reserved.reaches(job.position):
            # Reservations of jobs that come after this job in the queue may be what delays this job.
            self._note_disorder(job.position)
            if now >= self._reorder_from:
                return self._plan(jobid, now, budget, decisions) if self._restore_order(now) else None
        if found.selection is not None:
            allocation = self.scheduler.enter(jobid, found.selection, found.start, found.end, found.start > now)
            if found.start == now:
                self._start(jobid, allocation, decisions)
                return 0
            self._reserved.add(jobid, allocation)
        elif found.exhausted:
            return None
        elif self._refuse_impossible(jobid, decisions):
            return 0
        search.failed_now(job)
        return 1

    def _refuse_new(self, decisions: list[Decision]) -> None:
        """Refuse new jobs that an idle graph could not run, whatever their position."""
        new, self._new = self._new[:MAX_STARTS], self._new[MAX_STARTS:]
        for jobid in new:
            if jobid in self.pending:
                self._refuse_impossible(jobid, decisions)
        if self._new:
            self._search.unfinished = True

    def _refuse_impossible(self, jobid: int, decisions: list[Decision]) -> bool:
        job = self.pending[jobid]
        if job.request.duration <= self._possible.get(job.shape, -1):
            return False
        outcome = self.scheduler.satisfiable(job.request)
        if outcome.unsatisfiable:
            self._remove(jobid)
            decisions.append(Refused(jobid, outcome.failure))
        else:
            self._possible[job.shape] = job.request.duration
        return outcome.unsatisfiable

    def _backfill(self, now: int, decisions: list[Decision]) -> None:
        """Start jobs without reservations in order, shape by shape, leaving out shapes that do not fit now."""
        unfit_from, pending, planned, never = self._search.unfit_from, self.pending, self.planned, FOR_EVER + 1
        shortest = {shape: lengths[0] for shape, lengths in self.waiting.lengths.items()}
        lists = {
            shape: list(positions)
            for shape, positions in self.waiting.by_shape.items()
            if shortest[shape] < unfit_from.get(shape, never)
        }
        heap = [(positions[0], 0, shape) for shape, positions in lists.items()]
        heapify(heap)
        looked_at = started = 0
        while heap and looked_at < self.depth:
            (_, _, jobid), i, shape = heap[0]
            looked_at += 1
            job = pending.get(jobid)
            if job is not None and job.length < unfit_from.get(shape, never) and jobid not in planned:
                started += self._try(jobid, now, decisions)
                if started == MAX_STARTS:
                    self._search.unfinished = True
                    break
            positions = lists[shape]
            if i + 1 < len(positions) and shortest[shape] < unfit_from.get(shape, never):
                heapreplace(heap, (positions[i + 1], i + 1, shape))
            else:
                heappop(heap)
