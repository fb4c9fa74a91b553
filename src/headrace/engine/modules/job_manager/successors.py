"""Which pending job takes over the resources of an ended job, as decided by the scheduler before the end. Pure.

Without this, a scheduler in another process is told of each end and responds with an allocation, which takes one round
trip for every job. If its response is certain, it names the successors beforehand, and the loop turn in which a job
ends allocates the resources to the next one (docs/dev/interfaces.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from headrace.engine.jobs.record import Job
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import SCHED


class Successors:
    """Ids of waiting jobs, in the order in which they take over, one each, what a job of the same request gives back.

    `active` are all jobs that are not over, by id. `expiration` is when the instance ends, in seconds since the epoch;
    0 for never.
    """

    def __init__(self, active: Mapping[int, Job]) -> None:
        self._active = active
        self._ids: deque[int] = deque()
        self.expiration = 0.0

    def name(self, ids: list[int], expiration: float) -> None:
        """Replace the scheduler's list."""
        self._ids, self.expiration = deque(ids), expiration

    def forget(self) -> None:
        """Drop the scheduler's list, as its premises have changed."""
        self._ids.clear()

    def asked(self, job: Job) -> None:
        """Drop the list if `job`, which is pending now, precedes one in it: only the scheduler knows its place."""
        last = self._active.get(self._ids[-1]) if self._ids else None
        if last is not None and job.priority > last.priority:
            self.forget()

    def take(self, job: Job) -> Job | None:
        """The successor of an ended job, None if the scheduler has to choose.

        A job with a fatal exception has none: its nodes may be lost.
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
        """R of the successor: the ended job's, for the successor's own time from `now` on."""
        assert job.r is not None
        ends, duration = self.expiration, js.duration(successor.jobspec)
        if duration:
            ends = min(now + duration, ends or now + duration)
        return {**job.r, "execution": {**job.r["execution"], "starttime": now, "expiration": ends}}


def notes(job: Job, successor: Job) -> dict[str, Any]:
    """The successor's annotations, as the scheduler would set them: the ended job's, without its reasons."""
    dropped = dict.fromkeys((successor.annotations or {}).get("sched", ()))
    return {"sched": {**dropped, **(job.annotations or {}).get("sched", {})}}


def _waits(job: Job) -> bool:
    return job.state == SCHED and job.alloc_pending and not job.alloc_canceled


def _same_request(a: Job, b: Job) -> bool:
    """Whether two jobs differ for a scheduler only in their priorities."""
    if a.queue != b.queue:
        return False
    one, other = js.system(a.jobspec), js.system(b.jobspec)
    return (
        a.jobspec["resources"] == b.jobspec["resources"]
        and one.get("duration") == other.get("duration")
        and one.get("constraints") == other.get("constraints")
    )
