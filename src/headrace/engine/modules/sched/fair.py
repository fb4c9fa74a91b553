"""Fair share within an instance: pending jobs are ordered by urgency and the past usage of their users.

The job manager's priority is the urgency as long as no priority plugin is loaded. `queueing.fair_share`, which the
simulator uses as well, makes it the priority of accounting. Only the usage of jobs that were started since the
scheduler was loaded counts. Pure: time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.formats.spec.urgency import URGENCY_EXPEDITE, URGENCY_HOLD

if TYPE_CHECKING:
    from headrace.sched.queueing.fair_share import FairShare

# Seconds between two computations of all priorities from usage.
REVIEW = 300


class Fair:
    """The user and the job manager's priority of each pending or running job.

    Usage decays by half every `half_life` seconds; 0 disables fair share.
    """

    def __init__(self, half_life: float = 0.0) -> None:
        self.jobs: dict[int, tuple[int, int]] = {}
        self._last = (-1, -1)
        self.configure(half_life)

    def configure(self, half_life: float) -> None:
        """Set another half-life and forget all usage. The next call of `news` returns the new priorities."""
        self._half_life = half_life
        self._shares = _shares(half_life) if half_life else None
        self._review = 0
        self._configured = True

    @property
    def half_life(self) -> float:
        return self._half_life

    def enter(self, jobid: int, userid: int, priority: int) -> int:
        """Add a pending job; returns its priority among all jobs.

        A priority that is no urgency, or the highest or lowest one, stays: a priority plugin has computed it, or the
        job precedes all others.
        """
        if self._last != (userid, priority):
            self._last = userid, priority
        # Jobs with equal pairs share one tuple.
        self.jobs[jobid] = self._last
        if self._shares is None or not URGENCY_HOLD < priority < URGENCY_EXPEDITE:
            return priority
        if self._shares.add(str(userid)):
            self._review = 0
        return self._shares.priority(priority, str(userid))

    def weigh(self, jobid: int, priority: int) -> int:
        """Set the job manager's priority of a pending job; returns its priority among all jobs."""
        return self.enter(jobid, self.jobs[jobid][0], priority)

    def charge(self, jobid: int, cores: int, since: int, now: int) -> None:
        """Count the usage of cores that a job has released."""
        owner = self.jobs.get(jobid)
        if owner is not None and self._shares is not None and now > since:
            self._shares.charge(str(owner[0]), cores * (now - since), now)

    def forget(self, jobid: int) -> None:
        """Remove a job that is neither pending nor running."""
        self.jobs.pop(jobid, None)

    def news(self, waiting: Iterable[int], now: int) -> Iterator[tuple[int, int]]:
        """The priorities of pending jobs whose users' fair share has changed.

        Fair shares are computed every REVIEW seconds, and when a job of a new user has come. After `configure`, all
        jobs are returned.
        """
        if now < self._review:
            return
        self._review = now + REVIEW
        changed = set() if self._shares is None else self._shares.review(now)
        everyone, self._configured = self._configured, False
        if everyone or changed:
            for jobid in waiting:
                owner, priority = self.jobs[jobid]
                if everyone or str(owner) in changed:
                    yield jobid, self.enter(jobid, owner, priority)


def _shares(half_life: float) -> FairShare:
    # Most schedulers have no fair share; their start does not import it.
    from headrace.sched.queueing.fair_share import FairShare

    return FairShare(half_life)
