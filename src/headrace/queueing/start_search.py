"""What is known of where and when waiting jobs may fit, and the questions to the graph that this spares.

Most questions are settled without the graph: gaps tell where there may be room, misses what was found not to fit
before some moment, and, while the present lasts, what does not fit now. What is learnt of a job holds for all of its
shape that run no shorter. Each call of a queue has an effort: how many questions, and looks at gaps, it may spend.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.graph.scheduler import Found, Scheduler, Starts
from headrace.graph.usage import Allocation
from headrace.queueing.availability import Ask, AvailabilityProfile
from headrace.queueing.failed_searches import ANYWHERE, FOR_EVER, FailedSearches, Ranges
from headrace.queueing.pending import PendingJob

# How many steps of the plan of gaps take as long as a question to the graph.
_STEPS = 512
# How many jobs of a shape ask before what they have in common is worked out, which takes as long as a few answers.
_WORTH_A_REACH = 8


class StartSearch:
    """What a queue knows of a scheduler's future. Without `gaps` it knows only what did not fit.

    `effort` bounds how many questions one call asks for promises, None for no bound.
    """

    def __init__(self, scheduler: Scheduler, gaps: bool, effort: int | None) -> None:
        self.scheduler = scheduler
        self.effort = effort
        self.misses = FailedSearches()
        self.now = 0
        # Questions asked by this call, and whether its effort did not do for all it was to look at.
        self.spent = 0
        self.unfinished = False
        # Promised jobs that were tried for themselves at `now`.
        self.tried: set[int] = set()
        # Shapes that do not fit at `now`, from what length on.
        self.dead: dict[str, int] = {}
        # From what length on a shape finds no gap at `now` in what became free after so many gifts.
        self._barred: dict[tuple[str, int], int] = {}
        # By shape and gifts, for how long at most a job could run from `now` in what those gifts left.
        self._longest: dict[tuple[str, int], int] = {}
        # By shape and gifts, how long at most, and until when, places stay free that became so after those gifts. It
        # holds until there is another gift, as promises only take.
        self._reach: dict[tuple[str, int], tuple[int, int]] = {}
        # How many jobs asked for one that is not there.
        self._asked_reach: dict[tuple[str, int], int] = {}
        # Where there may be room, and what each shape asks of it.
        self._gaps = AvailabilityProfile(scheduler.graph, scheduler.policy.whole) if gaps else None
        self._asks: dict[str, Ask | None] = {}

    # The present

    def arrive(self, now: int) -> None:
        """It is `now` (seconds): what did not fit a moment ago may."""
        if now != self.now:
            self.now = now
            self._forget_now()
            if self._gaps is not None:
                self._gaps.settle(now)

    def begin(self) -> None:
        """A call begins, with all of its effort."""
        self.spent = 0
        self.unfinished = False
        if self._gaps is not None:
            self._gaps.work = 0

    def left(self) -> int | None:
        """How much of this call's effort is left; None for no bound."""
        if self.effort is None:
            return None
        steps = self._gaps.work if self._gaps is not None else 0
        return max(self.effort - self.spent - steps // _STEPS, 0)

    def _forget_reach(self) -> None:
        self._reach.clear()
        self._asked_reach.clear()

    def _forget_now(self) -> None:
        self.dead.clear()
        self._barred.clear()
        self._longest.clear()
        self.tried.clear()

    # What happens

    def put(self, jobid: int, allocation: Allocation) -> None:
        """A job holds this, or is promised it."""
        if self._gaps is not None:
            self._gaps.put(jobid, allocation)

    def remove(self, jobid: int) -> int:
        """It does no longer. Returns the places it had, as far as they are known."""
        return self._gaps.remove(jobid) if self._gaps is not None else ANYWHERE

    def gave(self, start: int, end: int, places: int = ANYWHERE) -> None:
        """Something became free during [start, end), in a set of places."""
        self.misses.freed(start, end, places)
        self._forget_reach()
        self._forget_now()

    def compare(self) -> None:
        """Jobs may hold something else than was entered."""
        jobs = self.scheduler.jobs
        for jobid in self._gaps.changed(jobs) if self._gaps is not None else ():
            self.remove(jobid)
            if jobid in jobs:
                self.put(jobid, jobs[jobid])
        self._forget_reach()

    def redraw(self, jobs: set[int]) -> None:
        """The graph has changed, and `jobs` hold, or are promised, parts of it."""
        self.misses.forget()
        self._asks.clear()
        self._forget_reach()
        if self._gaps is not None and self._gaps.outgrown():
            self._gaps = AvailabilityProfile(self.scheduler.graph, self.scheduler.policy.whole)
            for jobid in jobs & self.scheduler.jobs.keys():
                self.put(jobid, self.scheduler.jobs[jobid])

    def forget(self, shape: str) -> None:
        """Nobody of a shape waits any more."""
        self._asks.pop(shape, None)

    # What fits now

    def failed_now(self, entry: PendingJob) -> None:
        """Remember that a job does not fit now; of a shape's first, whether any of that shape could."""
        now = self.now
        known = self.dead.get(entry.shape)
        length = self.scheduler.alike(now, now + entry.length) - now
        if known is None and length > 1 and not self._fits_a_moment(entry):
            length = 1
        if known is None or length < known:
            self.dead[entry.shape] = length
            self.misses.missed(entry.shape, length, now + 1)

    def _fits_a_moment(self, entry: PendingJob) -> bool:
        if not self.may_fit(entry._replace(length=1)):
            return False
        return self.scheduler.match_at(entry.request.lasting(1), self.now)[0] is not None

    def may_fit(self, entry: PendingJob, kept: Allocation | None = None, since: int = 0) -> bool:
        """False if there is no gap for the job now. `kept` and `since`: as for `search`."""
        gaps, ask = self._gaps, self._ask(entry, kept, since)
        return gaps is None or ask is None or gaps.open_now(ask, self.now, self.now + entry.length)

    def may_fit_early(self, entry: PendingJob, kept: Allocation, since: int) -> bool:
        """As `may_fit`, asked for many promised jobs of the same shape."""
        barred = self._barred.get((entry.shape, since), FOR_EVER + 1)
        if entry.length >= barred:
            return False
        if self.may_fit(entry, kept, since):
            return True
        length = entry.length
        if barred > FOR_EVER and not self.may_fit(entry._replace(length=1), kept, since):
            length = 1
        self._barred[entry.shape, since] = length
        return False

    # What fits later

    def ranges(self, entry: PendingJob) -> Ranges:
        """The starts from now on that are worth looking at for a job."""
        return self.misses.ranges(entry.shape, entry.length, self.now)

    def search(
        self,
        entry: PendingJob,
        ranges: Ranges,
        effort: int | None,
        kept: Allocation | None = None,
        since: int = 0,
    ) -> Found:
        """The earliest start in `ranges`, of those that gaps leave.

        To come before the promise `kept`, a job needs something that became free after `since` gifts; the promise
        itself must be lifted.
        """
        gaps, ask, counts = self._gaps, self._ask(entry, kept, since), kept is None
        if gaps is None or ask is None:
            starts = [Starts(begin, end) for begin, end in ranges]
            found = self.scheduler.search(entry.request, self.now, starts, effort, counts)
            self.spent += found.tried
            return found
        most = FOR_EVER if effort is None else gaps.work + max(effort, 1) * _STEPS
        reached: list[int] = []

        def openings() -> Iterator[Starts]:
            for starts in gaps.openings(ask, entry.length, ranges, most):
                if starts.begin == starts.end:
                    reached.append(starts.begin)
                yield starts

        found = self.scheduler.search(entry.request, self.now, openings(), effort, counts)
        self.spent += found.tried
        if reached and found.selection is None and not found.spent:
            return found._replace(start=reached[0], spent=True)
        return found

    def longest_now(self, entry: PendingJob, since: int) -> int:
        """How long any job of a shape could run from now at most, in what became free after `since` gifts."""
        key = entry.shape, since
        found = self._longest.get(key)
        if found is None:
            gaps, ask = self._gaps, self._ask(entry)
            if gaps is None or ask is None:
                found = FOR_EVER
            else:
                ask = ask._replace(of=self.misses.places(since))
                found = 0
                if gaps.open_now(ask, self.now, self.now + 1):
                    found = gaps.reach(ask, self.now, self.now, self.now + 1)[0]
            self._longest[key] = found
        return found

    def out_of_reach(self, entry: PendingJob, kept: Allocation, since: int) -> bool:
        """True if nothing that became free after `since` gifts stays so for long enough to bring a promise forward:
        neither for as long as the job lasts nor until the promise begins.
        """
        key = entry.shape, since
        found = self._reach.get(key)
        if found is None:
            asked = self._asked_reach[key] = self._asked_reach.get(key, 0) + 1
            if asked < _WORTH_A_REACH:
                return False
            gaps, ask = self._gaps, self._ask(entry)
            if gaps is None or ask is None:
                found = FOR_EVER, FOR_EVER
            else:
                begin, end = self.misses.spans(since)
                found = gaps.reach(ask._replace(of=self.misses.places(since)), self.now, max(begin, self.now), end)
            self._reach[key] = found
        return entry.length > found[0] and kept.start > found[1]

    def may_move(self, entry: PendingJob, kept: Allocation, since: int, ranges: Ranges) -> bool:
        """False if there is no gap before its promise for a job in `ranges`, in what became free after `since`."""
        gaps, ask = self._gaps, self._ask(entry, kept, since)
        if gaps is None or ask is None:
            return True
        most = gaps.work + 8 * _STEPS
        return next(gaps.openings(ask, entry.length, ranges, most), None) is not None

    def _ask(self, entry: PendingJob, kept: Allocation | None = None, since: int = 0) -> Ask | None:
        """What a job needs of gaps; None if they do not tell."""
        if self._gaps is None:
            return None
        if entry.shape not in self._asks:
            allowed = self.scheduler.allowed(entry.request.constraint)
            self._asks[entry.shape] = self._gaps.ask(entry.request.resources, allowed)
        ask = self._asks[entry.shape]
        if ask is None or kept is None:
            return ask
        of = self.misses.places(since)
        return Ask(ask.parts, ask.among, ask.wanted, of, self._gaps.places(kept.jobid), kept.start)
