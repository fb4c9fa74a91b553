"""The reservations of pending jobs, by start and by position in the queue."""

from __future__ import annotations

from bisect import bisect_left, insort

from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.failed_searches import FOR_EVER
from headrace.sched.queueing.pending import PendingJobs, Position
from headrace.sched.queueing.start_search import StartSearch


class ReservedStarts:
    """The pending jobs with reservations.

    `allocations` has the reservation of each, `positions` their positions. `checked` has, for each, the count of
    releases (see `FailedSearches`) after which its start was last known to be the earliest possible. `served` is how
    many jobs at the front of the queue have been planned: each of them has a reservation, or can have none as long as
    the graph stays the same.
    """

    def __init__(self, pending: PendingJobs, search: StartSearch) -> None:
        self._pending = pending
        self._search = search
        self.allocations: dict[int, Allocation] = {}
        self.positions: list[Position] = []
        self.checked: dict[int, int] = {}
        self.served = 0
        self._starts: list[tuple[int, int]] = []
        # The start that was last reported to the caller, and the jobs whose start may have changed since.
        self._reported: dict[int, int] = {}
        self._changed: set[int] = set()

    def add(self, jobid: int, allocation: Allocation) -> None:
        """Enter the reservation of a pending job."""
        self.allocations[jobid] = allocation
        insort(self._starts, (allocation.start, jobid))
        insort(self.positions, self._pending.by_id[jobid].position)
        self.checked[jobid] = self._search.failed.releases
        self._changed.add(jobid)
        self._search.add(jobid, allocation)

    def drop(self, jobid: int) -> None:
        """Cancel a job's reservation; the job will be planned again."""
        self.release(jobid)
        self.reopen(jobid)

    def release(self, jobid: int) -> None:
        """Cancel the reservation of a job that starts, or gets another reservation, at once."""
        allocation, holders = self.pop(jobid)
        self._search.released(allocation.start, allocation.end, holders)

    def reopen(self, jobid: int) -> None:
        """Have a job without a reservation planned again, and the jobs behind it."""
        self.served = min(self.served, self._pending.count_before(self._pending.by_id[jobid].position))

    def drop_before(self, moment: int) -> None:
        """Cancel the reservations that start before a moment (seconds)."""
        while self._starts and self._starts[0][0] < moment:
            self.drop(self._starts[0][1])

    @property
    def in_order(self) -> bool:
        """Whether no job that is still to be planned precedes a job with a reservation."""
        order = self._pending.order
        return self.served >= len(order) or not self.reaches(order[self.served])

    def reaches(self, position: Position) -> bool:
        """Whether a job at a position of the queue or behind it has a reservation."""
        return bool(self.positions) and self.positions[-1] >= position

    def drop_last(self, first: Position, most: int) -> bool:
        """Cancel reservations from position `first` on, last first, at most `most`. False if some remain."""
        while most and self.reaches(first):
            self.drop(self.positions[-1][2])
            most -= 1
        return not self.reaches(first)

    def pop(self, jobid: int) -> tuple[Allocation, int]:
        """Cancel a reservation without counting a release; returns the reservation and its holders."""
        allocation = self.allocations.pop(jobid)
        position = self._pending.by_id[jobid].position
        del self.positions[bisect_left(self.positions, position)]
        del self._starts[bisect_left(self._starts, (allocation.start, jobid))]
        del self.checked[jobid]
        self._search.scheduler.cancel(jobid)
        return allocation, self._search.remove(jobid)

    def reposition(self, jobid: int, was: Position) -> None:
        """Note that a job has moved in the queue from the position `was`."""
        if jobid in self.allocations:
            del self.positions[bisect_left(self.positions, was)]
            insort(self.positions, self._pending.by_id[jobid].position)

    def reposition_all(self) -> None:
        """Note that jobs have moved in the queue."""
        self.positions = sorted(self._pending.by_id[jobid].position for jobid in self.allocations)

    def forget(self, jobid: int) -> None:
        """Forget a job without a reservation that has left the queue."""
        self._reported.pop(jobid, None)

    def next_start(self) -> int | None:
        """The earliest reserved start (seconds), None without reservations."""
        return self._starts[0][0] if self._starts else None

    def due(self, now: int) -> list[int]:
        """The jobs whose reserved start has come, in the order of the queue."""
        jobs = [jobid for _, jobid in self._starts[: bisect_left(self._starts, (now + 1,))]]
        return sorted(jobs, key=lambda jobid: self._pending.by_id[jobid].position)

    def changed_starts(self) -> list[tuple[int, int]]:
        """The jobs whose reserved start differs from the one last reported, each with its start."""
        found = []
        for jobid in self._changed:
            kept = self.allocations.get(jobid)
            if kept is not None and self._reported.get(jobid, FOR_EVER) != kept.start:
                self._reported[jobid] = kept.start
                found.append((jobid, kept.start))
        self._changed.clear()
        return found
