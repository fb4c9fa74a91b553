"""The search for the earliest start of a pending job, with shortcuts that avoid searches of the graph.

Most starts are ruled out without the graph: the availability profile shows where there cannot be enough resources,
failed searches show what did not fit before some moment, and, until the time changes, `unfit_from` shows what does not
fit now. A result for a job holds for all jobs of its shape with the same or a longer time limit. Each call of a queue
has a budget of searches; steps read in the profile count as fractions of a search.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sched.graph.scheduler import Found, Scheduler, Starts
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.availability import AvailabilityProfile, Need
from headrace.sched.queueing.failed_searches import ALL_HOLDERS, FOR_EVER, FailedSearches, Ranges
from headrace.sched.queueing.pending import PendingJob

# How many steps of the availability profile take as long to read as one search of the graph.
_STEPS = 512
# The longest window of a shape is computed for the eighth of its jobs: it costs as much as a few separate answers.
_WORTH_A_WINDOW = 8


class StartSearch:
    """The search for starts in a scheduler. Without `profiled` there is no availability profile.

    `budget` is how many searches of the graph one call may make for reservations, None for any number. Arguments named
    `since` are counts of releases, as in `FailedSearches`.
    """

    def __init__(self, scheduler: Scheduler, profiled: bool, budget: int | None) -> None:
        self.scheduler = scheduler
        self.budget = budget
        self.failed = FailedSearches()
        self.now = 0
        # Searches made by this call, and whether its budget was used up before its work was done.
        self.searches = 0
        self.unfinished = False
        # Jobs with a reservation for which a start at `now` was tried.
        self.tried: set[int] = set()
        # By shape, the least length (seconds) that does not fit at `now`.
        self.unfit_from: dict[str, int] = {}
        # By shape and `since`, the least length (seconds) for which released resources leave no window at `now`.
        self._no_window_from: dict[tuple[str, int], int] = {}
        # By shape and `since`, how long at most a job could run from `now` on released resources.
        self._longest_now: dict[tuple[str, int], int] = {}
        # By shape and `since`, how long at most, and until when, released resources stay free. Both hold until the next
        # release, since reservations only take resources.
        self._longest_window: dict[tuple[str, int], tuple[int, int]] = {}
        # By shape and `since`, how many jobs asked for a longest window that is not computed yet.
        self._window_questions: dict[tuple[str, int], int] = {}
        # The profile, and the need of each shape in it (None: the profile cannot tell).
        self._profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole) if profiled else None
        self._needs: dict[str, Need | None] = {}

    # The present

    def advance(self, now: int) -> None:
        """Set the time to `now` (seconds). If it has changed, jobs that did not fit before may fit."""
        if now != self.now:
            self.now = now
            self._forget_now()
            if self._profile is not None:
                self._profile.discard_before(now)

    def begin_call(self) -> None:
        """Begin a call of the queue with the full budget."""
        self.searches = 0
        self.unfinished = False
        if self._profile is not None:
            self._profile.work = 0

    def budget_left(self) -> int | None:
        """How many searches this call may still make; None for any number."""
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

    # Allocations and releases

    def add(self, jobid: int, allocation: Allocation) -> None:
        """Enter the allocation or the reservation of a job."""
        if self._profile is not None:
            self._profile.add(jobid, allocation)

    def remove(self, jobid: int) -> int:
        """Remove the allocation or reservation of a job. Returns its holders, all if they are not known."""
        return self._profile.remove(jobid) if self._profile is not None else ALL_HOLDERS

    def released(self, start: int, end: int, holders: int = ALL_HOLDERS) -> None:
        """Note that resources of some holders became free during [start, end)."""
        self.failed.released(start, end, holders)
        self._forget_windows()
        self._forget_now()

    def resync(self) -> None:
        """Enter again the allocations that have changed in the scheduler."""
        jobs = self.scheduler.jobs
        for jobid in self._profile.stale(jobs) if self._profile is not None else ():
            self.remove(jobid)
            if jobid in jobs:
                self.add(jobid, jobs[jobid])
        self._forget_windows()

    def rebuild(self, jobs: set[int]) -> None:
        """Adapt to a changed graph. `jobs` are the jobs with allocations or reservations."""
        self.failed.clear()
        self._needs.clear()
        self._forget_windows()
        if self._profile is not None and self._profile.outdated():
            self._profile = AvailabilityProfile(self.scheduler.graph, self.scheduler.policy.whole)
            for jobid in jobs & self.scheduler.jobs.keys():
                self.add(jobid, self.scheduler.jobs[jobid])

    def forget_shape(self, shape: str) -> None:
        """Forget a shape of which no job is pending."""
        self._needs.pop(shape, None)

    # Starts at `now`

    def failed_now(self, job: PendingJob) -> None:
        """Remember that a job does not fit now. For the first of its shape, test whether any length would fit."""
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
        """False if the profile has no window for the job now. `kept` and `since`: as for `earliest`."""
        profile, need = self._profile, self._need(job, kept, since)
        return profile is None or need is None or profile.fits(need, self.now, self.now + job.length)

    def may_fit_early(self, job: PendingJob, kept: Allocation, since: int) -> bool:
        """As `may_fit`, remembering the answer for jobs of the same shape that have reservations."""
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

    # Starts from `now` on

    def ranges(self, job: PendingJob) -> Ranges:
        """The starts from now on that no failed search has ruled out for a job."""
        return self.failed.ranges(job.shape, job.length, self.now)

    def earliest(
        self,
        job: PendingJob,
        ranges: Ranges,
        budget: int | None,
        kept: Allocation | None = None,
        since: int = 0,
    ) -> Found:
        """The earliest start in `ranges` at which a job fits.

        A job with the reservation `kept` can start earlier only on resources that were released after `since`; the
        caller has lifted that reservation from the scheduler.
        """
        profile, need, counts = self._profile, self._need(job, kept, since), kept is None
        if profile is None or need is None:
            starts = [Starts(begin, end) for begin, end in ranges]
            found = self.scheduler.search(job.request, self.now, starts, budget, counts)
            self.searches += found.tried
            return found
        most = FOR_EVER if budget is None else profile.work + max(budget, 1) * _STEPS
        reached: list[int] = []

        def windows() -> Iterator[Starts]:
            for starts in profile.windows(need, job.length, ranges, most):
                if starts.begin == starts.end:
                    reached.append(starts.begin)
                yield starts

        found = self.scheduler.search(job.request, self.now, windows(), budget, counts)
        self.searches += found.tried
        if reached and found.selection is None and not found.exhausted:
            return found._replace(start=reached[0], exhausted=True)
        return found

    def longest_now(self, job: PendingJob, since: int) -> int:
        """The longest time (seconds) that a job of this shape could run from now on released resources.

        Only resources released after `since` count.
        """
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
        """True if no released resources stay free long enough to move a reservation forward.

        They would have to be free for the length of the job, or until its reservation begins. Only resources released
        after `since` count.
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
        """False if the profile has no window in `ranges` for a job on resources released after `since`."""
        profile, need = self._profile, self._need(job, kept, since)
        if profile is None or need is None:
            return True
        most = profile.work + 8 * _STEPS
        return next(profile.windows(need, job.length, ranges, most), None) is not None

    def _need(self, job: PendingJob, kept: Allocation | None = None, since: int = 0) -> Need | None:
        """The need of a job in the profile; None if the profile cannot tell."""
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
