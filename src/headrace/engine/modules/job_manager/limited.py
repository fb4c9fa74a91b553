"""Selects the jobs that are sent to a scheduler with at most `limit` requests at a time (RFC 27, mode limited). Pure.

A part of the core. The most urgent jobs are sent. If a job becomes more urgent than one of these, the request of the
least urgent one is canceled, one at a time, and its job waits again.
"""

from __future__ import annotations

import heapq
from typing import Protocol

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.queues import Queues
from headrace.formats.spec.job_state import SCHED


class Allocations(Protocol):
    """The parts of the core's allocations that are used here."""

    # The number of requests without a response from the scheduler.
    pending: int

    @property
    def active(self) -> dict[int, Job]: ...
    @property
    def queues(self) -> Queues: ...

    def ask(self, job: Job) -> None: ...
    def cancel(self, job: Job) -> None: ...


class Limited:
    """Jobs that wait for their turn with a scheduler whose `limit` is not 0."""

    def __init__(self, allocations: Allocations, limit: int) -> None:
        self._allocations = allocations
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
        """The most urgent waiting job; outdated entries are removed."""
        while self._queued:
            priority, id = self._queued[0]
            job = self._allocations.active.get(id)
            if (
                job is not None
                and job.state == SCHED
                and job.priority == -priority > 0
                and not job.alloc_pending
                and self._allocations.queues.started(job.queue)
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
