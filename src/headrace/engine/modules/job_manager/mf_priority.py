"""The job policy `mf_priority`: the multi-factor policy of accounting for the jobs of this instance. Pure.

It keeps the request of each active job, since the jobspecs of guests are on disk, and translates between jobs and the
pure policy (`sched/accounting/multifactor.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.policy import JobRejected, Rank, Release
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import CLEANUP, INACTIVE, PRIORITY, SCHED
from headrace.formats.spec.urgency import URGENCY_EXPEDITE, URGENCY_HOLD
from headrace.sched.accounting.multifactor import MultiFactor
from headrace.sched.accounting.values import JobRefusedError, Request

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State

_encode = msgspec.json.Encoder(order="deterministic").encode
_SYSTEM = "attributes.system."
_BANK = f"{_SYSTEM}bank"
_PROJECT = f"{_SYSTEM}project"
_QUEUE = f"{_SYSTEM}queue"


class MultiFactorPolicy:
    """A JobPolicy (`policy.py`) by the tables of `factors`.

    `has_limits` is False if limits are checked at submission only.
    """

    name = "mf_priority"
    updatable = frozenset((_BANK,))

    def __init__(self, factors: MultiFactor, has_limits: bool = True) -> None:
        self.factors = factors
        self.has_limits = has_limits
        self._requests: dict[int, Request] = {}
        # The request of the job that was validated last. It is kept only when the job is added.
        self._validated: Request | None = None
        # The resources and constraints of the latest request, their shape, nodes and cores: most jobs ask for what
        # another one asked for.
        self._counted: tuple[Any, Any, int, int, int] = (None, None, 0, 0, 0)
        # The latest rank and memo: most jobs have those of the job before.
        self._rank = Rank(0)
        self._latest_memo: dict[str, float] = {"fairshare": -1.0}

    def validate(self, job: Job) -> str:
        system = js.system(job.jobspec)
        if not (isinstance(system.get("bank", ""), str) and isinstance(system.get("project", ""), str)):
            return "unable to unpack bank arg"
        request = self._validated = self._request_of(job)
        return self.factors.refusal(request)

    def added(self, job: Job) -> dict[str, Any]:
        request, self._validated = self._validated, None
        if request is None or request.id != job.id:
            request = self._request_of(job)
        updates = self.factors.defaults(request)
        request = self._requests[job.id] = _updated(request, updates)
        self.factors.added(request)
        return updates

    def count(self, job: Job) -> None:
        request = self._requests[job.id] = self._request_of(job)
        state = job.state
        if state == CLEANUP and not job.has_resources:
            # The job only waits for its end.
            state = PRIORITY
        self.factors.count_active(request, state, job.dependencies or ())

    def holds(self, job: Job) -> Sequence[str]:
        try:
            return self.factors.holds(self._requests[job.id])
        except JobRefusedError as exc:
            raise JobRejected(str(exc)) from None

    def priority(self, job: Job) -> Rank | None:
        request = self._requests[job.id]
        try:
            priority = self.factors.priority(request, job.urgency)
        except JobRefusedError as exc:
            raise JobRejected(str(exc)) from None
        if priority is None:
            return None
        if job.state == PRIORITY and not (request.bank and request.project):
            attributes = self.factors.defaults(request)
            self._requests[job.id] = _updated(request, attributes)
            return Rank(priority, attributes, self._memo(job, request))
        if job.state == SCHED and not request.bank and (attributes := self.factors.defaults(request)):
            # The job was in SCHED before the policy was loaded.
            return Rank(priority, attributes)
        memo = self._memo(job, request)
        if priority != self._rank.priority or memo is not self._rank.memo:
            self._rank = Rank(priority, memo=memo)
        return self._rank

    def _memo(self, job: Job, request: Request) -> dict[str, Any] | None:
        """The fair share of a job, unless it is known or does not affect the priority."""
        if job.urgency in (URGENCY_HOLD, URGENCY_EXPEDITE):
            return None
        fairshare = self.factors.fairshare(request)
        known = job.annotations.get("user") if job.annotations else None
        if isinstance(known, dict) and known.get("fairshare") == fairshare:
            return None
        if self._latest_memo["fairshare"] != fairshare:
            self._latest_memo = {"fairshare": fairshare}
        return self._latest_memo

    def entered(self, job: Job, state: State) -> Sequence[Release]:
        request = self._requests.get(job.id)
        if request is None:
            # The event precedes `added`.
            return ()
        if state == INACTIVE:
            del self._requests[job.id]
        return self.factors.entered(request, state)

    def may_start(self, job: Job) -> str:
        return self.factors.may_start(self._requests[job.id])

    def ready(self) -> Sequence[int]:
        return self.factors.ready()

    def waits_for(self, job: Job) -> str:
        return ", ".join(self.factors.waits_for(job.id))

    def account(self, job: Job) -> Hashable:
        request = self._requests[job.id]
        return (request.userid, request.bank)

    def update(self, job: Job, key: str, value: Any) -> str:
        if key in (_BANK, _QUEUE) and not isinstance(value, str):
            return f"{key.removeprefix(_SYSTEM)} must be a name, not {value!r}"
        return self.factors.update_refusal(self._requests[job.id], key, value)

    def updated(self, job: Job) -> Sequence[Release]:
        old = self._requests[job.id]
        new = self._requests[job.id] = self._request_of(job)
        return self.factors.updated(old, new) if new != old else ()

    def query(self) -> dict[str, Any]:
        return self.factors.query()

    def _request_of(self, job: Job) -> Request:
        jobspec = job.jobspec
        system = js.system(jobspec)
        bank, project = _text(system.get("bank")), _text(system.get("project"))
        resources = jobspec["resources"]
        constraints = system.get("constraints")
        *known, shape, nodes, cores = self._counted
        if [resources, constraints] != known:
            counts = js.counts(jobspec)
            nodes, cores = counts.nnodes or min(counts.ncores, 1), counts.ncores
            shape = hash(_encode([resources, constraints]))
            self._counted = (resources, constraints, shape, nodes, cores)
        duration = float(system.get("duration") or 0.0)
        return Request(job.id, job.userid, job.queue, bank, project, nodes, cores, duration, shape)


def _text(value: Any) -> str:
    """A name in a jobspec, where users may have any value."""
    return value if isinstance(value, str) else ""


def _updated(request: Request, updates: dict[str, str]) -> Request:
    """A request with the attributes of a jobspec update."""
    if not updates:
        return request
    return replace(request, bank=updates.get(_BANK, request.bank), project=updates.get(_PROJECT, request.project))
