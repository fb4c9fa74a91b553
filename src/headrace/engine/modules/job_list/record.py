"""A job in job-list: built event by event, and packed into a few bytes once it is inactive. Pure.

The service keeps every job that the instance has run, so the size of an inactive job matters. It is packed as a msgpack
array of about 150 bytes, in which repeated texts (name, directory, queue) are indexes of a shared table. A job's
attributes depend only on its events (RFC 21), not on the batches in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.engine.jobs.record import noted, users_own
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_exception import FATAL
from headrace.formats.spec.job_state import CLEANUP, COMPLETED, DEPEND, INACTIVE, NEW, PRIORITY, RUN, SCHED, result_of

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import Result, State

# In flux-core's order, which `attributes` uses for "all".
ATTRS = (
    "id",
    "userid",
    "urgency",
    "priority",
    "t_submit",
    "t_depend",
    "t_priority",
    "t_sched",
    "t_run",
    "t_cleanup",
    "t_inactive",
    "state",
    "name",
    "cwd",
    "queue",
    "project",
    "bank",
    "ntasks",
    "ncores",
    "duration",
    "nnodes",
    "ranks",
    "nodelist",
    "success",
    "exception_occurred",
    "exception_type",
    "exception_severity",
    "exception_note",
    "result",
    "expiration",
    "annotations",
    "dependencies",
    "waitstatus",
)
_PACKED = tuple(name for name in ATTRS if name not in ("id", "state", "dependencies"))
_packed = attrgetter(*_PACKED)
_SHARED = ("name", "cwd", "queue", "project", "bank")


# The largest count that is reported. Products of counts may be larger, but JSON readers lose precision beyond this.
_MOST = (1 << 53) - 1


class JobspecSummary(NamedTuple):
    """Attributes derived from a jobspec: size, name and limits."""

    jobspec: dict[str, Any] | None
    name: str | None
    cwd: str | None
    queue: str | None
    project: str | None
    bank: str | None
    duration: float
    ntasks: int | None
    nnodes: int | None
    ncores: int | None


NO_SUMMARY = JobspecSummary(None, None, None, None, None, None, 0.0, None, None, None)


def summarize(jobspec: dict[str, Any], last: JobspecSummary = NO_SUMMARY) -> JobspecSummary:
    """The attributes of a jobspec, for `Job.take_jobspec`.

    If the name is equal to the `last` jobspec's, the same string object is used, because thousands of waiting jobs may
    have the same name.
    """
    name = js.name(jobspec)
    system = js.system(jobspec)
    counts = js.counts(jobspec)
    return JobspecSummary(
        jobspec,
        last.name if name == last.name else name,
        system.get("cwd"),
        system.get("queue"),
        system.get("project"),
        system.get("bank"),
        float(system.get("duration") or 0.0),
        None if counts.ntasks is None else min(counts.ntasks, _MOST),
        counts.nnodes or None,
        # If whole nodes are requested, the number of cores is unknown until they are allocated.
        None if counts.exclusive else min(counts.ncores, _MOST),
    )


class Job:
    """A job's attributes (RFC 43); None for an attribute that is not set."""

    __slots__ = (*ATTRS, "jobspec")

    def __init__(self, id: int) -> None:
        for name in ATTRS:
            setattr(self, name, None)
        self.id = id
        self.state: State = NEW
        self.jobspec: dict[str, Any] | None = None

    id: int
    userid: int
    urgency: int
    priority: int | None
    annotations: dict[str, Any] | None
    dependencies: list[str] | None
    nnodes: int | None
    ncores: int | None
    ntasks: int | None
    nodelist: str | None
    ranks: str | None
    duration: float | None
    expiration: float | None
    exception_occurred: bool | None
    exception_type: str | None
    exception_severity: int | None
    exception_note: str | None
    success: bool | None
    result: Result | None
    waitstatus: int | None
    name: str | None
    cwd: str | None
    queue: str | None
    project: str | None
    bank: str | None
    t_submit: float
    t_run: float | None
    t_cleanup: float | None
    t_inactive: float | None

    def attributes(self, names: tuple[str, ...] = ATTRS) -> dict[str, Any]:
        """The attributes that are set, for a response. The id is always included."""
        out: dict[str, Any] = {"id": self.id}
        inactive = self.state == INACTIVE
        for name in names:
            value = getattr(self, name)
            if value is not None and (inactive or name not in _FINAL):
                out[name] = value
        return out

    # -- jobspec and R

    def take_jobspec(self, summary: JobspecSummary) -> None:
        """Set the attributes that are derived from the jobspec."""
        jobspec, self.name, self.cwd, self.queue, self.project, self.bank = summary[:6]
        # Only with this option, `take_r` needs the jobspec in addition to the summary.
        self.jobspec = jobspec if jobspec and js.shell_option(jobspec, "per-resource") else None
        self.duration, self.ntasks, self.nnodes, self.ncores = summary[6:]

    def take_r(self, r: dict[str, Any]) -> None:
        """Set the attributes that are derived from R (RFC 20)."""
        execution = r["execution"]
        groups = execution["R_lite"]
        self.nodelist = ",".join(execution.get("nodelist", []))
        self.expiration = execution.get("expiration", 0.0)
        if len(groups) == 1 and groups[0]["rank"].isdigit():
            self.ranks = groups[0]["rank"]
            self.nnodes = 1
            self.ncores = _width(groups[0]["children"].get("core", ""))
        else:
            ranks = Idset()
            cores = 0
            for group in groups:
                members = Idset.parse(group["rank"])
                ranks |= members
                cores += len(members) * _width(group["children"].get("core", ""))
            self.ranks, self.nnodes, self.ncores = ranks.encode(brackets=True), len(ranks), cores
        if self.jobspec is not None:
            nslots = js.counts(self.jobspec).nslots
            self.ntasks = js.task_count(self.jobspec, self.nnodes, nslots, self.ncores)

    # -- events (RFC 21)

    def take_event(self, time: float, name: str, context: dict[str, Any]) -> None:
        """Apply one event of the job's eventlog."""
        handler = _EVENTS.get(name)
        if handler is not None:
            handler(self, time, context)

    def _submit(self, time: float, context: dict[str, Any]) -> None:
        self.t_submit = time
        self.userid = context["userid"]
        self.urgency = context["urgency"]

    def _enter(self, state: State, time: float) -> None:
        self.state = state
        setattr(self, _ENTERED[state], time)

    def _priority(self, time: float, context: dict[str, Any]) -> None:
        self.priority = context["priority"]
        if self.state & (PRIORITY | SCHED):
            self._enter(SCHED, time)

    def _urgency(self, time: float, context: dict[str, Any]) -> None:
        self.urgency = context["urgency"]
        self._reprioritize(time)

    def _reprioritize(self, time: float) -> None:
        if self.state == SCHED:
            self.state = PRIORITY

    def _restart(self, time: float, context: dict[str, Any]) -> None:
        if context.get("requeue"):
            self._requeue(time, context)
        self._reprioritize(time)

    def _requeue(self, time: float, context: dict[str, Any]) -> None:
        """Make the job pending again, without resources."""
        if self.state == RUN:
            self._enter(PRIORITY, time)
            self.t_run = self.expiration = self.ranks = self.nodelist = None
            self.annotations = users_own(self.annotations)

    def _alloc(self, time: float, context: dict[str, Any]) -> None:
        if context.get("annotations"):
            self.annotations = context["annotations"]
        if self.state == SCHED:
            self._enter(RUN, time)

    def _finish(self, time: float, context: dict[str, Any]) -> None:
        self.waitstatus = context["status"]
        if self.state == RUN:
            self._enter(CLEANUP, time)

    def _exception(self, time: float, context: dict[str, Any]) -> None:
        severity = context["severity"]
        if self.exception_severity is None or severity < self.exception_severity:
            self.exception_type = context["type"]
            self.exception_severity = severity
            self.exception_note = context.get("note", "")
        if severity == FATAL and self.state < CLEANUP:
            self._enter(CLEANUP, time)

    def _clean(self, time: float, context: dict[str, Any]) -> None:
        self._enter(INACTIVE, time)
        self.exception_occurred = self.exception_severity is not None
        fatal = self.exception_type if self.exception_severity == FATAL else None
        self.result = result_of(fatal, self.waitstatus)
        self.success = self.result == COMPLETED
        self.dependencies = None
        self.jobspec = None

    def _dependency_add(self, time: float, context: dict[str, Any]) -> None:
        self.dependencies = [*(self.dependencies or []), context["description"]]

    def _dependency_remove(self, time: float, context: dict[str, Any]) -> None:
        others = [text for text in self.dependencies or [] if text != context["description"]]
        self.dependencies = others or None

    def _memo(self, time: float, context: dict[str, Any]) -> None:
        self.annotations = noted(self.annotations, context) or None

    def _annotations(self, time: float, context: dict[str, Any]) -> None:
        """Set all annotations of a job. The event is in the job manager's journal, but not in the eventlog."""
        self.annotations = context.get("annotations") or None

    def _jobspec_update(self, time: float, context: dict[str, Any]) -> None:
        for key, value in context.items():
            if key == "attributes.system.duration":
                self.duration = float(value)
            elif key == "attributes.system.queue":
                self.queue = value
            elif key == "attributes.system.job.name":
                self.name = value
            elif key in ("attributes.system.bank", "attributes.system.project"):
                setattr(self, key.rpartition(".")[2], value)
        self._reprioritize(time)

    def _resource_update(self, time: float, context: dict[str, Any]) -> None:
        if "expiration" in context:
            self.expiration = context["expiration"]


# The attribute with the time at which a state was entered.
_ENTERED: dict[State, str] = {
    DEPEND: "t_depend",
    PRIORITY: "t_priority",
    SCHED: "t_sched",
    RUN: "t_run",
    CLEANUP: "t_cleanup",
    INACTIVE: "t_inactive",
}

_FINAL = frozenset(
    ("success", "exception_occurred", "exception_type", "exception_severity", "exception_note", "result")
)

_EVENTS: dict[str, Callable[[Job, float, dict[str, Any]], None]] = {
    "submit": Job._submit,
    "validate": lambda job, time, context: job._enter(DEPEND, time),
    "depend": lambda job, time, context: job._enter(PRIORITY, time),
    "priority": Job._priority,
    "urgency": Job._urgency,
    "alloc": Job._alloc,
    "finish": Job._finish,
    "exception": Job._exception,
    "clean": Job._clean,
    "dependency-add": Job._dependency_add,
    "dependency-remove": Job._dependency_remove,
    "memo": Job._memo,
    "annotations": Job._annotations,
    "jobspec-update": Job._jobspec_update,
    "resource-update": Job._resource_update,
    "flux-restart": Job._restart,
    # This event is an extension of RFC 21.
    "requeue": Job._requeue,
}


def _width(ids: str) -> int:
    """The number of ids in an idset. Most idsets are one number or one range, so these are fast."""
    if not ids:
        return 0
    if ids.isdigit():
        return 1
    low, dash, high = ids.partition("-")
    if dash and low.isdigit() and high.isdigit():
        return int(high) - int(low) + 1
    return len(Idset.parse(ids))


class Packer:
    """Packs inactive jobs. Texts that jobs share are stored once."""

    # The largest number of shared texts; more of them would not save memory.
    _LIMIT = 20_000

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode

    def _number(self, text: str) -> int | str:
        number = self._numbers.get(text)
        if number is None:
            if len(self._texts) >= self._LIMIT:
                return text
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return number

    def pack(self, job: Job) -> bytes:
        """The attributes of an inactive job, without its id."""
        values: list[Any] = list(_packed(job))
        for name in _SHARED:
            where = _INDEX[name]
            if values[where] is not None:
                values[where] = self._number(values[where])
        annotations = job.annotations
        if annotations is not None and annotations.keys() == {"sched"}:
            sched = annotations["sched"]
            if isinstance(sched, dict) and sched.keys() == {"resource_summary"}:
                values[_INDEX["annotations"]] = sched["resource_summary"]
        while values and values[-1] is None:
            values.pop()
        return self._encode(values)

    def unpack(self, id: int, data: bytes) -> Job:
        """The job from the result of `pack`."""
        job = Job(id)
        job.state = INACTIVE
        values = self._decode(data)
        for name, value in zip(_PACKED, values):
            setattr(job, name, value)
        for name in _SHARED:
            value = getattr(job, name)
            if isinstance(value, int):
                setattr(job, name, self._texts[value])
        annotations: Any = job.annotations
        if isinstance(annotations, str):
            job.annotations = {"sched": {"resource_summary": annotations}}
        return job


_INDEX = {name: index for index, name in enumerate(_PACKED)}
