"""The starts that waiting jobs were promised: reservations in the graph, in order of time and of place in line."""

from __future__ import annotations

from bisect import bisect_left, insort

from headrace.graph.usage import Allocation
from headrace.queueing.failed_searches import FOR_EVER
from headrace.queueing.pending import PendingJobs, Place
from headrace.queueing.start_search import StartSearch


class ReservedStarts:
    """Promised jobs of a line. `kept` has what each was promised; `places` their places in line, sorted.

    `checked` says up to which gift (see `FailedSearches`) each promise is known to be the earliest. `first` is how many
    of the first jobs in line have had their turn: each is promised, or has no start while the graph is as it is.
    """

    def __init__(self, line: PendingJobs, outlook: StartSearch) -> None:
        self._line = line
        self._outlook = outlook
        self.kept: dict[int, Allocation] = {}
        self.places: list[Place] = []
        self.checked: dict[int, int] = {}
        self.first = 0
        self._starts: list[tuple[int, int]] = []
        # What the caller was told, and the jobs whose promises changed since.
        self._told: dict[int, int] = {}
        self._news: set[int] = set()

    def make(self, jobid: int, allocation: Allocation) -> None:
        """Promise a waiting job what was reserved for it."""
        self.kept[jobid] = allocation
        insort(self._starts, (allocation.start, jobid))
        insort(self.places, self._line.entries[jobid].place)
        self.checked[jobid] = self._outlook.misses.count
        self._news.add(jobid)
        self._outlook.put(jobid, allocation)

    def drop(self, jobid: int) -> None:
        """Take a promise back: what it reserved is free, and the job waits without one."""
        self.release(jobid)
        self.count_anew(jobid)

    def release(self, jobid: int) -> None:
        """As `drop`, where the job starts, or is promised something else, at once."""
        allocation, places = self.take_out(jobid)
        self._outlook.gave(allocation.start, allocation.end, places)

    def count_anew(self, jobid: int) -> None:
        """A job waits without a promise."""
        self.first = min(self.first, self._line.before(self._line.entries[jobid].place))

    def drop_before(self, moment: int) -> None:
        """Take back the promises of starts before a moment."""
        while self._starts and self._starts[0][0] < moment:
            self.drop(self._starts[0][1])

    def take_out(self, jobid: int) -> tuple[Allocation, int]:
        """End a promise and its reservation; returns what it was, and its places. Nobody is told that it is free."""
        allocation = self.kept.pop(jobid)
        place = self._line.entries[jobid].place
        del self.places[bisect_left(self.places, place)]
        del self._starts[bisect_left(self._starts, (allocation.start, jobid))]
        del self.checked[jobid]
        self._outlook.scheduler.cancel(jobid)
        return allocation, self._outlook.remove(jobid)

    def moved(self, jobid: int, was: Place) -> None:
        """A job has another place in line."""
        if jobid in self.kept:
            del self.places[bisect_left(self.places, was)]
            insort(self.places, self._line.entries[jobid].place)

    def forget(self, jobid: int) -> None:
        """A job waits no more, and had no promise left."""
        self._told.pop(jobid, None)

    def next_start(self) -> int | None:
        """The earliest promised start."""
        return self._starts[0][0] if self._starts else None

    def due(self, now: int) -> list[int]:
        """The jobs whose start has come, in line."""
        jobs = [jobid for _, jobid in self._starts[: bisect_left(self._starts, (now + 1,))]]
        return sorted(jobs, key=lambda jobid: self._line.entries[jobid].place)

    def news(self) -> list[tuple[int, int]]:
        """The jobs whose promised start is another than the caller was told, with it."""
        found = []
        for jobid in self._news:
            kept = self.kept.get(jobid)
            if kept is not None and self._told.get(jobid, FOR_EVER) != kept.start:
                self._told[jobid] = kept.start
                found.append((jobid, kept.start))
        self._news.clear()
        return found
