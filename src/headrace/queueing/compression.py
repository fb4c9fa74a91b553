"""Reservations that may be bettered: what has become free is offered to the promised jobs in order.

Nothing is planned anew: each job may only move forward, into something that was not free when its promise was last
looked at, so most are passed over at a glance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headrace.graph.scheduler import Scheduler
from headrace.graph.usage import Allocation
from headrace.queueing.failed_searches import FOR_EVER, Ranges, common
from headrace.queueing.pending import PendingJob, PendingJobs
from headrace.queueing.reserved_starts import ReservedStarts
from headrace.queueing.start_search import StartSearch


class Compression:
    """Moves the promises of a line forward."""

    def __init__(self, line: PendingJobs, promises: ReservedStarts, outlook: StartSearch) -> None:
        self._line = line
        self._promises = promises
        self._outlook = outlook
        self._scheduler: Scheduler = outlook.scheduler
        # The place that the last improving came to, and how much had been given back then.
        self._reached: tuple[float, ...] = ()
        self._gifts = 0

    def start_early(self, entry: PendingJob, kept: Allocation) -> Allocation | None:
        """Have a promised job start now if others' early ends allow it: what it holds then, or None."""
        outlook, scheduler, now = self._outlook, self._scheduler, self._outlook.now
        known = outlook.dead.get(entry.shape, FOR_EVER + 1)
        # Others of its shape have failed, and its own promise does not lie in what they failed to get.
        if entry.length >= known and kept.start >= now + known:
            return None
        jobid = kept.jobid
        since = self._promises.checked[jobid]
        if jobid in outlook.tried or since == outlook.misses.count:
            return None
        if outlook.left() == 0:
            outlook.unfinished = True
            return None
        outlook.tried.add(jobid)
        # Until its promise begins, it needs what others of its shape need; and something that was not free before.
        part = entry if kept.start >= now + entry.length else entry._replace(length=kept.start - now)
        if not outlook.may_fit_early(part, kept, since):
            return None
        outlook.spent += 1
        request = entry.request if part is entry else entry.request.lasting(part.length)
        selection, end, _ = scheduler.match_at(request, now)
        if selection is None:
            outlook.failed_now(part)
            return None
        if part is not entry:
            outlook.spent += 1
            scheduler.lift(jobid)
            selection, end, _ = scheduler.match_at(entry.request, now)
            scheduler.restore()
            if selection is None:
                outlook.failed_now(entry)
                return None
        self._promises.release(jobid)
        return scheduler.enter(jobid, selection, now, end, False)

    def improve(self, depth: int, start: Callable[[int, Allocation], None]) -> None:
        """Move promises forward into what has become free, in order, as far as the effort goes, `depth` at most.

        `start` takes those that start now. What was `checked` could not start before its promise then, now included:
        later looks rely on it.
        """
        misses, outlook, now = self._outlook.misses, self._outlook, self._outlook.now
        promised, checked = self._promises.places, self._promises.checked
        if not promised:
            return
        if self._gifts != misses.count:
            self._reached = ()
        at = bisect_right(promised, self._reached)
        looked_at = 0
        while at < len(promised) and looked_at < depth:
            jobid = promised[at][2]
            at += 1
            if checked[jobid] == misses.count:
                continue
            if outlook.left() == 0:
                at -= 1
                break
            kept = self._promises.kept[jobid]
            entry = self._line.entries[jobid]
            if outlook.out_of_reach(entry, kept, checked[jobid]):
                checked[jobid] = misses.count
                continue
            looked_at += 1
            ranges = misses.openings(entry.length, checked[jobid], now, kept.start)
            if ranges and not outlook.may_move(entry, kept, checked[jobid], ranges):
                checked[jobid] = misses.count
                continue
            if ranges and kept.start >= ranges[-1][1] + entry.length:
                # Its own promise is not in its way, so what holds for its shape holds for it.
                ranges = common(ranges, outlook.ranges(entry))
            if not ranges or self._move(entry, kept, ranges, start):
                if jobid in checked:
                    checked[jobid] = misses.count
                else:
                    at -= 1
            elif looked_at > 1:
                # It may have the whole of the next call's effort.
                at -= 1
                break
        self._reached, self._gifts = promised[at - 1] if at else (), misses.count
        outlook.unfinished = outlook.unfinished or at < len(promised)

    def _move(
        self, entry: PendingJob, kept: Allocation, ranges: Ranges, start: Callable[[int, Allocation], None]
    ) -> bool:
        """Give a promised job the first start in `ranges` at which it fits. False if the effort ended before that."""
        outlook, scheduler, jobid = self._outlook, self._scheduler, kept.jobid
        scheduler.lift(jobid)
        found = outlook.search(entry, ranges, outlook.left(), kept, self._promises.checked[jobid])
        scheduler.restore()
        if found.selection is None:
            if found.spent:
                return False
            outlook.misses.missed(entry.shape, entry.length, kept.start)
            return True
        outlook.misses.missed(entry.shape, entry.length, found.start)
        self._promises.release(jobid)
        allocation = scheduler.enter(jobid, found.selection, found.start, found.end, found.start > outlook.now)
        if found.start > outlook.now:
            self._promises.make(jobid, allocation)
        else:
            start(jobid, allocation)
        return True
