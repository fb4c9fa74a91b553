"""Jobs that wait for other jobs (dependencies, RFC 26), and how starts and ends of jobs affect them.

A job in state DEPEND waits for the start or the end of an antecedent (`afterany` and the like), for its turn among the
jobs of its name (`singleton`), or for a point in time (`begin-time`). The core reports when jobs start and end. If a
condition is met, its job gets a dependency-remove event. If it can no longer be met, its job gets a fatal exception.

Pure, a part of the core. The table is derived from the dependency-add events of active jobs, both new jobs and jobs
replayed from the journal, so it is never saved.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from headrace.engine.jobs.record import Job, inactive_excepted, inactive_result, inactive_started
from headrace.engine.modules.job_manager import dependencies as deps
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_exception import DEPENDENCY
from headrace.formats.spec.job_state import DEPEND


class Core(Protocol):
    """The parts of the core (`core.Core`) that are used here."""

    # The user id of the instance owner, in whose name exceptions are raised.
    owner: int
    # True if the jobs of other users are hidden from a user (`access.private-mode`).
    private: bool
    active: dict[int, Job]
    inactive: dict[int, int]

    def user_of(self, id: int) -> int | None: ...
    def post(self, job: Job, name: str, context: dict[str, Any] | None = None) -> None: ...
    def advance(self, job: Job) -> None: ...
    def deadline(self, time: float, job: Job, what: str) -> None: ...
    def raise_fatal(self, job: Job, kind: str, note: str) -> None: ...


class Waiting:
    """Jobs by antecedent, and groups of singletons by user and name."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._dependents: dict[int, dict[tuple[int, str], str]] = {}
        self._singletons: dict[tuple[int, str], set[int]] = {}
        self._singleton_names: dict[int, tuple[int, str]] = {}
        # Ended jobs whose dependents are not handled yet. A queue avoids recursion along a chain of dependent jobs.
        self._over: deque[Job] = deque()
        self._telling = False

    def check(self, job: Job, userid: int, need: deps.Need) -> None:
        """Raise DependencyError if a new job's condition can never be met, or is on another user's job.

        `userid` is the user of the new job. As in Flux, the instance owner is no exception.
        """
        if need.kind == deps.SINGLETON:
            if not (js.system(job.jobspec).get("job") or {}).get("name"):
                raise deps.DependencyError("dependency: singleton: the job must have a name")
        elif need.job:
            known = self._progress(need.job)
            denied = known is not None and self.core.user_of(need.job) != userid
            text = need.description.partition("=")[2]
            if known is None or need.job == job.id or (denied and self.core.private and userid != self.core.owner):
                raise deps.DependencyError(f"dependency: {need.kind}: job not found: {text}")
            if denied:
                raise deps.DependencyError(f"dependency: {need.kind}: Permission denied for job {text}")
            if deps.verdict(need.kind, *known) is False:
                raise deps.DependencyError(deps.refusal(need.kind, need.job))

    def _progress(self, id: int) -> tuple[bool, int | None, bool] | None:
        """(started, result or None, had a fatal exception) of a job; None if it does not exist."""
        job = self.core.active.get(id)
        if job is not None:
            return job.started, None, False
        known = self.core.inactive.get(id)
        if known is None:
            return None
        return inactive_started(known), inactive_result(known), inactive_excepted(known)

    def watch(self, job: Job) -> None:
        """Register the conditions of a job in DEPEND. Conditions that are already met are removed at once."""
        for description in list(job.dependencies or ()):
            need = deps.from_description(description)
            if need is None:
                continue
            if need.kind == deps.SINGLETON:
                if min(self._singletons[self._singleton_names[job.id]]) == job.id:
                    self.remove(job, description)
            elif need.job:
                self._dependents.setdefault(need.job, {})[job.id, description] = need.kind
                self._judge(job, need.job, need.kind, description)
            else:
                self.core.deadline(need.time, job, description)

    def _judge(self, job: Job, antecedent: int, kind: str, description: str) -> None:
        known = self._progress(antecedent)
        met = deps.verdict(kind, *known) if known is not None else False
        if met is None:
            return
        dependents = self._dependents.get(antecedent, {})
        dependents.pop((job.id, description), None)
        if not dependents:
            self._dependents.pop(antecedent, None)
        if job.state != DEPEND:
            return
        if met:
            self.remove(job, description)
        else:
            self.core.raise_fatal(job, DEPENDENCY, deps.refusal(kind, antecedent))

    def remove(self, job: Job, description: str) -> None:
        """Remove a dependency that is met."""
        if job.dependencies is not None and description in job.dependencies:
            self.core.post(job, "dependency-remove", {"description": description})

    def started(self, job: Job) -> None:
        """Handle the jobs that wait for the start of this job."""
        if job.id in self._dependents:
            self._settle(job.id)

    def ended(self, job: Job) -> None:
        """Handle the jobs that wait for the end of this job. Jobs that end as a consequence follow one by one."""
        self._over.append(job)
        if self._telling:
            return
        self._telling = True
        try:
            while self._over:
                self._settle_dependents(self._over.popleft())
        finally:
            self._telling = False

    def _settle_dependents(self, job: Job) -> None:
        if job.id in self._dependents:
            self._settle(job.id)
        if job.id in self._singleton_names:
            self._next_singleton(job)

    def _settle(self, antecedent: int) -> None:
        for (id, description), kind in list(self._dependents.get(antecedent, {}).items()):
            job = self.core.active.get(id)
            if job is None:
                self._dependents[antecedent].pop((id, description), None)
                continue
            self._judge(job, antecedent, kind, description)
            if job.state == DEPEND:
                self.core.advance(job)
        if not self._dependents.get(antecedent):
            self._dependents.pop(antecedent, None)

    def join_singletons(self, job: Job) -> None:
        """Add an active job to the singletons of its user and name, if it is a singleton."""
        if any(item["scheme"] == deps.SINGLETON for item in js.dependencies(job.jobspec)):
            key = (job.userid, js.name(job.jobspec))
            self._singletons.setdefault(key, set()).add(job.id)
            self._singleton_names[job.id] = key

    def _next_singleton(self, job: Job) -> None:
        key = self._singleton_names.pop(job.id)
        group = self._singletons[key]
        group.discard(job.id)
        if not group:
            del self._singletons[key]
            return
        following = self.core.active.get(min(group))
        # If the job has left DEPEND, its own end makes room for the next singleton.
        if following is not None and following.state == DEPEND:
            self.remove(following, deps.SINGLETON)
            self.core.advance(following)
