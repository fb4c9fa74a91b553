"""Reservations that may be bettered: what has become free is offered to the promised jobs in order.

Nothing is planned anew: each job may only move forward, into something that was not free when its promise was last
looked at, so most are passed over at a glance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headrace.graph.scheduler import Scheduler
from headrace.graph.usage import Allocation
from headrace.queueing.failed_searches import FOR_EVER, Ranges, intersection
from headrace.queueing.pending import PendingJob, PendingJobs
from headrace.queueing.reserved_starts import ReservedStarts
from headrace.queueing.start_search import StartSearch


class Compression:
    """Moves the promises of a line forward."""

    def __init__(self, pending: PendingJobs, reserved: ReservedStarts, search: StartSearch) -> None:
        self._pending = pending
        self._reserved = reserved
        self._search = search
        self._scheduler: Scheduler = search.scheduler
        # The place that the last improving came to, and how much had been given back then.
        self._reached: tuple[float, ...] = ()
        self._releases = 0

    def start_early(self, job: PendingJob, kept: Allocation) -> Allocation | None:
        """Have a promised job start now if others' early ends allow it: what it holds then, or None."""
        search, scheduler, now = self._search, self._scheduler, self._search.now
        known = search.unfit_from.get(job.shape, FOR_EVER + 1)
        # Others of its shape have failed, and its own promise does not lie in what they failed to get.
        if job.length >= known and kept.start >= now + known:
            return None
        jobid = kept.jobid
        since = self._reserved.checked[jobid]
        if jobid in search.tried or since == search.failed.releases:
            return None
        if search.budget_left() == 0:
            search.unfinished = True
            return None
        search.tried.add(jobid)
        # Until its promise begins, it needs what others of its shape need; and something that was not free before.
        part = job if kept.start >= now + job.length else job._replace(length=kept.start - now)
        if not search.may_fit_early(part, kept, since):
            return None
        search.searches += 1
        request = job.request if part is job else job.request.lasting(part.length)
        selection, end, _ = scheduler.match_at(request, now)
        if selection is None:
            search.failed_now(part)
            return None
        if part is not job:
            search.searches += 1
            scheduler.lift(jobid)
            selection, end, _ = scheduler.match_at(job.request, now)
            scheduler.restore()
            if selection is None:
                search.failed_now(job)
                return None
        self._reserved.release(jobid)
        return scheduler.enter(jobid, selection, now, end, False)

    def compress(self, depth: int, start: Callable[[int, Allocation], None]) -> None:
        """Move promises forward into what has become free, in order, as far as the budget goes, `depth` at most.

        `start` takes those that start now. What was `checked` could not start before its promise then, now included:
        later looks rely on it.
        """
        failed, search, now = self._search.failed, self._search, self._search.now
        promised, checked = self._reserved.positions, self._reserved.checked
        if not promised:
            return
        if self._releases != failed.releases:
            self._reached = ()
        at = bisect_right(promised, self._reached)
        looked_at = 0
        while at < len(promised) and looked_at < depth:
            jobid = promised[at][2]
            at += 1
            if checked[jobid] == failed.releases:
                continue
            if search.budget_left() == 0:
                at -= 1
                break
            kept = self._reserved.allocations[jobid]
            job = self._pending.by_id[jobid]
            if search.cannot_move_forward(job, kept, checked[jobid]):
                checked[jobid] = failed.releases
                continue
            looked_at += 1
            ranges = failed.windows(job.length, checked[jobid], now, kept.start)
            if ranges and not search.may_move_forward(job, kept, checked[jobid], ranges):
                checked[jobid] = failed.releases
                continue
            if ranges and kept.start >= ranges[-1][1] + job.length:
                # Its own promise is not in its way, so what holds for its shape holds for it.
                ranges = intersection(ranges, search.ranges(job))
            if not ranges or self._move_forward(job, kept, ranges, start):
                if jobid in checked:
                    checked[jobid] = failed.releases
                else:
                    at -= 1
            elif looked_at > 1:
                # It may have the whole of the next call's budget.
                at -= 1
                break
        self._reached, self._releases = promised[at - 1] if at else (), failed.releases
        search.unfinished = search.unfinished or at < len(promised)

    def _move_forward(
        self, job: PendingJob, kept: Allocation, ranges: Ranges, start: Callable[[int, Allocation], None]
    ) -> bool:
        """Give a promised job the first start in `ranges` at which it fits. False if the budget ended before that."""
        search, scheduler, jobid = self._search, self._scheduler, kept.jobid
        scheduler.lift(jobid)
        found = search.earliest(job, ranges, search.budget_left(), kept, self._reserved.checked[jobid])
        scheduler.restore()
        if found.selection is None:
            if found.exhausted:
                return False
            search.failed.add(job.shape, job.length, kept.start)
            return True
        search.failed.add(job.shape, job.length, found.start)
        self._reserved.release(jobid)
        allocation = scheduler.enter(jobid, found.selection, found.start, found.end, found.start > search.now)
        if found.start > search.now:
            self._reserved.add(jobid, allocation)
        else:
            start(jobid, allocation)
        return True
