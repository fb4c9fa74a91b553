"""Who takes over what an ended job held: the scheduler's word, given ahead of time. Pure.

A scheduler in a process of its own hears of an end and answers with a start, which is one way and back between two
processes in every job's way. Where the answer is certain beforehand it names heirs (docs/dev/interfaces.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from headrace.modules.jobs_record import SCHED, Job
from headrace.spec import jobspec as js


class Heirs:
    """Waiting jobs by id, in the order in which they take over, one each, what a job of the same request gives back.

    `expiration` is when the instance ends, in seconds since the epoch; 0 for never.
    """

    def __init__(self) -> None:
        self._ids: deque[int] = deque()
        self.expiration = 0.0

    def name(self, ids: list[int], expiration: float) -> None:
        """The scheduler's word, until it has another."""
        self._ids, self.expiration = deque(ids), expiration

    def forget(self) -> None:
        """What the scheduler said does not hold any more."""
        self._ids.clear()

    def asked(self, job: Job, active: Mapping[int, Job]) -> None:
        """Another job waits now: if it goes before some of the heirs, only the scheduler knows before which."""
        last = active.get(self._ids[-1]) if self._ids else None
        if last is not None and job.priority > last.priority:
            self._ids.clear()

    def take(self, job: Job, active: Mapping[int, Job]) -> Job | None:
        """The heir of an ended job. What had a fatal exception leaves nothing: its nodes may be lost."""
        while self._ids and job.fatal is None:
            heir = active.get(self._ids[0])
            waits = heir is not None and heir.state == SCHED and heir.alloc_pending and not heir.alloc_canceled
            if heir is not None and waits:
                if not _same_request(job, heir):
                    break
                self._ids.popleft()
                return heir
            self._ids.popleft()
        return None

    def resources(self, job: Job, heir: Job, now: float) -> dict[str, Any]:
        """R of the heir: the ended job's, for the heir's own time."""
        assert job.r is not None
        ends, duration = self.expiration, js.duration(heir.jobspec)
        if duration:
            ends = min(now + duration, ends or now + duration)
        return {**job.r, "execution": {**job.r["execution"], "starttime": now, "expiration": ends}}


def notes(job: Job, heir: Job) -> dict[str, Any]:
    """What the scheduler would say of the heir: as of the ended job, and nothing of why it waited."""
    gone = dict.fromkeys((heir.annotations or {}).get("sched", ()))
    return {"sched": {**gone, **(job.annotations or {}).get("sched", {})}}


def _same_request(a: Job, b: Job) -> bool:
    """Whether a scheduler cannot tell two jobs apart but by their priorities."""
    if a.queue != b.queue:
        return False
    one, other = js.system(a.jobspec), js.system(b.jobspec)
    return (
        a.jobspec["resources"] == b.jobspec["resources"]
        and one.get("duration") == other.get("duration")
        and one.get("constraints") == other.get("constraints")
    )
