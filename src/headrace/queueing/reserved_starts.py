"""The starts that waiting jobs were promised: reservations in the graph, in order of time and of position in line."""

from __future__ import annotations

from bisect import bisect_left, insort

from headrace.graph.usage import Allocation
from headrace.queueing.failed_searches import FOR_EVER
from headrace.queueing.pending import PendingJobs, Position
from headrace.queueing.start_search import StartSearch


class ReservedStarts:
    """Promised jobs of a line. `allocations` has what each was promised; `positions` their holders in line, sorted.

    `checked` says up to which release (see `FailedSearches`) each promise is known to be the earliest. `served` is how many
    of the first jobs in line have had their turn: each is promised, or has no start while the graph is as it is.
    """

    def __init__(self, pending: PendingJobs, search: StartSearch) -> None:
        self._pending = pending
        self._search = search
        self.allocations: dict[int, Allocation] = {}
        self.positions: list[Position] = []
        self.checked: dict[int, int] = {}
        self.served = 0
        self._starts: list[tuple[int, int]] = []
        # What the caller was told, and the jobs whose promises changed since.
        self._reported: dict[int, int] = {}
        self._changed: set[int] = set()

    def add(self, jobid: int, allocation: Allocation) -> None:
        """Promise a waiting job what was reserved for it."""
        self.allocations[jobid] = allocation
        insort(self._starts, (allocation.start, jobid))
        insort(self.positions, self._pending.by_id[jobid].position)
        self.checked[jobid] = self._search.failed.releases
        self._changed.add(jobid)
        self._search.add(jobid, allocation)

    def drop(self, jobid: int) -> None:
        """Take a promise back: what it reserved is free, and the job waits without one."""
        self.release(jobid)
        self.reopen(jobid)

    def release(self, jobid: int) -> None:
        """As `drop`, where the job starts, or is promised something else, at once."""
        allocation, holders = self.pop(jobid)
        self._search.released(allocation.start, allocation.end, holders)

    def reopen(self, jobid: int) -> None:
        """A job waits without a promise."""
        self.served = min(self.served, self._pending.count_before(self._pending.by_id[jobid].position))

    def drop_before(self, moment: int) -> None:
        """Take back the promises of starts before a moment."""
        while self._starts and self._starts[0][0] < moment:
            self.drop(self._starts[0][1])

    def pop(self, jobid: int) -> tuple[Allocation, int]:
        """End a promise and its reservation; returns what it was, and its holders. Nobody is told that it is free."""
        allocation = self.allocations.pop(jobid)
        position = self._pending.by_id[jobid].position
        del self.positions[bisect_left(self.positions, position)]
        del self._starts[bisect_left(self._starts, (allocation.start, jobid))]
        del self.checked[jobid]
        self._search.scheduler.cancel(jobid)
        return allocation, self._search.remove(jobid)

    def reposition(self, jobid: int, was: Position) -> None:
        """A job has another position in line."""
        if jobid in self.allocations:
            del self.positions[bisect_left(self.positions, was)]
            insort(self.positions, self._pending.by_id[jobid].position)

    def forget(self, jobid: int) -> None:
        """A job waits no more, and had no promise left."""
        self._reported.pop(jobid, None)

    def next_start(self) -> int | None:
        """The earliest promised start."""
        return self._starts[0][0] if self._starts else None

    def due(self, now: int) -> list[int]:
        """The jobs whose start has come, in line."""
        jobs = [jobid for _, jobid in self._starts[: bisect_left(self._starts, (now + 1,))]]
        return sorted(jobs, key=lambda jobid: self._pending.by_id[jobid].position)

    def changed_starts(self) -> list[tuple[int, int]]:
        """The jobs whose promised start is another than the caller was told, with it."""
        found = []
        for jobid in self._changed:
            kept = self.allocations.get(jobid)
            if kept is not None and self._reported.get(jobid, FOR_EVER) != kept.start:
                self._reported[jobid] = kept.start
                found.append((jobid, kept.start))
        self._changed.clear()
        return found
