"""Jobs restored from an archive of another instance's KVS (`flux restore`), as if they had run here.

Inactive jobs are unchanged. Pending jobs stay pending; the scheduler refuses them if this instance is too small. Jobs
that were running when the archive was written are ended with a note, or requeued if they request it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.engine.jobs.pack import Submission, events_of, split_j
from headrace.engine.jobs.record import Event, Job, current_r, failure_text, summary
from headrace.engine.jobs.storable import unstorable
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.records import JobAdded, ResourcesSet
from headrace.engine.modules.job_manager.replay import take_up
from headrace.engine.modules.job_manager.store import GUEST_LOGS, Store
from headrace.formats.spec.job_state import FLAG_WAITABLE, INACTIVE

LOST_NOTE = "the job was running when its instance was saved"

# The largest integer that the checkpoint's database can store.
_MOST_ID = (1 << 63) - 1
_ENVIRONMENT = ("attributes", "system", "environment")


class RestoreError(ValueError):
    """Invalid data of a job. The text names the key and the reason."""


def add(core: Core, store: Store, id: int, data: dict[str, str]) -> Job | None:
    """Add the job `id` from the values of its RFC 16 keys; None if the id is in use. Raises RestoreError.

    An active job is not advanced before `resume`.
    """
    if id in core.active or id in core.inactive or id in store:
        return None
    if not 0 < id <= _MOST_ID:
        raise RestoreError("id: it has more than 63 bits")
    submission, jobspec = _submission(store, data)
    events = _events(data.get("eventlog", ""))
    job = Job(id, jobspec)
    try:
        for event in events:
            job.apply(event)
    except (KeyError, TypeError, ValueError) as exc:
        raise RestoreError(f"eventlog: {exc!r}") from None
    if job.has_resources or job.started or job.state == INACTIVE:
        job.r = _r(data, events)
    core.records.append(JobAdded(id, jobspec))
    if job.r is not None:
        core.records.append(ResourcesSet(id, job.r))
    # None of its events is in the journal yet.
    core.dirty[job] = 0
    core.max_jobid = max(core.max_jobid, id)
    store.add(job, submission)
    for name in GUEST_LOGS:
        if data.get(name):
            store.append(id, name, data[name].encode("utf-8", "surrogateescape"))
    if job.state != INACTIVE:
        core.active[id] = job
        # The job was not counted in any state before.
        core.count(job, 0)
        core.policy.count(job)
        return job
    core.inactive[id] = summary(job)
    core.finished.append(job)
    if job.flags & FLAG_WAITABLE:
        core.zombies[id] = failure_text(job)
    return job


def resume(core: Core, jobs: list[Job]) -> None:
    """Continue the active jobs among `jobs`, after all are restored: they may depend on each other."""
    waiting = sorted((job for job in jobs if core.active.get(job.id) is job), key=lambda job: job.id)
    for job in waiting:
        core.waiting.join_singletons(job)
    for job in waiting:
        if job.id in core.active:
            take_up(core, job, LOST_NOTE)


def _submission(store: Store, data: dict[str, str]) -> tuple[Submission, dict[str, Any]]:
    """The submission, and the jobspec with the changes of ingest and with the environment."""
    try:
        head, text, tail = split_j(data["J"]) if "J" in data else (b"", data["jobspec"].encode(), b"")
        original: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        stored: dict[str, Any] = msgspec.json.decode(data.get("jobspec", text), type=dict[str, Any])
    except KeyError:
        raise RestoreError("there is neither J nor jobspec") from None
    except (ValueError, RecursionError) as exc:
        raise RestoreError(f"jobspec: {exc}") from None
    _check_storable("jobspec", (original, stored))
    updates: dict[str, Any] = {}
    _differences(original, stored, (), updates)
    first, second = store.texts.encode(text)
    submission = Submission(head, first, tail, updates or None, second)
    jobspec = store.original(submission)
    kinds = {"resources": list, "tasks": list, "attributes": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(jobspec.get(key), kind)]
    if not wrong and not isinstance(jobspec["attributes"].get("system", {}), dict):
        wrong = ["attributes.system"]
    if wrong:
        raise RestoreError(f"jobspec: {', '.join(wrong)}: missing, or not of the kind that RFC 14 requires")
    return submission, jobspec


def _check_storable(what: str, values: Iterable[Any]) -> None:
    """Refuse data that the journal cannot keep. Raises RestoreError."""
    for value in values:
        why = unstorable(value)
        if why:
            raise RestoreError(f"{what}: {why}")


def _differences(old: dict[str, Any], new: dict[str, Any], path: tuple[str, ...], out: dict[str, Any]) -> None:
    """Collect in `out`, by dotted path, the changes that ingest made to a jobspec.

    The value None means that ingest removed the key. The environment is skipped, because only the submission has it.
    Keys that contain a dot are skipped too, because a dotted path cannot name them: their values come from the
    submission.
    """
    for key in [*old, *(key for key in new if key not in old)]:
        here = (*path, key)
        if here == _ENVIRONMENT:
            continue
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            _differences(before, after, here, out)
        elif before != after and "." not in key:
            out[".".join(here)] = after


def _events(text: str) -> list[Event]:
    try:
        events = events_of(text)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RestoreError(f"eventlog: {exc}") from None
    if not events or events[0][1] != "submit":
        raise RestoreError("eventlog: it does not begin with submit")
    _check_storable("eventlog", (context for _, _, context in events))
    return events


def _r(data: dict[str, str], events: list[Event]) -> dict[str, Any] | None:
    """R with all updates; None if the job had no R."""
    if "R" not in data:
        return None
    try:
        r: dict[str, Any] = msgspec.json.decode(data["R"], type=dict[str, Any])
        r["execution"]["R_lite"]
    except (KeyError, TypeError, msgspec.DecodeError, RecursionError) as exc:
        raise RestoreError(f"R: {exc!r}") from None
    _check_storable("R", (r,))
    return current_r(r, events)
