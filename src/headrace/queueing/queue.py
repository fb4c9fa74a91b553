"""A queue of pending jobs in front of a graph's scheduler.

`schedule` starts what can start and promises starts to those the policy names; a promise is a reservation in the graph,
so whoever is matched later cannot delay it. Most waiting jobs are alike: once a shape of request does not fit now, no
other job of that shape is tried, whatever the number of jobs.

Nothing is planned anew: what becomes free is offered to the promised jobs in order, each of which may only move
forward. A call that would take too long leaves the rest to the next one, and says so (`unfinished`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from headrace.graph.matcher import Failure
from headrace.graph.request import JobRequest
from headrace.graph.scheduler import Found, Scheduler, Starts
from headrace.graph.usage import Allocation
from headrace.queueing.gaps import Ask, Gaps
from headrace.queueing.line import Entry, Line, Place
from headrace.queueing.misses import ANYWHERE, FOR_EVER, Misses, Ranges, common
from headrace.queueing.policies import QueuePolicy, by_name

# How long a job that has outlived its end is assumed to go on holding its resources, in seconds.
OVERRUN = 30
# How many questions to the graph one call may ask to make or improve promises; with what follows from the answer, one
# takes .2 to .4 ms when many promises have been made.
EFFORT = 32
# How many jobs one call starts in order, before it leaves the rest to the next; a start takes about .04 ms.
STARTS = 64
# How many steps of the plan of gaps take as long as a question to the graph.
_STEPS = 512


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
        self.effort = effort
        self.unfinished = False
        self.line = Line()
        self.pending = self.line.entries
        self.running: set[int] = set()
        self.planned: dict[int, Allocation] = {}
        # No running job ends before.
        self._first_end = 0
        # Jobs known to be possible, with the generation of the graph they are possible in.
        self._possible: dict[int, int] = {}
        self._generation = scheduler.generation
        self._changed = False
        self._now = 0
        self._spent = 0
        # Promised starts in order; those that the caller was told, and the jobs whose promises changed since.
        self._starts: list[tuple[int, int]] = []
        self._told: dict[int, int] = {}
        self._news: set[int] = set()
        # Shapes that do not fit at `_now`, from what length on, and promised jobs that were tried for themselves.
        self._dead: dict[str, int] = {}
        self._tried: set[int] = set()
        # From what length on a shape finds no gap at `_now` in what became free after so many gifts.
        self._barred: dict[tuple[str, int], int] = {}
        self._misses = Misses()
        # Where there may be room, of policies that promise many jobs a start; and what each shape asks of it.
        self._gaps = self._new_gaps() if self.policy.reservations != 0 else None
        self._asks: dict[str, Ask | None] = {}
        # Jobs may hold something else than was entered.
        self._resized = False
        # The places of promised jobs; up to which gift each promise is known to be the earliest; and the place that the
        # last improving came to.
        self._promised: list[Place] = []
        self._checked: dict[int, int] = {}
        self._reached: tuple[int, ...] = ()
        # Up to which gift promised jobs were offered a start at once.
        self._offered = 0
        # So many of the first jobs are all promised.
        self._served = 0

    # What happens to jobs

    def submit(self, jobid: int, request: JobRequest, priority: int = 16) -> None:
        """Add a pending job. Raises ValueError for an id that is in use."""
        if jobid in self.pending or jobid in self.running:
            raise ValueError(f"job {jobid}: already in the queue")
        self._served = min(self._served, self.line.add(jobid, request, priority))
        self._changed = True

    def reprioritize(self, jobid: int, priority: int) -> None:
        """Change a pending job's priority. Raises KeyError."""
        place = self.pending[jobid].place
        self._served = min(self._served, *self.line.move(jobid, priority))
        self._changed = True
        if jobid in self.planned:
            del self._promised[bisect_left(self._promised, place)]
            insort(self._promised, self.pending[jobid].place)

    def cancel(self, jobid: int) -> None:
        """Forget a pending job. Raises KeyError."""
        if jobid not in self.pending:
            raise KeyError(jobid)
        if jobid in self.planned:
            self._drop(jobid)
        self._remove(jobid)
        self._told.pop(jobid, None)
        self._changed = True

    def finish(self, jobid: int) -> None:
        """A running job has ended: its resources are free. Raises KeyError."""
        self.running.remove(jobid)
        end = self.scheduler.jobs[jobid].end
        self.scheduler.cancel(jobid)
        places = self._gaps.remove(jobid) if self._gaps is not None else ANYWHERE
        self._gave(self._now, end, places)

    def touch(self) -> None:
        """The graph changed in a way this queue did not cause: another queue's job ended, a node came up."""
        self._resized = True
        self._gave(self._now, FOR_EVER, ANYWHERE)

    def drop_plans(self, before: int = FOR_EVER) -> None:
        """Take back the promises of starts before a moment; the next `schedule` makes them anew."""
        while self._starts and self._starts[0][0] < before:
            self._drop(self._starts[0][1])

    def first(self, count: int) -> list[int]:
        """The first `count` waiting jobs, in order."""
        return [jobid for _, _, jobid in self.line.order[:count]]

    def alike(self, count: int) -> list[int]:
        """The first waiting jobs, `count` at most, as long as they ask for the same as the first."""
        return self.line.alike(count)

    def hold(self, jobid: int, allocation: Allocation) -> None:
        """A job runs that was started elsewhere."""
        self.running.add(jobid)
        self._first_end = min(self._first_end, allocation.end)
        if self._gaps is not None:
            self._gaps.put(jobid, allocation)

    def next_start(self) -> int | None:
        """The earliest promised start: when `schedule` must be called next even if nothing happens."""
        return self._starts[0][0] if self._starts else None

    def _remove(self, jobid: int) -> None:
        shape = self.pending[jobid].shape
        self._possible.pop(jobid, None)
        self._served -= self.line.remove(jobid) < self._served
        if shape not in self.line.shapes:
            self._asks.pop(shape, None)

    def _gave(self, start: int, end: int, places: int) -> None:
        """Something became free during [start, end), in a set of places."""
        self._misses.freed(start, end, places)
        self._forget_now()
        self._reached = ()
        self._changed = True

    def _forget_now(self) -> None:
        self._dead.clear()
        self._tried.clear()
        self._barred.clear()

    # Promises

    def _promise(self, jobid: int, allocation: Allocation) -> None:
        self.planned[jobid] = allocation
        insort(self._starts, (allocation.start, jobid))
        insort(self._promised, self.pending[jobid].place)
        self._checked[jobid] = self._misses.count
        self._news.add(jobid)
        if self._gaps is not None:
            self._gaps.put(jobid, allocation)

    def _drop(self, jobid: int) -> Allocation:
        """Take a promise back: what it reserved is free."""
        allocation, places = self._take_out(jobid)
        self._gave(allocation.start, allocation.end, places)
        return allocation

    def _take_out(self, jobid: int) -> tuple[Allocation, int]:
        allocation = self.planned.pop(jobid)
        place = self.pending[jobid].place
        self._served = min(self._served, self.line.before(place))
        del self._promised[bisect_left(self._promised, place)]
        del self._starts[bisect_left(self._starts, (allocation.start, jobid))]
        del self._checked[jobid]
        self.scheduler.cancel(jobid)
        return allocation, self._gaps.remove(jobid) if self._gaps is not None else ANYWHERE

    # Scheduling

    def schedule(self, now: int) -> list[Decision]:
        """Start and promise what the policy says, as things stand at `now`."""
        if now != self._now:
            self._now = now
            self._forget_now()
            if self._gaps is not None:
                self._gaps.settle(now)
        if self._resized:
            self._resize()
        self._hold_overrun(now)
        if self._generation != self.scheduler.generation:
            self._drop_lost()
        due = bool(self._starts) and self._starts[0][0] <= now
        if not (self._changed or due or self.unfinished):
            return []
        decisions: list[Decision] = []
        self._spent = 0
        if self._gaps is not None:
            self._gaps.work = 0
        self.unfinished = False
        self._start_due(now, decisions)
        if not self.policy.keeps:
            self._demote()
        self._serve_first(now, decisions)
        # Nobody goes ahead of jobs that have not had their turn.
        if self.policy.backfill and self.policy.reservations is not None and not self.unfinished:
            self._backfill(now, decisions)
        if not self.unfinished:
            self._improve(now, decisions)
        for jobid in self._news:
            kept = self.planned.get(jobid)
            if kept is not None and self._told.get(jobid) != kept.start:
                self._told[jobid] = kept.start
                decisions.append(Planned(jobid, kept.start))
        self._news.clear()
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
        while self._starts and self._starts[0][0] < now + OVERRUN:
            self._drop(self._starts[0][1])
        for jobid in late:
            held = self.scheduler.jobs[jobid]
            self.scheduler.cancel(jobid)
            longer = self.scheduler.add(jobid, held.selection, held.start, now + OVERRUN, False)
            if self._gaps is not None:
                self._gaps.put(jobid, longer)

    def _resize(self) -> None:
        """Somebody else may have changed what running jobs hold."""
        self._resized = False
        if self._gaps is not None:
            for jobid in self._gaps.changed(self.scheduler.jobs):
                self._gaps.remove(jobid)
                if jobid in self.scheduler.jobs:
                    self._gaps.put(jobid, self.scheduler.jobs[jobid])

    def _new_gaps(self) -> Gaps:
        """Gaps between the jobs of this queue."""
        gaps = Gaps(self.scheduler.graph, self.scheduler.policy.whole)
        for jobid in self.running & self.scheduler.jobs.keys() | self.planned.keys():
            gaps.put(jobid, self.scheduler.jobs[jobid])
        return gaps

    def _drop_lost(self) -> None:
        """The graph has changed: promises of what is down cannot be kept."""
        self._generation = self.scheduler.generation
        self._misses.forget()
        self._asks.clear()
        if self._gaps is not None and self._gaps.outgrown():
            self._gaps = self._new_gaps()
        self._served = 0
        up = self.scheduler.graph.up
        for jobid, allocation in list(self.planned.items()):
            if not all(up[v] for v in allocation.selection.marks):
                self._drop(jobid)
        self._changed = True

    def _demote(self) -> None:
        """Others have come ahead of promised jobs: only the first may have a promise."""
        limit = self.policy.reservations
        while limit is not None and self._promised and self.line.before(self._promised[-1]) >= limit:
            self._drop(self._promised[-1][2])

    def _start_due(self, now: int, decisions: list[Decision]) -> None:
        due = [jobid for start, jobid in self._starts[: bisect_left(self._starts, (now + 1,))]]
        for jobid in sorted(due, key=lambda j: self.pending[j].place):
            allocation, places = self._take_out(jobid)
            if allocation.start == now:
                held = self.scheduler.add(jobid, allocation.selection, now, allocation.end, False)
                self._start(jobid, held, decisions)
            else:
                # Called too late for the promise as it was made: `_serve_first` finds the job a start like any other.
                self._gave(now, allocation.end, places)

    def _start(self, jobid: int, allocation: Allocation, decisions: list[Decision]) -> None:
        self._remove(jobid)
        self._told.pop(jobid, None)
        self.running.add(jobid)
        if self._gaps is not None:
            self._gaps.put(jobid, allocation)
        self._first_end = min(self._first_end, allocation.end)
        decisions.append(Started(jobid, allocation))

    def _fails_now(self, entry: Entry) -> bool:
        return entry.length >= self._dead.get(entry.shape, FOR_EVER + 1)

    def _failed_now(self, entry: Entry, now: int) -> None:
        """Remember that a job does not fit now; of a shape's first, whether any of that shape could."""
        known = self._dead.get(entry.shape)
        length = self.scheduler.alike(now, now + entry.length) - now
        if known is None and length > 1 and not self._fits_a_moment(entry, now):
            length = 1
        if known is None or length < known:
            self._dead[entry.shape] = length
            self._misses.missed(entry.shape, length, now + 1)

    def _fits_a_moment(self, entry: Entry, now: int) -> bool:
        if not self._may_fit(entry._replace(length=1), now):
            return False
        return self.scheduler.match_at(entry.request.lasting(1), now)[0] is not None

    def _try(self, jobid: int, now: int, decisions: list[Decision]) -> bool:
        """Start a job now if it fits."""
        entry = self.pending[jobid]
        if self._fails_now(entry):
            return False
        if not self._may_fit(entry, now):
            self._failed_now(entry, now)
            return False
        outcome = self.scheduler.allocate(jobid, entry.request, now, explain=False)
        if outcome.allocation is None:
            self._failed_now(entry, now)
            return False
        self._start(jobid, outcome.allocation, decisions)
        return True

    def _serve_first(self, now: int, decisions: list[Decision]) -> None:
        """Jobs in order, until as many wait as the policy makes promises to."""
        limit = self.policy.reservations
        offered = self._misses.count
        offers = offered != self._offered
        order, planned = self.line.order, self.planned
        waiting = 0 if offers or limit is not None else self._served
        begun = 0
        while waiting < len(order):
            jobid = order[waiting][2]
            kept = planned.get(jobid)
            if kept is not None:
                if not (offers and self._start_early(self.pending[jobid], kept, now, decisions)):
                    waiting += 1
            elif begun == STARTS:
                self.unfinished = True
                break
            elif limit is not None and waiting >= limit:
                if self._try(jobid, now, decisions):
                    begun += 1
                    continue
                if self.policy.backfill or not self._refuse_hopeless(jobid, decisions):
                    break
            else:
                left = self._left()
                if left == 0 and limit is None and waiting:
                    self.unfinished = True
                    break
                found = self._plan(jobid, now, None if limit is not None or not waiting else left, decisions)
                if found is None:
                    self.unfinished = True
                    break
                waiting += found
                begun += not found
        self._served = waiting
        if not self.unfinished:
            self._offered = offered

    def _left(self) -> int | None:
        """How much of this call's effort is left; None for no bound."""
        if self.effort is None:
            return None
        steps = self._gaps.work if self._gaps is not None else 0
        return max(self.effort - self._spent - steps // _STEPS, 0)

    def _plan(self, jobid: int, now: int, effort: int | None, decisions: list[Decision]) -> int | None:
        """Start a job or promise it a start. 1 if it goes on waiting, 0 if it does not, None if the effort is spent."""
        entry = self.pending[jobid]
        ranges = self._misses.ranges(entry.shape, entry.length, now)
        found = self._search(entry, now, ranges, effort)
        known = found.selection is not None or found.spent
        self._misses.missed(entry.shape, entry.length, found.start if known else FOR_EVER)
        if found.selection is not None:
            allocation = self.scheduler.enter(jobid, found.selection, found.start, found.end, found.start > now)
            if found.start == now:
                self._start(jobid, allocation, decisions)
                return 0
            self._promise(jobid, allocation)
        elif found.spent:
            return None
        elif self._refuse_hopeless(jobid, decisions):
            return 0
        self._failed_now(entry, now)
        return 1

    def _search(
        self,
        entry: Entry,
        now: int,
        ranges: Ranges,
        effort: int | None,
        kept: Allocation | None = None,
        counts: bool = True,
    ) -> Found:
        """The earliest start in `ranges`, of those that gaps leave; before the start of a promise, if there is one."""
        gaps, ask = self._gaps, self._ask(entry, now, kept)
        if gaps is None or ask is None:
            starts = [Starts(begin, end) for begin, end in ranges]
            found = self.scheduler.search(entry.request, now, starts, effort, counts)
            self._spent += found.tried
            return found
        most = FOR_EVER if effort is None else gaps.work + max(effort, 1) * _STEPS
        reached: list[int] = []

        def open_ranges() -> Iterator[Starts]:
            for starts in gaps.openings(ask, entry.length, ranges, most):
                if starts.begin == starts.end:
                    reached.append(starts.begin)
                yield starts

        found = self.scheduler.search(entry.request, now, open_ranges(), effort, counts)
        self._spent += found.tried
        if reached and found.selection is None and not found.spent:
            return found._replace(start=reached[0], spent=True)
        return found

    def _ask(self, entry: Entry, now: int, kept: Allocation | None = None) -> Ask | None:
        """What the job needs; to come before its promise, of what became free since that was known to be the earliest.

        None if gaps do not tell.
        """
        if self._gaps is None:
            return None
        if entry.shape not in self._asks:
            allowed = self.scheduler.matcher(entry.request, now).allowed
            self._asks[entry.shape] = self._gaps.ask(entry.request.resources, allowed)
        ask = self._asks[entry.shape]
        if ask is None or kept is None:
            return ask
        of = self._misses.places(self._checked[kept.jobid])
        return Ask(ask.parts, ask.among, ask.wanted, of, self._gaps.places(kept.jobid), kept.start)

    def _may_fit(self, entry: Entry, now: int, kept: Allocation | None = None) -> bool:
        """False if there is no gap for the job now."""
        gaps, ask = self._gaps, self._ask(entry, now, kept)
        return gaps is None or ask is None or gaps.open_now(ask, now, now + entry.length)

    def _refuse_hopeless(self, jobid: int, decisions: list[Decision]) -> bool:
        entry = self.pending[jobid]
        if self._possible.get(jobid) == self.scheduler.generation:
            return False
        outcome = self.scheduler.satisfiable(entry.request)
        if outcome.unsatisfiable:
            self._remove(jobid)
            decisions.append(Refused(jobid, outcome.failure))
        else:
            self._possible[jobid] = self.scheduler.generation
        return outcome.unsatisfiable

    def _backfill(self, now: int, decisions: list[Decision]) -> None:
        """Others in order, shape by shape, leaving out shapes that do not fit."""
        dead = self._dead
        shortest = {shape: lengths[0] for shape, lengths in self.line.lengths.items()}
        lists = {
            shape: list(places)
            for shape, places in self.line.shapes.items()
            if shortest[shape] < dead.get(shape, FOR_EVER + 1)
        }
        heap = [(places[0], 0, shape) for shape, places in lists.items()]
        heapify(heap)
        looked_at = 0
        while heap and looked_at < self.depth:
            (_, _, jobid), i, shape = heap[0]
            looked_at += 1
            if jobid in self.pending and jobid not in self.planned:
                self._try(jobid, now, decisions)
            places = lists[shape]
            if i + 1 < len(places) and shortest[shape] < dead.get(shape, FOR_EVER + 1):
                heapreplace(heap, (places[i + 1], i + 1, shape))
            else:
                heappop(heap)

    # Promises that may be bettered

    def _start_early(self, entry: Entry, kept: Allocation, now: int, decisions: list[Decision]) -> bool:
        """Start a promised job now if others' early ends allow it."""
        known = self._dead.get(entry.shape, FOR_EVER + 1)
        # Others of its shape have failed, and its own promise does not lie in what they failed to get.
        if entry.length >= known and kept.start >= now + known:
            return False
        jobid = kept.jobid
        since = self._checked[jobid]
        if jobid in self._tried or since == self._misses.count:
            return False
        if self._left() == 0:
            self.unfinished = True
            return False
        self._tried.add(jobid)
        # Until its promise begins, it needs what others of its shape need; and something that was not free before.
        part = entry if kept.start >= now + entry.length else entry._replace(length=kept.start - now)
        barred = self._barred.get((entry.shape, since), FOR_EVER + 1)
        if part.length >= barred:
            return False
        if not self._may_fit(part, now, kept):
            if barred > FOR_EVER and not self._may_fit(entry._replace(length=1), now, kept):
                part = entry._replace(length=1)
            self._barred[entry.shape, since] = part.length
            return False
        self._spent += 1
        request = entry.request if part is entry else entry.request.lasting(part.length)
        selection, matcher = self.scheduler.match_at(request, now)
        if selection is None:
            self._failed_now(part, now)
            return False
        if part is not entry:
            self._spent += 1
            self.scheduler.lift(jobid)
            selection, matcher = self.scheduler.match_at(entry.request, now)
            self.scheduler.restore()
            if selection is None:
                self._failed_now(entry, now)
                return False
        self._drop(jobid)
        self._start(jobid, self.scheduler.enter(jobid, selection, now, matcher.end, False), decisions)
        return True

    def _improve(self, now: int, decisions: list[Decision]) -> None:
        """Move promises forward into what has become free, in order, as far as the effort goes.

        What was `checked` could not start before its promise then, now included: later looks rely on it.
        """
        misses, promised, checked = self._misses, self._promised, self._checked
        at = bisect_right(promised, self._reached)
        looked_at = 0
        while at < len(promised) and looked_at < self.depth:
            jobid = promised[at][2]
            at += 1
            if checked[jobid] == misses.count:
                continue
            if self._left() == 0:
                at -= 1
                break
            kept = self.planned[jobid]
            looked_at += 1
            entry = self.pending[jobid]
            ranges = misses.openings(entry.length, checked[jobid], now, kept.start)
            if ranges and not self._could_move(entry, kept, ranges, now):
                checked[jobid] = misses.count
                continue
            if ranges and kept.start >= ranges[-1][1] + entry.length:
                # Its own promise is not in its way, so what holds for its shape holds for it.
                ranges = common(ranges, misses.ranges(entry.shape, entry.length, now))
            if not ranges or self._move(jobid, kept, ranges, now, decisions):
                if jobid in checked:
                    checked[jobid] = misses.count
                else:
                    at -= 1
            elif looked_at > 1:
                # It may have the whole of the next call's effort.
                at -= 1
                break
        self._reached = promised[at - 1] if at else ()
        self.unfinished = self.unfinished or at < len(promised)

    def _move(self, jobid: int, kept: Allocation, ranges: Ranges, now: int, decisions: list[Decision]) -> bool:
        """Give a promised job the first start in `ranges` at which it fits. False if the effort ended before that."""
        entry = self.pending[jobid]
        self.scheduler.lift(jobid)
        found = self._search(entry, now, ranges, self._left(), kept, counts=False)
        self.scheduler.restore()
        if found.selection is None:
            if found.spent:
                return False
            self._misses.missed(entry.shape, entry.length, kept.start)
            return True
        self._misses.missed(entry.shape, entry.length, found.start)
        self._drop(jobid)
        allocation = self.scheduler.enter(jobid, found.selection, found.start, found.end, found.start > now)
        if found.start > now:
            self._promise(jobid, allocation)
        else:
            self._start(jobid, allocation, decisions)
        return True

    def _could_move(self, entry: Entry, kept: Allocation, ranges: Ranges, now: int) -> bool:
        """False if there is no gap for the job at any of these times."""
        gaps, ask = self._gaps, self._ask(entry, now, kept)
        if gaps is None or ask is None:
            return True
        most = gaps.work + 8 * _STEPS
        return next(gaps.openings(ask, entry.length, ranges, most), None) is not None
