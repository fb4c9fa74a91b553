"""What is known of where and when waiting jobs may fit, and the questions to the graph that this spares.

Most questions are settled without the graph: gaps tell where there may be room, failed what was found not to fit
before some moment, and, while the present lasts, what does not fit now. What is learnt of a job holds for all of its
shape that run no shorter. Each call of a queue has an budget: how many questions, and looks at gaps, it may spend.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.graph.scheduler import Found, Scheduler, Starts
from headrace.graph.usage import Allocation
from headrace.queueing.availability import Need, AvailabilityProfile
from headrace.queueing.failed_searches import ALL_HOLDERS, FOR_EVER, FailedSearches, Ranges
from headrace.queueing.pending import PendingJob

# How many steps of the plan of gaps take as long as a question to the graph.
_STEPS = 512
# How many jobs of a shape ask before what they have in intersection is worked out, which takes as long as a few answers.
_WORTH_A_WINDOW = 8


class StartSearch:
    """What a queue knows of a scheduler's future. Without `gaps` it knows only what did not fit.

    `budget` bounds how many questions one call asks for promises, None for no bound.
    """

    def __init__(self, scheduler: Scheduler, gaps: bool, budget: int | None) -> None:
        self.scheduler = scheduler
        self.budget = budget
        self.failed = FailedSearches()
        self.now = 0
        # Questions asked by this call, and whether its budget did not do for all it was to look at.
        self.searches = 0
        self.unfinished = False
        # Promised jobs that were tried for themselves at `now`.
        self.tried: set[int] = set()
        # Shapes that do not fit at `now`, from what length on.
        self.unfit_from: dict[str, int] = {}
        # From what length on a shape finds no gap at `now` in what became free after so many releases.
        self._no_window_from: dict[tuple[str, int], int] = {}
        # By shape and releases, for how long at most a job could run from `now` in what those releases left.
        self._longest_now: dict[tuple[str, int], int] = {}
        # By shape and releases, how long at most, and until when, places stay free that became so after those releases. It
        # holds until there is another release, as promises only take.
        self._longest_window: dict[tuple[str, int], tuple[int, int]] = {}
        # How many jobs asked for one that is not there.
        self._window_questions: dict[tuple[str, int], int] = {}
        # Where there may be room, and what each shape asks of it.
        self._profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole) if gaps else None
        self._needs: dict[str, Need | None] = {}

    # The present

    def advance(self, now: int) -> None:
        """It is `now` (seconds): what did not fit a moment ago may."""
        if now != self.now:
            self.now = now
            self._forget_now()
            if self._profile is not None:
                self._profile.discard_before(now)

    def begin_call(self) -> None:
        """A call begins, with all of its budget."""
        self.searches = 0
        self.unfinished = False
        if self._profile is not None:
            self._profile.work = 0

    def budget_left(self) -> int | None:
        """How much of this call's budget is left; None for no bound."""
        if self.budget is None:
            return None
        steps = self._profile.work if self._profile is not None else 0
        return max(self.budget - self.searches - steps // _STEPS, 0)

    def _forget_windows(self) -> None:
        self._longest_window.clear()
        self._window_questions.clear()

    def _forget_now(self) -> None:
        self.unfit_from.clear()
        self._no_window_from.clear()
        self._longest_now.clear()
        self.tried.clear()

    # What happens

    def add(self, jobid: int, allocation: Allocation) -> None:
        """A job holds this, or is promised it."""
        if self._profile is not None:
            self._profile.add(jobid, allocation)

    def remove(self, jobid: int) -> int:
        """It does no longer. Returns the places it had, as far as they are known."""
        return self._profile.remove(jobid) if self._profile is not None else ALL_HOLDERS

    def released(self, start: int, end: int, places: int = ALL_HOLDERS) -> None:
        """Something became free during [start, end), in a set of places."""
        self.failed.released(start, end, places)
        self._forget_windows()
        self._forget_now()

    def resync(self) -> None:
        """Jobs may hold something else than was entered."""
        jobs = self.scheduler.jobs
        for jobid in self._profile.stale(jobs) if self._profile is not None else ():
            self.remove(jobid)
            if jobid in jobs:
                self.add(jobid, jobs[jobid])
        self._forget_windows()

    def rebuild(self, jobs: set[int]) -> None:
        """The graph has changed, and `jobs` hold, or are promised, parts of it."""
        self.failed.clear()
        self._needs.clear()
        self._forget_windows()
        if self._profile is not None and self._profile.outgrown():
            self._profile = AvailabilityProfile(self.scheduler.graph, self.scheduler.policy.whole)
            for jobid in jobs & self.scheduler.jobs.keys():
                self.add(jobid, self.scheduler.jobs[jobid])

    def forget_shape(self, shape: str) -> None:
        """Nobody of a shape waits any more."""
        self._needs.pop(shape, None)

    # What fits now

    def failed_now(self, job: PendingJob) -> None:
        """Remember that a job does not fit now; of a shape's first, whether any of that shape could."""
        now = self.now
        known = self.unfit_from.get(job.shape)
        length = self.scheduler.same_reservations_until(now, now + job.length) - now
        if known is None and length > 1 and not self._fits_a_moment(job):
            length = 1
        if known is None or length < known:
            self.unfit_from[job.shape] = length
            self.failed.add(job.shape, length, now + 1)

    def _fits_a_moment(self, job: PendingJob) -> bool:
        if not self.may_fit(job._replace(length=1)):
            return False
        return self.scheduler.match_at(job.request.lasting(1), self.now)[0] is not None

    def may_fit(self, job: PendingJob, kept: Allocation | None = None, since: int = 0) -> bool:
        """False if there is no gap for the job now. `kept` and `since`: as for `search`."""
        profile, need = self._profile, self._need(job, kept, since)
        return profile is None or need is None or profile.fits(need, self.now, self.now + job.length)

    def may_fit_early(self, job: PendingJob, kept: Allocation, since: int) -> bool:
        """As `may_fit`, asked for many promised jobs of the same shape."""
        barred = self._no_window_from.get((job.shape, since), FOR_EVER + 1)
        if job.length >= barred:
            return False
        if self.may_fit(job, kept, since):
            return True
        length = job.length
        if barred > FOR_EVER and not self.may_fit(job._replace(length=1), kept, since):
            length = 1
        self._no_window_from[job.shape, since] = length
        return False

    # What fits later

    def ranges(self, job: PendingJob) -> Ranges:
        """The starts from now on that are worth looking at for a job."""
        return self.failed.ranges(job.shape, job.length, self.now)

    def earliest(
        self,
        job: PendingJob,
        ranges: Ranges,
        budget: int | None,
        kept: Allocation | None = None,
        since: int = 0,
    ) -> Found:
        """The earliest start in `ranges`, of those that gaps leave.

        To come before the promise `kept`, a job needs something that became free after `since` releases; the promise
        itself must be lifted.
        """
        profile, need, counts = self._profile, self._need(job, kept, since), kept is None
        if profile is None or need is None:
            starts = [Starts(begin, end) for begin, end in ranges]
            found = self.scheduler.search(job.request, self.now, starts, budget, counts)
            self.searches += found.tried
            return found
        most = FOR_EVER if budget is None else profile.work + max(budget, 1) * _STEPS
        reached: list[int] = []

        def openings() -> Iterator[Starts]:
            for starts in profile.windows(need, job.length, ranges, most):
                if starts.begin == starts.end:
                    reached.append(starts.begin)
                yield starts

        found = self.scheduler.search(job.request, self.now, openings(), budget, counts)
        self.searches += found.tried
        if reached and found.selection is None and not found.exhausted:
            return found._replace(start=reached[0], exhausted=True)
        return found

    def longest_now(self, job: PendingJob, since: int) -> int:
        """How long any job of a shape could run from now at most, in what became free after `since` releases."""
        key = job.shape, since
        found = self._longest_now.get(key)
        if found is None:
            profile, need = self._profile, self._need(job)
            if profile is None or need is None:
                found = FOR_EVER
            else:
                need = need._replace(of=self.failed.released_holders(since))
                found = 0
                if profile.fits(need, self.now, self.now + 1):
                    found = profile.longest_window(need, self.now, self.now, self.now + 1)[0]
            self._longest_now[key] = found
        return found

    def cannot_move_forward(self, job: PendingJob, kept: Allocation, since: int) -> bool:
        """True if nothing that became free after `since` releases stays so for long enough to bring a promise forward:
        neither for as long as the job lasts nor until the promise begins.
        """
        key = job.shape, since
        found = self._longest_window.get(key)
        if found is None:
            asked = self._window_questions[key] = self._window_questions.get(key, 0) + 1
            if asked < _WORTH_A_WINDOW:
                return False
            profile, need = self._profile, self._need(job)
            if profile is None or need is None:
                found = FOR_EVER, FOR_EVER
            else:
                begin, end = self.failed.released_span(since)
                found = profile.longest_window(
                    need._replace(of=self.failed.released_holders(since)), self.now, max(begin, self.now), end
                )
            self._longest_window[key] = found
        return job.length > found[0] and kept.start > found[1]

    def may_move_forward(self, job: PendingJob, kept: Allocation, since: int, ranges: Ranges) -> bool:
        """False if there is no gap before its promise for a job in `ranges`, in what became free after `since`."""
        profile, need = self._profile, self._need(job, kept, since)
        if profile is None or need is None:
            return True
        most = profile.work + 8 * _STEPS
        return next(profile.windows(need, job.length, ranges, most), None) is not None

    def _need(self, job: PendingJob, kept: Allocation | None = None, since: int = 0) -> Need | None:
        """What a job needs of gaps; None if they do not tell."""
        if self._profile is None:
            return None
        if job.shape not in self._needs:
            allowed = self.scheduler.allowed(job.request.constraint)
            self._needs[job.shape] = self._profile.need(job.request.resources, allowed)
        need = self._needs[job.shape]
        if need is None or kept is None:
            return need
        of = self.failed.released_holders(since)
        return Need(need.parts, need.among, need.wanted, of, self._profile.holders_of(kept.jobid), kept.start)
