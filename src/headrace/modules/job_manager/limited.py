"""A scheduler that takes so many requests at a time (RFC 27, mode limited): the most urgent jobs are before it. Pure.

A part of the core. A job that is more urgent than one that is before the scheduler takes its place: the other request
is taken back, one at a time, and waits again.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from headrace.jobs.record import SCHED, Job

if TYPE_CHECKING:
    from headrace.modules.job_manager.core import Core


class Limited:
    """Jobs that wait for their turn with a scheduler whose `limit` is not 0."""

    def __init__(self, core: Core, limit: int) -> None:
        self.core = core
        self.limit = limit
        self._queued: list[tuple[int, int]] = []
        self._asked: dict[int, Job] = {}

    def push(self, job: Job) -> None:
        """A job in SCHED, with its present priority."""
        heapq.heappush(self._queued, (-job.priority, job.id))
        self.fill()

    def fill(self) -> None:
        """Ask for the most urgent jobs, as many as may be asked for."""
        while (job := self._head()) is not None and self.core.alloc_pending < self.limit:
            heapq.heappop(self._queued)
            self._asked[job.id] = job
            self.core.ask(job)
        if job is not None:
            self._make_room(job)

    def _head(self) -> Job | None:
        """The most urgent job that waits; entries that its changes left behind go."""
        while self._queued:
            priority, id = self._queued[0]
            job = self.core.active.get(id)
            if (
                job is not None
                and job.state == SCHED
                and job.priority == -priority > 0
                and not job.alloc_pending
                and self.core.queues.started(job.queue)
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
            self.core.cancel_alloc(last)
