"""The record of one job, derived from its eventlog (RFC 21), and the effect of each event on it. Pure.

State is derived from events alone, so a running job and a job read back from the journal have the same record. State
that is not derived (pending requests to the scheduler or the exec service) is empty after a replay. It is stored in the
attributes that `__init__` sets last.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Optional

from headrace.formats.spec.job_exception import FATAL
from headrace.formats.spec.job_state import (
    CLEANUP,
    DEPEND,
    FLAG_DEBUG,
    FLAG_NOVALIDATE,
    FLAG_WAITABLE,
    INACTIVE,
    NEW,
    PRIORITY,
    RUN,
    SCHED,
    result_of,
)
from headrace.formats.spec.urgency import URGENCY_DEFAULT

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import Result, State

# Timestamp (seconds), name, context.
Event = tuple[float, str, Optional[dict[str, Any]]]


class Job:
    """An active job. `jobspec` and `r` are current, with every update applied.

    After `put_away`, the jobspec is not in memory, and is loaded for each use.
    """

    __slots__ = (
        "_jobspec",
        "_load",
        "alloc_canceled",
        "alloc_pending",
        "annotations",
        "dependencies",
        "epilogs",
        "events",
        "fatal",
        "flags",
        "has_resources",
        "id",
        "priority",
        "prologs",
        "queue",
        "r",
        "released",
        "shown",
        "start_sent",
        "started",
        "state",
        "status",
        "t_submit",
        "urgency",
        "userid",
    )

    def __init__(self, id: int, jobspec: dict[str, Any]) -> None:
        self.id = id
        self._jobspec: dict[str, Any] | None = jobspec
        self._load: Callable[[], dict[str, Any]] = dict
        self.queue: str = jobspec["attributes"].get("system", {}).get("queue") or ""
        self.events: list[Event] = []
        self.userid = 0
        self.urgency = URGENCY_DEFAULT
        self.flags = 0
        self.t_submit = 0.0
        self.state: State = NEW
        self.priority = 0
        self.dependencies: dict[str, None] | None = None
        self.annotations: dict[str, Any] | None = None
        self.r: dict[str, Any] | None = None
        self.has_resources = False
        self.started = False
        self.released = False
        self.status: int | None = None
        self.fatal: tuple[str, str] | None = None
        self.prologs = 0
        self.epilogs = 0
        self.alloc_pending = False
        self.alloc_canceled = False
        self.start_sent = False
        # The number of events that are durable and were passed to watchers.
        self.shown = 0

    @property
    def jobspec(self) -> dict[str, Any]:
        return self._load() if self._jobspec is None else self._jobspec

    def put_away(self, load: Callable[[], dict[str, Any]]) -> None:
        """Drop the jobspec from memory: `load` returns it, with the updates in `events`."""
        self._jobspec, self._load = None, load

    def apply(self, event: Event) -> None:
        """Append an event and apply its effect. An event that RFC 21 does not define has none."""
        self.events.append(event)
        handler = _EVENTS.get(event[1])
        if handler is not None:
            handler(self, event[0], event[2] or _NOTHING)

    @property
    def waitable(self) -> bool:
        return bool(self.flags & FLAG_WAITABLE)

    @property
    def expiration(self) -> float:
        """The end of the job's time limit in seconds since the epoch, or 0 without a limit."""
        return float(self.r["execution"].get("expiration") or 0.0) if self.r is not None else 0.0

    def ends_after(self, duration: float) -> float:
        """The end of a running job's time if it may run `duration` seconds in total (0: no limit)."""
        if not duration:
            return 0.0
        assert self.r is not None
        started = self.r["execution"].get("starttime") or next(time for time, name, _ in self.events if name == "alloc")
        return float(started) + duration

    @property
    def result(self) -> Result:
        """The result of the job: COMPLETED, FAILED, CANCELED or TIMEOUT."""
        return result_of(self.fatal[0] if self.fatal is not None else None, self.status)


_NOTHING: dict[str, Any] = {}


def _submit(job: Job, time: float, context: dict[str, Any]) -> None:
    job.t_submit = time
    job.userid = context["userid"]
    job.urgency = context["urgency"]
    job.flags = context["flags"]


def _validate(job: Job, time: float, context: dict[str, Any]) -> None:
    job.state = DEPEND


def _depend(job: Job, time: float, context: dict[str, Any]) -> None:
    if job.state == DEPEND:
        job.state = PRIORITY


def _dependency_add(job: Job, time: float, context: dict[str, Any]) -> None:
    if job.dependencies is None:
        job.dependencies = {}
    job.dependencies[context["description"]] = None


def _dependency_remove(job: Job, time: float, context: dict[str, Any]) -> None:
    if job.dependencies is not None:
        job.dependencies.pop(context["description"], None)


def _set_flags(job: Job, time: float, context: dict[str, Any]) -> None:
    for name in context["flags"]:
        job.flags |= {"debug": FLAG_DEBUG, "waitable": FLAG_WAITABLE, "novalidate": FLAG_NOVALIDATE}.get(name, 0)


def _priority(job: Job, time: float, context: dict[str, Any]) -> None:
    job.priority = context["priority"]
    if job.state == PRIORITY:
        job.state = SCHED


def _reprioritize(job: Job) -> None:
    if job.state == SCHED:
        job.state = PRIORITY


def _urgency(job: Job, time: float, context: dict[str, Any]) -> None:
    job.urgency = context["urgency"]
    _reprioritize(job)


# The arguments and the result of the latest update of a jobspec.
_latest_update: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})


def _jobspec_update(job: Job, time: float, context: dict[str, Any]) -> None:
    global _latest_update
    before, latest, jobspec = _latest_update
    # Equal jobs have one jobspec object, and the policy updates them by one context. They share the result.
    old = job.jobspec
    if context is not latest or old is not before:
        jobspec = updated_jobspec(old, context)
        _latest_update = (old, context, jobspec)
    if job._jobspec is not None:
        job._jobspec = jobspec
    job.queue = jobspec["attributes"].get("system", {}).get("queue") or ""
    _reprioritize(job)


def _resource_update(job: Job, time: float, context: dict[str, Any]) -> None:
    if job.r is not None:
        job.r = updated_r(job.r, context)


def _flux_restart(job: Job, time: float, context: dict[str, Any]) -> None:
    if context.get("requeue"):
        _requeue(job, time, context)
    _reprioritize(job)


def _requeue(job: Job, time: float, context: dict[str, Any]) -> None:
    """Make a job pending again that has lost its resources."""
    if job.state == RUN:
        job.state = PRIORITY
        job.r, job.has_resources, job.started = None, False, False
        job.annotations = users_own(job.annotations)


def users_own(annotations: dict[str, Any] | None) -> dict[str, Any] | None:
    """The user's own annotations, which a job keeps when it loses its resources.

    The scheduler's annotations describe those resources. The `uri` is dropped too: it is the address of an instance
    that has ended with them.
    """
    own = annotations.get("user") if annotations else None
    others = {key: value for key, value in own.items() if key != "uri"} if isinstance(own, dict) else None
    return {"user": others} if others else None


def requeues(job: Job) -> int:
    """The number of times that a job was queued again after its resources were lost."""
    return sum(map(_is_requeue, job.events))


def _is_requeue(event: Event) -> bool:
    _, name, context = event
    return name == "requeue" or (name == "flux-restart" and context is not None and bool(context.get("requeue")))


def _alloc(job: Job, time: float, context: dict[str, Any]) -> None:
    job.has_resources = True
    if "annotations" in context:
        job.annotations = context["annotations"]
    if job.state == SCHED:
        job.state = RUN


def _prolog_start(job: Job, time: float, context: dict[str, Any]) -> None:
    job.prologs += 1


def _prolog_finish(job: Job, time: float, context: dict[str, Any]) -> None:
    job.prologs = max(job.prologs - 1, 0)


def _epilog_start(job: Job, time: float, context: dict[str, Any]) -> None:
    job.epilogs += 1


def _epilog_finish(job: Job, time: float, context: dict[str, Any]) -> None:
    job.epilogs = max(job.epilogs - 1, 0)


def _start(job: Job, time: float, context: dict[str, Any]) -> None:
    job.started = True


def _finish(job: Job, time: float, context: dict[str, Any]) -> None:
    job.status = context["status"]
    if job.state == RUN:
        job.state = CLEANUP


def _release(job: Job, time: float, context: dict[str, Any]) -> None:
    job.released = job.released or context["final"]


def _free(job: Job, time: float, context: dict[str, Any]) -> None:
    job.has_resources = False


def _clean(job: Job, time: float, context: dict[str, Any]) -> None:
    job.state = INACTIVE


def _exception(job: Job, time: float, context: dict[str, Any]) -> None:
    if context["severity"] == FATAL:
        if job.fatal is None:
            job.fatal = (context["type"], context.get("note") or "")
        if job.state != INACTIVE:
            job.state = CLEANUP


def _memo(job: Job, time: float, context: dict[str, Any]) -> None:
    job.annotations = noted(job.annotations, context)


_EVENTS: dict[str, Callable[[Job, float, dict[str, Any]], None]] = {
    "submit": _submit,
    "validate": _validate,
    "depend": _depend,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "set-flags": _set_flags,
    "priority": _priority,
    "urgency": _urgency,
    "jobspec-update": _jobspec_update,
    "resource-update": _resource_update,
    "flux-restart": _flux_restart,
    # This event is an extension of RFC 21.
    "requeue": _requeue,
    "alloc": _alloc,
    "prolog-start": _prolog_start,
    "prolog-finish": _prolog_finish,
    "epilog-start": _epilog_start,
    "epilog-finish": _epilog_finish,
    "start": _start,
    "finish": _finish,
    "release": _release,
    "free": _free,
    "clean": _clean,
    "exception": _exception,
    "memo": _memo,
}


def merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Merge `change` into a copy of `old`, table by table. null removes a key (RFC 27, annotations)."""
    out = dict(old)
    for key, value in change.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            inner = out.get(key)
            table = merged(inner if isinstance(inner, dict) else {}, value)
            if table:
                out[key] = table
            else:
                out.pop(key, None)
        else:
            out[key] = value
    return out


# The latest memo of `noted`, the annotations of a job that has only this memo, and whether it has no inner tables.
_latest_memo: tuple[dict[str, Any], dict[str, Any], bool] = ({}, {}, True)


def noted(annotations: dict[str, Any] | None, memo: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a job with a memo.

    Thousands of waiting jobs get one memo, the same object. Those that have no others share their annotations.
    """
    global _latest_memo
    latest, alone, is_flat = _latest_memo
    if memo is not latest:
        alone = merged({}, {"user": memo})
        is_flat = not any(isinstance(value, dict) for value in memo.values())
        _latest_memo = (memo, alone, is_flat)
    if not annotations:
        return alone
    own = annotations.get("user") if is_flat and len(annotations) == 1 else None
    if isinstance(own, dict) and own.keys() <= memo.keys():
        return alone
    return merged(annotations, {"user": memo})


def updated_jobspec(jobspec: dict[str, Any], updates: dict[str, Any]) -> dict[str, Any]:
    """The jobspec with `{"attributes.system.duration": 60, ...}` set. It shares all unchanged parts."""
    out = dict(jobspec)
    for path, value in updates.items():
        here = out
        *parents, last = path.split(".")
        for name in parents:
            inner = here.get(name)
            here[name] = dict(inner) if isinstance(inner, dict) else {}
            here = here[name]
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    return out


def updated_r(r: dict[str, Any], updates: dict[str, Any]) -> dict[str, Any]:
    """R with the `execution` keys of a resource-update event set."""
    return {**r, "execution": {**r["execution"], **updates}}


def current_r(r: dict[str, Any], events: Iterable[Event]) -> dict[str, Any]:
    """R with all updates since the job was last queued again: earlier updates are about lost resources."""
    updates: dict[str, Any] = {}
    for event in events:
        _, name, context = event
        if _is_requeue(event):
            updates = {}
        elif name == "resource-update" and context:
            updates.update(context)
    return updated_r(r, updates) if updates else r


def failure_text(job: Job) -> str:
    """The reason why a job failed, in the words of `flux job wait`; "" if it succeeded."""
    if job.fatal is not None:
        kind, note = job.fatal
        return f"Fatal exception type={kind} {note}".rstrip()
    status = job.status
    if status is None:
        return "job did not run"
    if status & 0x7F:
        return f"job shell {_signal_text(status & 0x7F)}"
    code = status >> 8
    if code > 128:
        return f"task(s) {_signal_text(code - 128)}"
    return f"task(s) exited with exit code {code}" if code else ""


def _signal_text(number: int) -> str:
    try:
        return signal.strsignal(number) or f"died by signal {number}"
    except ValueError:
        return f"died by signal {number}"


_RESULT = 0x0F
_STARTED = 0x10
_EXCEPTED = 0x20


def summary(job: Job) -> int:
    """The essential data of an inactive job in one number: end, user, whether it started, result."""
    ended = int(job.events[-1][0] * 1000)
    flags = (_STARTED if job.started else 0) | (_EXCEPTED if job.fatal is not None else 0)
    return ended << 40 | job.userid << 8 | flags | job.result


def inactive_since(known: int) -> float:
    """The end of a summary's job in seconds since the epoch, with milliseconds."""
    return (known >> 40) / 1000


def inactive_user(known: int) -> int:
    """The user id in a summary."""
    return known >> 8 & 0xFFFFFFFF


def inactive_result(known: int) -> int:
    """The result in a summary."""
    return known & _RESULT


def inactive_excepted(known: int) -> bool:
    """True if the job of a summary had a fatal exception."""
    return bool(known & _EXCEPTED)


def inactive_started(known: int) -> bool:
    """True if the job of a summary ever started."""
    return bool(known & _STARTED)
