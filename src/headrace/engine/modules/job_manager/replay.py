"""Replay of the journal's records into an empty core, then handling of interrupted jobs. Pure.

A record that is already known has no effect, so a checkpoint may be newer than the first records after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.jobs.record import Event, Job, failure_text, summary
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.records import (
    EventsPosted,
    JobAdded,
    JobReaped,
    JobsPurged,
    LogAppended,
    QueuesChanged,
    Record,
    ResourcesSet,
)
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_exception import EXEC, FATAL
from headrace.formats.spec.job_state import CLEANUP, DEPEND, INACTIVE, RUN

_LOST_NOTE = "lost when the broker restarted"


def replay(core: Core, record: Record) -> None:
    """Replay a record of Core.take(); jobs that become inactive are added to `core.finished`."""
    match record:
        case QueuesChanged(_, settings):
            core.queues.restore(settings)
        case JobsPurged(_, ids):
            for id in ids:
                core.inactive.pop(id, None)
                core.zombies.pop(id, None)
        case JobReaped(id):
            core.zombies.pop(id, None)
        case JobAdded(id, jobspec):
            if id not in core.active and id not in core.inactive:
                restore(core, Job(id, jobspec))
        # If the job is not active, it has ended or was purged, so the record is ignored.
        case EventsPosted(id, (first, events)):
            if id in core.active:
                _replay_events(core, core.active[id], first, events)
        case ResourcesSet(id, r):
            if id in core.active:
                core.active[id].r = r
        case LogAppended():
            # The store keeps the logs.
            pass


def restore(core: Core, job: Job) -> None:
    """Add a job that was active."""
    core.active[job.id] = job
    core.max_jobid = max(core.max_jobid, job.id)
    core.count(job, 0)


def restore_inactive(core: Core, known: dict[int, int]) -> None:
    """Add summaries of inactive jobs, by id, in the order of their ends."""
    core.inactive.update(known)
    core.max_jobid = max(core.max_jobid, *known, 0)


def _replay_events(core: Core, job: Job, first: int, events: Sequence[Event]) -> None:
    was = job.state
    for event in events[max(len(job.events) - first, 0) :]:
        job.apply(event)
    core.count(job, was)
    if job.state == INACTIVE:
        del core.active[job.id]
        core.inactive[job.id] = summary(job)
        core.finished.append(job)
        if job.waitable:
            core.zombies[job.id] = failure_text(job)


def restart(core: Core) -> None:
    """After the replay, continue pending jobs and end running jobs, or requeue them if they request it."""
    jobs = sorted(core.active.values(), key=lambda job: job.id)
    for job in jobs:
        core.waiting.join_singletons(job)
    for job in jobs:
        if job.id in core.active:
            take_up(core, job)


def take_up(core: Core, job: Job, lost_note: str = _LOST_NOTE) -> None:
    """Continue a pending job; end a running job with the note `lost_note`, or requeue it."""
    ran = job.state == RUN
    requeues_left = core.requeues_left(job) if ran else None
    requeue = bool(requeues_left)
    core.post(job, "flux-restart", {"requeue": True} if requeue else None)
    if ran and not requeue:
        note = f"{lost_note}: {js.REQUEUED_ENOUGH}" if requeues_left == 0 else lost_note
        context = {"type": EXEC, "severity": FATAL, "note": note, "userid": core.owner}
        core.post(job, "exception", context)
    if job.state == CLEANUP and job.has_resources:
        # The scheduler does not know these resources, so no free request is needed.
        core.post(job, "free")
    if job.state == DEPEND:
        core.waiting.watch(job)
    if job.id in core.active:
        core.advance(job)
