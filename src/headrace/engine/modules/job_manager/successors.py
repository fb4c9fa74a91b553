"""Pending jobs that take over the resources of ended jobs, as the scheduler decided beforehand. Pure.

Without successors, each end of a job takes a round trip to a scheduler in another process: a free request, then an
allocation. If the scheduler's decision is certain in advance, it names the successors beforehand. The loop turn in
which a job ends then allocates the resources to the next job (docs/dev/interfaces.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from headrace.engine.jobs.record import Job
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import SCHED


class Successors:
    """Ids of pending jobs, in the order in which they take over resources.

    Each successor takes over the resources of one ended job with the same resource request. `active` are all active
    jobs by id. `expiration` is the end of the instance in seconds since the epoch; 0 means never.
    """

    def __init__(self, active: Mapping[int, Job]) -> None:
        self._active = active
        self._ids: deque[int] = deque()
        self.expiration = 0.0

    def name(self, ids: list[int], expiration: float) -> None:
        """Replace the scheduler's list."""
        self._ids, self.expiration = deque(ids), expiration

    def forget(self) -> None:
        """Drop the scheduler's list, because it may be outdated."""
        self._ids.clear()

    def asked(self, job: Job) -> None:
        """Drop the list if the newly pending `job` precedes a job in it.

        Only the scheduler knows the place of `job`.
        """
        last = self._active.get(self._ids[-1]) if self._ids else None
        if last is not None and job.priority > last.priority:
            self.forget()

    def take(self, job: Job) -> Job | None:
        """The successor of an ended job; None if the scheduler has to choose.

        A job with a fatal exception has no successor, because its nodes may be lost.
        """
        while self._ids and job.fatal is None:
            successor = self._active.get(self._ids[0])
            if successor is None or not _waits(successor):
                # The job was started or canceled after the scheduler made the list.
                self._ids.popleft()
            elif not _same_request(job, successor):
                break
            else:
                self._ids.popleft()
                return successor
        return None

    def resources(self, job: Job, successor: Job, now: float) -> dict[str, Any]:
        """R of the successor: the ended job's R, with start time `now` and the successor's own expiration."""
        assert job.r is not None
        ends, duration = self.expiration, js.duration(successor.jobspec)
        if duration:
            ends = min(now + duration, ends or now + duration)
        return {**job.r, "execution": {**job.r["execution"], "starttime": now, "expiration": ends}}


def notes(job: Job, successor: Job) -> dict[str, Any]:
    """The annotations that the scheduler would set: the ended job's, without the successor's old ones."""
    dropped = dict.fromkeys((successor.annotations or {}).get("sched", ()))
    return {"sched": {**dropped, **(job.annotations or {}).get("sched", {})}}


def _waits(job: Job) -> bool:
    return job.state == SCHED and job.alloc_pending and not job.alloc_canceled


def _same_request(a: Job, b: Job) -> bool:
    """True if two jobs are equal for a scheduler, except for their priorities."""
    if a.queue != b.queue:
        return False
    one, other = js.system(a.jobspec), js.system(b.jobspec)
    return (
        a.jobspec["resources"] == b.jobspec["resources"]
        and one.get("duration") == other.get("duration")
        and one.get("constraints") == other.get("constraints")
    )
