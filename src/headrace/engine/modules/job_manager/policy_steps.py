"""The answers of the job policy as events of jobs. Pure, a part of the core.

The policy is asked at fixed steps of a job (`policy.py`). Its answers become dependencies, updates of the jobspec,
memos and priorities, all as ordinary events. Releases of other jobs are collected and carried out by `settle`, after
the input that caused them: the release of a job can cause further releases, and a job must not change while another
one is in the middle of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.allocations import Allocations
from headrace.engine.modules.job_manager.policy import JobPolicy, JobRejected, Rank, Release
from headrace.formats.spec.job_state import DEPEND, INACTIVE, PRIORITY, SCHED


class Core(Protocol):
    """The parts of the core (`core.Core`) that are used here."""

    active: dict[int, Job]
    policy: JobPolicy
    allocations: Allocations

    def post(self, job: Job, name: str, context: dict[str, Any] | None = None) -> None: ...
    def post_shared(self, job: Job, name: str, context: dict[str, Any]) -> None: ...
    def advance(self, job: Job) -> None: ...
    def update(self, job: Job, updates: dict[str, Any]) -> None: ...
    def raise_fatal(self, job: Job, kind: str, note: str) -> None: ...


class PolicySteps:
    """Asks the policy of the core."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._releases: deque[Release] = deque()

    # -- the steps of a job

    def submitted(self, job: Job) -> None:
        """Add the policy's attributes to the jobspec of an accepted job, before it is validated."""
        attributes = self.core.policy.added(job)
        if attributes:
            self.core.post_shared(job, "jobspec-update", attributes)

    def hold(self, job: Job) -> None:
        """Add the policy's dependencies to a job in DEPEND."""
        policy = self.core.policy
        try:
            holds = policy.holds(job)
        except JobRejected as exc:
            self.core.raise_fatal(job, policy.name, str(exc))
            return
        for description in holds:
            if description not in (job.dependencies or ()):
                self.core.post(job, "dependency-add", {"description": description})

    def prioritize(self, job: Job) -> None:
        """Give a job in PRIORITY its priority, if the policy knows one."""
        rank = self._rank(job)
        if rank is not None:
            if rank.attributes:
                self.core.post(job, "jobspec-update", rank.attributes)
            if rank.memo is not None:
                self.core.post_shared(job, "memo", rank.memo)
            self.core.post_shared(job, "priority", {"priority": rank.priority})
        elif job.alloc_pending and job.state == PRIORITY:
            self.core.allocations.cancel(job)

    def reprioritize(self, job: Job) -> None:
        """Ask for the priority of a pending job again. An event is posted only if the priority changes."""
        if job.state == PRIORITY:
            self.core.advance(job)
        elif job.state == SCHED:
            rank = self._rank(job)
            if rank is None:
                return
            if rank.attributes:
                self.core.update(job, rank.attributes)
                return
            if rank.memo is not None:
                self.core.post_shared(job, "memo", rank.memo)
            if rank.priority != job.priority:
                self.core.post_shared(job, "priority", {"priority": rank.priority})
                self.core.allocations.reprioritize(job)

    def _rank(self, job: Job) -> Rank | None:
        policy = self.core.policy
        try:
            return policy.priority(job)
        except JobRejected as exc:
            self.core.raise_fatal(job, policy.name, str(exc))
            return None

    def entered(self, job: Job) -> None:
        """Report the new state of a job. INACTIVE is reported by `ended`."""
        if job.state != INACTIVE:
            self._releases.extend(self.core.policy.entered(job, job.state))
            self.core.allocations.withheld.entered(job)

    def ended(self, job: Job) -> None:
        """Report the end of a job, before a successor is chosen: the limits count it no longer."""
        self._releases.extend(self.core.policy.entered(job, INACTIVE))

    def updated(self, job: Job) -> None:
        """Report the changed jobspec of a pending job."""
        self._releases.extend(self.core.policy.updated(job))

    def release(self, releases: Sequence[Release]) -> None:
        """Remove dependencies that a change of limits has made unnecessary."""
        self._releases.extend(releases)

    def settle(self) -> None:
        """Carry out the releases, and continue the jobs that limits no longer hold."""
        core, releases = self.core, self._releases
        while True:
            while releases:
                id, description = releases.popleft()
                job = core.active.get(id)
                if job is not None and job.dependencies is not None and description in job.dependencies:
                    core.post(job, "dependency-remove", {"description": description})
                    core.advance(job)
            ready = core.policy.ready()
            if not ready:
                return
            for id in ready:
                self._continue(id)

    def _continue(self, id: int) -> None:
        job = self.core.active.get(id)
        if job is None:
            return
        if job.state == PRIORITY:
            self.core.advance(job)
        elif job.state == SCHED:
            self.core.allocations.withheld.admit(job)

    # -- another policy

    def replace(self, policy: JobPolicy) -> None:
        """Ask another policy from now on. It counts the active jobs, the most advanced ones first.

        Dependencies of the old policy remain: the new one counts them, or somebody removes them. Jobs that waited for a
        priority of the old policy get one of the new one, if it knows one. Other priorities stay until `reprioritize`.
        """
        core = self.core
        core.policy = policy
        self._releases.clear()
        jobs = sorted(core.active.values(), key=lambda job: (-job.state, job.id))
        for job in jobs:
            policy.count(job)
        for job in jobs:
            if job.state == DEPEND:
                self.hold(job)
        core.allocations.withheld.clear()
        for job in jobs:
            if job.state == PRIORITY:
                core.advance(job)
