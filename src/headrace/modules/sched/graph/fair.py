"""Fair share in an instance: who waits goes by what its user has had, until accounting says more.

The job manager's priority stays in front; among jobs of one priority the order is that of `queueing.fair_share`, which
the simulator uses too. What was used is known since the scheduler was loaded, of the jobs that it started. Pure: time
is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.queueing.fair_share import FairShare
from headrace.queueing.simulate import REVIEW


class Fair:
    """Users of jobs that wait or run, with the priorities that the job manager gave.

    Half of what was used is forgotten after each `half_life` seconds; with 0 nobody is asked what he has used.
    """

    def __init__(self, half_life: float = 0.0) -> None:
        self._jobs: dict[int, tuple[int, int]] = {}
        self.configure(half_life)

    def configure(self, half_life: float) -> None:
        """Take another half-life, and forget what was used; `news` has the priorities at once."""
        self._half_life = half_life
        self._shares = FairShare(half_life) if half_life else None
        self._review = 0
        self._changed = True

    @property
    def half_life(self) -> float:
        return self._half_life

    def enter(self, jobid: int, userid: int, priority: int) -> int:
        """A job waits; returns the priority it has among all."""
        self._jobs[jobid] = userid, priority
        return priority if self._shares is None else self._shares.priority(priority, str(userid))

    def weigh(self, jobid: int, priority: int) -> int:
        """The job manager gave a waiting job another priority; returns the one it has among all."""
        return self.enter(jobid, self._jobs[jobid][0], priority)

    def charge(self, jobid: int, cores: int, since: int, now: int) -> None:
        """A job gave back cores that it held."""
        owner = self._jobs.get(jobid)
        if owner is not None and self._shares is not None and now > since:
            self._shares.charge(str(owner[0]), cores * (now - since), now)
            self._changed = True

    def forget(self, jobid: int) -> None:
        """A job waits no more and holds nothing."""
        self._jobs.pop(jobid, None)

    def news(self, waiting: Iterable[int], now: int) -> Iterator[tuple[int, int]]:
        """From time to time, what waiting jobs have for priorities now."""
        if self._changed and now >= self._review:
            self._review, self._changed = now + REVIEW, False
            for jobid in waiting:
                yield jobid, self.enter(jobid, *self._jobs[jobid])
