"""Jobs from job-list (RFC 43), as JobInfo objects with the fields that clients derive."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional

from flux.job.JobID import JobID, to_id
from flux.rpc import RPC
from headrace.query import instance_info
from headrace.query import job_info as fields
from headrace.spec.job_state import INACTIVE
from headrace.spec.message import USERID_UNKNOWN

if TYPE_CHECKING:
    from flux.core.handle import Flux


class _View:
    """A dictionary whose keys are attributes; a missing attribute is empty."""

    def __init__(self, values: Dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._values.get(name, "")
        return _View(value) if isinstance(value, dict) else value

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


# Attributes of a job that are objects here, and those that job-list sends by another name.
_OBJECTS = ("id", "exception", "annotations", "sched", "user")
_RENAMED = {"state_id": "state", "result_id": "result"}


class JobInfo:
    """One job: every attribute of RFC 43, and status, runtime, returncode, result and so on, derived from these.

    `_NAME` is the attribute NAME as job-list sent it, or its default; numbers of state and result are `_state_id` and
    `_result_id`.
    """

    def __init__(self, raw: Dict[str, Any]) -> None:
        self._raw = raw
        self._info = fields.JobInfo(raw)

    @property
    def id(self) -> JobID:
        return JobID(self._raw["id"])

    @property
    def exception(self) -> SimpleNamespace:
        """`occurred`, `severity`, `type` and `note`, which programs also take from its `__dict__`."""
        raw = self._raw
        values = {name: raw.get("exception_" + name, "") for name in ("severity", "type", "note")}
        return SimpleNamespace(occurred=bool(raw.get("exception_occurred")), **values)

    @property
    def annotations(self) -> _View:
        return _View(self._raw.get("annotations", {}))

    @property
    def sched(self) -> _View:
        return _View(self._raw.get("annotations", {}).get("sched", {}))

    @property
    def user(self) -> _View:
        return _View(self._raw.get("annotations", {}).get("user", {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return self._sent(name)
        if not self._info.has(name):
            raise AttributeError(f"invalid JobInfo attribute '{name}'")
        return self._info.get(name)

    def _sent(self, name: str) -> Any:
        key = name[1:]
        if key in _OBJECTS:
            return getattr(self, key)
        sent = _RENAMED.get(key, key)
        # A copy is made by asking for `_raw` before it is there.
        values = {} if key == "raw" else {"dependencies": [], **fields.DEFAULTS, **self._raw}
        if sent not in values or key in _RENAMED.values():
            raise AttributeError(name)
        return values[sent]

    def get_instance_info(self) -> JobInfo:
        """Ask the instance that the job runs, if it does, for what `instance` has; returns this object."""
        self._info.instance = instance_info.ask(self._info)
        return self

    @property
    def instance(self) -> _View:
        """Jobs and resources of the job's instance (`instance.stats.running`); empty before `get_instance_info`."""
        tree: Dict[str, Any] = {}
        # The deepest first, since `stats` is a text beside its parts `stats.NAME`, and an attribute is the parts.
        for name, value in sorted(self._info.instance.items(), key=lambda item: -item[0].count(".")):
            *parents, last = name.split(".")[1:]
            here = tree
            for parent in parents:
                here = here.setdefault(parent, {})
            here.setdefault(last, value)
        return _View(tree)

    def get_runtime(self) -> float:
        return float(self._info.get("runtime"))

    def get_remaining_time(self) -> float:
        return float(self._info.get("t_remaining"))

    def to_dict(self, filtered: bool = True) -> Dict[str, Any]:
        """The job's fields; those that do not apply are omitted, or empty without `filtered`."""
        fields_ = {} if filtered else {name: self._info.get(name) for name in (*fields.DEFAULTS, *_ALWAYS)}
        return {**fields_, **self._info.to_dict()}


_ALWAYS = ("runtime", "returncode", "result", "t_remaining", "uri")


class JobListRPC(RPC):
    """A listing: `.get_jobs()` returns dictionaries, `.get_jobinfos()` objects."""

    def get_jobs(self) -> List[Dict[str, Any]]:
        jobs: List[Dict[str, Any]] = self.get()["jobs"]
        return jobs

    def get_jobinfos(self) -> Iterator[JobInfo]:
        return (JobInfo(job) for job in self.get_jobs())

    def get(self) -> Any:
        """The whole listing, which is streamed."""
        if not hasattr(self, "_all"):
            self._all: Dict[str, Any] = {"jobs": []}
            for answer in self._call:
                self._all["jobs"].extend(answer["jobs"])
        return self._all


class JobListIdRPC(RPC):
    """One job: `.get_job()` returns a dictionary, `.get_jobinfo()` an object."""

    def get_job(self) -> Dict[str, Any]:
        job: Dict[str, Any] = self.get()["job"]
        return job

    def get_jobinfo(self) -> JobInfo:
        return JobInfo(self.get_job())


_STREAMING = 2


def job_list(
    flux_handle: Flux,
    max_entries: int = 1000,
    attrs: Iterable[str] = ("all",),
    userid: Optional[int] = None,
    states: int = 0,
    results: int = 0,
    since: float = 0.0,
    name: Optional[str] = None,
    queue: Optional[str] = None,
    constraint: Optional[Dict[str, Any]] = None,
) -> JobListRPC:
    """List jobs, by default the user's own; `states` and `results` are bit masks, 0 for all."""
    terms: List[Dict[str, Any]] = []
    user = os.getuid() if userid is None else userid
    if user != USERID_UNKNOWN:
        terms.append({"userid": [user]})
    if name:
        terms.append({"name": [name]})
    if queue:
        terms.append({"queue": [queue]})
    if states or results:
        terms.append({"or": [{"states": [states]}] * bool(states) + [{"results": [results]}] * bool(results)})
    if constraint:
        terms.append(constraint)
    body = {"max_entries": max_entries, "attrs": list(attrs), "since": since, "constraint": {"and": terms}}
    return JobListRPC(flux_handle, "job-list.list", body, flags=_STREAMING)


def job_list_inactive(flux_handle: Flux, since: float = 0.0, max_entries: int = 1000, **options: Any) -> JobListRPC:
    return job_list(flux_handle, max_entries=max_entries, since=since, states=INACTIVE, **options)


def job_list_id(flux_handle: Flux, jobid: Any, attrs: Iterable[str] = ("all",)) -> JobListIdRPC:
    return JobListIdRPC(flux_handle, "job-list.list-id", {"id": to_id(jobid), "attrs": list(attrs)})


def get_job(flux_handle: Flux, jobid: Any) -> Optional[Dict[str, Any]]:
    """The job as a dictionary of derived fields; None if there is none."""
    try:
        return job_list_id(flux_handle, jobid).get_jobinfo().to_dict(filtered=False)
    except FileNotFoundError:
        return None


class JobList:
    """A listing by ids or filters; `.jobs()` requests it. Raises ValueError for an unknown filter or user."""

    def __init__(
        self,
        flux_handle: Flux,
        attrs: Iterable[str] = ("all",),
        filters: Iterable[str] = (),
        ids: Iterable[Any] = (),
        user: Optional[str] = None,
        max_entries: int = 1000,
        since: float = 0.0,
        name: Optional[str] = None,
        queue: Optional[str] = None,
        constraint: Optional[Dict[str, Any]] = None,
    ) -> None:
        from headrace.query.listing import Query

        self.handle = flux_handle
        self.attrs = list(attrs)
        self.ids = [to_id(number) for number in ids]
        self.errors: List[str] = []
        self._query = Query(max_entries, since)
        if user is not None:
            self._query.user(user)
        for text in filters:
            self._query.filter(text)
        if name:
            self._query.add("name", [name])
        if queue:
            self._query.add("queue", [queue])
        self._constraint = constraint

    def set_user(self, user: str) -> None:
        self._query.user(user)

    def add_filter(self, text: str) -> None:
        self._query.filter(text)

    def jobs(self) -> List[JobInfo]:
        if not self.ids:
            body = self._query.request(self.attrs)
            if self._constraint:
                body["constraint"] = {"and": [body["constraint"], self._constraint]}
            return list(JobListRPC(self.handle, "job-list.list", body, flags=_STREAMING).get_jobinfos())
        found = []
        for number in self.ids:
            try:
                found.append(job_list_id(self.handle, number, self.attrs).get_jobinfo())
            except FileNotFoundError:
                self.errors.append(f"JobID {JobID(number)} unknown")
        return found


def statetostr(state: int, fmt: str = "L") -> str:
    """The name of a job state; short with fmt "S"."""
    return fields.STATES_SINGLE[state] if fmt == "S" else fields.STATES[state]


def resulttostr(result: int, fmt: str = "L") -> str:
    return fields.RESULTS_SHORT[result] if fmt == "S" else fields.RESULTS[result]


def get_username(userid: int) -> str:
    return fields.username(userid)


def statustostr(name: str, fmt: str = "L") -> str:
    """The name of a status; short with fmt "S"."""
    short = {**_SHORT_STATUS, **{v: fields.RESULTS_SHORT[k] for k, v in fields.RESULTS.items()}}
    return short.get(name, name) if fmt == "S" else name


_SHORT_STATUS = {name: fields.STATES_SINGLE[bit] for bit, name in fields.STATES.items()}


def statetoemoji(state: int) -> str:
    return str(JobInfo({"id": 0, "state": state}).state_emoji)


def resulttoemoji(result: int) -> str:
    return str(JobInfo({"id": 0, "state": INACTIVE, "result": result}).result_emoji)


def job_fields_to_attrs(names: Iterable[str]) -> List[str]:
    """The attributes of job-list from which the fields of a format are derived."""
    return list(fields.attributes_for(list(names)))


class JobInfoFormat:
    """A format string of `flux jobs -o`. Raises ValueError for an invalid format."""

    headings = fields.HEADINGS

    def __init__(self, fmt: str) -> None:
        from headrace.query.format import Format

        self.fmt = fmt
        self._format = Format(fmt, fields.HEADINGS, fields.OPEN_FIELDS)

    @property
    def fields(self) -> List[str]:
        return self._format.names

    def header(self) -> str:
        return str(self._format.header())

    def format(self, job: JobInfo) -> str:
        """One line for one job."""
        return str(self._format.row(job._info.get))
