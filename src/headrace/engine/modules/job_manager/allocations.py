"""Resource requests of the core to the scheduler, and the scheduler's responses (RFC 27). Pure.

A part of the core. Requests are sent at once, before the records of the same step are durable. That is safe because a
scheduler stores nothing: a crash loses the request on both sides.
"""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from headrace.engine.jobs.record import Job, merged
from headrace.engine.modules.job_manager.effects import (
    Alloc,
    Annotated,
    Cancel,
    Effect,
    Free,
    Inherit,
    Prioritize,
    Request,
)
from headrace.engine.modules.job_manager.policy import JobPolicy
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.records import Record, ResourcesSet
from headrace.engine.modules.job_manager.successors import Successors, notes
from headrace.engine.modules.job_manager.withheld import Withheld
from headrace.formats.spec.job_exception import ALLOC
from headrace.formats.spec.job_state import CLEANUP, SCHED
from headrace.formats.spec.requests.sched import AllocResponse


class Core(Protocol):
    """The parts of the core (`core.Core`) that are used here."""

    # Seconds since the epoch.
    now: float
    active: dict[int, Job]
    queues: Queues
    policy: JobPolicy
    records: list[Record]
    effects: list[Effect]
    requests: list[Request]

    def post(self, job: Job, name: str, context: dict[str, Any] | None = None) -> None: ...
    def trace(self, job: Job, what: str) -> None: ...
    def advance(self, job: Job) -> None: ...
    def raise_fatal(self, job: Job, kind: str, note: str) -> None: ...


class Allocations:
    """The state of the scheduler, and the jobs whose requests it has."""

    def __init__(self, core: Core) -> None:
        self.core = core
        # True once a scheduler has recovered the running jobs and accepts requests.
        self.ready = False
        # The number of requests without a response from the scheduler.
        self.pending = 0
        self.limited = Limited(self, 0)
        self.successors = Successors(core.active)
        self.withheld = Withheld(core, self)
        # The changed priorities that `send_priorities` is to send, by job. None unless they are collected.
        self._collected: dict[int, int] | None = None

    # -- requests

    def request(self, job: Job) -> None:
        """Request resources for a job in SCHED, or cancel the request, as its priority and queue require."""
        wanted = job.priority > 0 and self.core.queues.started(job.queue) and job.id not in self.withheld
        if job.alloc_pending:
            if not wanted:
                self.cancel(job)
            return
        if job.id in self.withheld:
            return
        if not wanted:
            self._annotate_stopped(job)
            return
        self.forget_annotations(job)
        if self.ready:
            if self.limited.limit:
                self.limited.push(job)
            else:
                self.ask(job)

    def _annotate_stopped(self, job: Job) -> None:
        """Annotate a job of a stopped queue, as a scheduler would, so that listings show the reason."""
        why = self.core.queues.stop_note(job.queue) if job.priority > 0 else ""
        if not why:
            self.forget_annotations(job)
        elif (job.annotations or {}).get("sched") != {"reason_pending": why}:
            job.annotations = {**(job.annotations or {}), "sched": {"reason_pending": why}}
            self.core.effects.append(Annotated(job))

    def ask(self, job: Job) -> None:
        """Send the request of a job."""
        self.core.trace(job, "alloc-request")
        self.successors.asked(job)
        job.alloc_pending = True
        self.pending += 1
        if self.core.policy.has_limits:
            self.withheld.asked(job)
        self.core.requests.append(Alloc(job))

    def cancel(self, job: Job) -> None:
        """Cancel the request of a job, at most once. The scheduler still responds to the request."""
        if not job.alloc_canceled:
            job.alloc_canceled = True
            self.core.requests.append(Cancel(job.id))

    def reprioritize(self, job: Job) -> None:
        """Send the scheduler the changed priority of a job in SCHED; its request is made or canceled as required."""
        if not job.alloc_pending or job.priority == 0:
            self.request(job)
        elif self._collected is not None:
            self._collected[job.id] = job.priority
        elif not job.alloc_canceled:
            self._prioritize({job.id: job.priority})

    def collect_priorities(self) -> None:
        """Keep changed priorities until `send_priorities`, because a scheduler sorts all jobs for each message."""
        self._collected = {}

    def send_priorities(self) -> None:
        """Send the priorities that changed since `collect_priorities`."""
        collected, self._collected = self._collected, None
        if collected:
            self._prioritize(collected)

    def _prioritize(self, priorities: dict[int, int]) -> None:
        self.core.requests.append(Prioritize(priorities))
        self.successors.forget()
        if self.limited.limit:
            self.limited.fill()

    # -- the scheduler and its responses

    def holders(self) -> list[Job]:
        """Jobs that hold resources."""
        return [job for job in self.core.active.values() if job.has_resources]

    def scheduler_is_ready(self, limit: int) -> int:
        """Accept a scheduler that takes `limit` requests at a time (0: no limit); returns how many jobs wait."""
        self.ready, self.limited = True, Limited(self, limit)
        waiting = [job for job in self.core.active.values() if job.state == SCHED and not job.alloc_pending]
        waiting.sort(key=lambda job: (-job.priority, job.id))
        for job in waiting:
            self.request(job)
        return len(waiting)

    def scheduler_is_gone(self) -> None:
        """Drop all requests, sent or not, since the scheduler is gone."""
        self.ready, self.pending = False, 0
        self.withheld.forget_asked()
        self.core.requests.clear()
        if self._collected:
            self._collected.clear()
        self.successors.forget()
        for job in list(self.core.active.values()):
            if job.alloc_pending:
                job.alloc_pending = job.alloc_canceled = False
                if job.state == CLEANUP:
                    self.core.advance(job)

    def reply(
        self, id: int, kind: AllocResponse, r: dict[str, Any] | None, notes: dict[str, Any] | None, why: str
    ) -> None:
        """Handle a response to an alloc request. SUCCESS has R, DENY may have a note with the reason."""
        job = self.core.active.get(id)
        if job is None or not job.alloc_pending:
            return
        if kind is AllocResponse.ANNOTATE:
            job.annotations = merged(job.annotations or {}, notes or {})
            self.core.effects.append(Annotated(job))
            return
        wanted = job.state == SCHED and not job.alloc_canceled
        self._answered(job)
        match kind:
            case AllocResponse.SUCCESS if wanted and (limit := self.core.policy.may_start(job)):
                self.core.requests.append(Free(job, r))
                self.withheld.hold(job, limit)
            case AllocResponse.SUCCESS if wanted:
                self._allocated(job, r or {}, notes)
            case AllocResponse.SUCCESS:
                # The response crossed a cancellation or a fatal exception, so the resources are released.
                self.core.requests.append(Free(job, r))
                self.core.advance(job)
            case AllocResponse.DENY:
                self.forget_annotations(job)
                self.core.raise_fatal(job, ALLOC, why)
            case AllocResponse.CANCEL:
                if job.id not in self.withheld:
                    self.forget_annotations(job)
                self.core.advance(job)
        if self.limited.limit:
            self.limited.fill()

    def _answered(self, job: Job) -> None:
        """Note that the scheduler no longer has the request of a job."""
        job.alloc_pending = job.alloc_canceled = False
        self.pending -= 1
        if self._collected:
            self._collected.pop(job.id, None)
        if self.core.policy.has_limits:
            self.withheld.answered(job)

    def successor_of(self, job: Job) -> Job | None:
        """The job that takes over the resources of an ended job; None if the scheduler has to choose."""
        successor = self.successors.take(job)
        limit = self.core.policy.may_start(successor) if successor is not None else ""
        if successor is None or not limit:
            return successor
        self.withheld.hold(successor, limit)
        self.successors.forget()
        return None

    def inherit(self, job: Job, successor: Job) -> None:
        """Start `successor` on the resources of the ended `job`, as the scheduler would do later."""
        self._answered(successor)
        self._allocated(successor, self.successors.resources(job, successor, self.core.now), notes(job, successor))
        self.core.requests.append(Inherit(job, successor))
        if self.limited.limit:
            self.limited.fill()

    def forget_annotations(self, job: Job) -> None:
        """Remove the scheduler's annotations, such as the reason why the job had to wait."""
        if job.annotations and "sched" in job.annotations:
            job.annotations = merged(job.annotations, {"sched": None})
            self.core.effects.append(Annotated(job))

    def _allocated(self, job: Job, r: dict[str, Any], notes: dict[str, Any] | None) -> None:
        annotations = merged(job.annotations, notes or {}) if job.annotations else notes
        job.r = r
        self.core.records.append(ResourcesSet(job.id, r))
        self.core.post(job, "alloc", {"annotations": annotations} if annotations else None)
        self.core.advance(job)


class Limited:
    """Jobs not yet sent to a scheduler that takes `limit` requests at a time (RFC 27, mode limited).

    The requests of the most urgent jobs are sent. If a waiting job becomes more urgent than a job already sent, the
    request of the least urgent sent job is canceled, one at a time, and that job waits again. The limit 0 means no
    limit: nothing is queued here.
    """

    def __init__(self, allocations: Allocations, limit: int) -> None:
        self._allocations = allocations
        self._core = allocations.core
        self.limit = limit
        self._queued: list[tuple[int, int]] = []
        self._asked: dict[int, Job] = {}

    def push(self, job: Job) -> None:
        """Add a job in SCHED with its present priority."""
        heapq.heappush(self._queued, (-job.priority, job.id))
        self.fill()

    def fill(self) -> None:
        """Send requests for the most urgent jobs, up to the limit."""
        while (job := self._head()) is not None and self._allocations.pending < self.limit:
            heapq.heappop(self._queued)
            self._asked[job.id] = job
            self._allocations.ask(job)
        if job is not None:
            self._make_room(job)

    def _head(self) -> Job | None:
        """The most urgent waiting job. Removes outdated entries from the heap."""
        while self._queued:
            priority, id = self._queued[0]
            job = self._core.active.get(id)
            if (
                job is not None
                and job.state == SCHED
                and job.priority == -priority > 0
                and not job.alloc_pending
                and job.id not in self._allocations.withheld
                and self._core.queues.started(job.queue)
            ):
                return job
            heapq.heappop(self._queued)
        return None

    def _make_room(self, head: Job) -> None:
        self._asked = {id: job for id, job in self._asked.items() if job.alloc_pending}
        if any(job.alloc_canceled for job in self._asked.values()):
            return
        last = max(self._asked.values(), key=lambda job: (-job.priority, job.id), default=None)
        if last is not None and (-head.priority, head.id) < (-last.priority, last.id):
            self._allocations.cancel(last)
