"""Jobs in SCHED that a limit of the job policy keeps from the scheduler. Pure, a part of the core.

Limits hold at every moment, so they are checked when an allocation arrives and when a successor takes over resources.
A job that would exceed a limit is withheld: its resources go back, and the scheduler does not get its request again
until the policy names it as ready. Other jobs of its account that would meet a limit as well are withdrawn from the
scheduler at the same time. Without that, each of them would be allocated once in vain.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Protocol

from headrace.engine.jobs.record import Job, merged
from headrace.engine.modules.job_manager.effects import Annotated, Effect
from headrace.engine.modules.job_manager.policy import JobPolicy
from headrace.formats.spec.job_state import SCHED

# How many requests are checked at most when a job of their account meets a limit. The check of one takes about 2 us.
_CHECKED_AT_ONCE = 1000


class Requests(Protocol):
    """The requests of jobs to the scheduler (`allocations.Allocations`)."""

    def request(self, job: Job) -> None: ...
    def cancel(self, job: Job) -> None: ...


class Core(Protocol):
    """The parts of the core (`core.Core`) that are used here."""

    active: dict[int, Job]
    effects: list[Effect]
    policy: JobPolicy


class Withheld:
    """The withheld jobs with their limits, and the jobs that the scheduler has, by account."""

    def __init__(self, core: Core, requests: Requests) -> None:
        self._core = core
        self._requests = requests
        self._limits: dict[int, str] = {}
        self._asked: dict[Hashable, dict[int, Job]] = {}
        # The accounts of these jobs at the time of the request.
        self._accounts: dict[int, Hashable] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._limits

    def limit(self, job: Job) -> str:
        """The limit that withholds a job, or ""."""
        return self._limits.get(job.id, "")

    # -- jobs that the scheduler has

    def asked(self, job: Job) -> None:
        """Note that the scheduler has the request of a job."""
        account = self._accounts[job.id] = self._core.policy.account(job)
        self._asked.setdefault(account, {})[job.id] = job

    def answered(self, job: Job) -> None:
        """Note that the scheduler no longer has the request of a job."""
        account = self._accounts.pop(job.id, None)
        if account is not None:
            asked = self._asked[account]
            del asked[job.id]
            if not asked:
                del self._asked[account]

    def forget_asked(self) -> None:
        """Note that the scheduler has no requests."""
        self._asked.clear()
        self._accounts.clear()

    # -- jobs that met a limit

    def hold(self, job: Job, limit: str) -> None:
        """Withhold a job that met a limit, and the jobs of its account that would meet one now."""
        policy = self._core.policy
        self._add(job, limit)
        asked = self._asked.get(policy.account(job), {})
        for other in list(itertools.islice(asked.values(), _CHECKED_AT_ONCE)):
            # A job that is about to be canceled, or was moved to another account, is left alone.
            if other.state == SCHED and not other.alloc_canceled and other is not job:
                found = policy.may_start(other)
                if found:
                    self._add(other, found)

    def _add(self, job: Job, limit: str) -> None:
        self._limits[job.id] = limit
        # A scheduler annotates the jobs that wait for it in the same way, so listings show the reason.
        job.annotations = merged(job.annotations or {}, {"sched": {"reason_pending": reason(limit)}})
        self._core.effects.append(Annotated(job))
        if job.alloc_pending:
            self._requests.cancel(job)

    def entered(self, job: Job) -> None:
        """Follow a job to its new state: a job that left SCHED is no longer withheld."""
        if job.state != SCHED:
            self._limits.pop(job.id, None)

    def admit(self, job: Job) -> None:
        """Request a withheld job for which there is room now."""
        if self._limits.pop(job.id, None) is not None:
            self._requests.request(job)

    def clear(self) -> None:
        """Request all withheld jobs, since another policy decides."""
        active = self._core.active
        held = [active[id] for id in self._limits]
        self._limits.clear()
        self.forget_asked()
        if self._core.policy.has_limits:
            for job in active.values():
                if job.alloc_pending:
                    self.asked(job)
        for job in held:
            self._requests.request(job)


def reason(limit: str) -> str:
    """Why a job waits that met a limit, for listings."""
    return f"limit: {limit}"
