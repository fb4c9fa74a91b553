"""Compression of a schedule: reservations move forward when a job ends early.

Each reservation may only move forward, and only onto resources that were released since its start was last checked, so
most reservations are skipped without a search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headrace.sched.graph.scheduler import Scheduler
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.failed_searches import FOR_EVER, Ranges, intersection
from headrace.sched.queueing.pending import PendingJob, PendingJobs
from headrace.sched.queueing.reserved_starts import ReservedStarts
from headrace.sched.queueing.start_search import StartSearch


class Compression:
    """Moves the reservations of a queue forward."""

    def __init__(self, pending: PendingJobs, reserved: ReservedStarts, search: StartSearch) -> None:
        self._pending = pending
        self._reserved = reserved
        self._search = search
        self._scheduler: Scheduler = search.scheduler
        # The position up to which the last call compressed, and the count of releases at that time.
        self._reached: tuple[float, ...] = ()
        self._releases = 0

    def start_early(self, job: PendingJob, kept: Allocation) -> Allocation | None:
        """Start a job with a reservation now if released resources allow it; its allocation, or None."""
        search, scheduler, now = self._search, self._scheduler, self._search.now
        known = search.unfit_from.get(job.shape, FOR_EVER + 1)
        # Jobs of this shape have failed to start now, and the resources of this reservation would not change that.
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
        # Until its reservation begins, the job needs resources that are neither reserved for it nor checked before.
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
        """Move reservations forward in the order of the queue, as far as the budget allows.

        At most `depth` are moved. `start` is called for jobs that start now. A reservation is marked as `checked` only
        if no earlier start exists, `now` included: the next compression relies on it.
        """
        failed, search, now = self._search.failed, self._search, self._search.now
        reserved, checked = self._reserved.positions, self._reserved.checked
        if not reserved:
            return
        if self._releases != failed.releases:
            self._reached = ()
        at = bisect_right(reserved, self._reached)
        looked_at = 0
        while at < len(reserved) and looked_at < depth:
            jobid = reserved[at][2]
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
                # Its own reservation does not overlap these starts, so failed searches of its shape apply to it.
                ranges = intersection(ranges, search.ranges(job))
            if not ranges or self._move_forward(job, kept, ranges, start):
                if jobid in checked:
                    checked[jobid] = failed.releases
                else:
                    at -= 1
            elif looked_at > 1:
                # The job is the first of the next call, and may use the whole budget of that call.
                at -= 1
                break
        self._reached, self._releases = reserved[at - 1] if at else (), failed.releases
        search.unfinished = search.unfinished or at < len(reserved)

    def _move_forward(
        self, job: PendingJob, kept: Allocation, ranges: Ranges, start: Callable[[int, Allocation], None]
    ) -> bool:
        """Move a reservation to the first start in `ranges` where the job fits. False if the budget ran out."""
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
