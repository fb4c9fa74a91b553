"""Jobs from job-list (RFC 43), as JobInfo objects with the fields that clients derive."""

from __future__ import annotations

import errno
import json
import os
from itertools import chain
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Union

from flux.future import WaitAllFuture
from flux.job.JobID import JobID, to_id
from flux.rpc import RPC
from headrace.formats.spec.job_state import INACTIVE, RESULT_BITS
from headrace.formats.spec.message import USERID_UNKNOWN
from headrace.wire.query import instance_info
from headrace.wire.query import job_info as fields
from headrace.wire.query.job_info import attributes_for
from headrace.wire.query.listing import STATE_NAMES, bits_of, userid_or_all

if TYPE_CHECKING:
    from flux.core.handle import Flux


class EmptyObject(str):
    """The value of a missing annotation: an empty string, all of whose attributes are EmptyObjects."""

    def __getattr__(self, name: str) -> EmptyObject:
        if name.startswith("__"):
            raise AttributeError(name)
        return EmptyObject()


class AnnotationsInfo:
    """Annotations whose keys are attributes; a missing one is an EmptyObject."""

    def __init__(self, annotationsDict: Dict[str, Any]) -> None:
        self.annotationsDict = annotationsDict

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "annotationsDict":
            raise AttributeError(name)
        value = self.annotationsDict.get(name, EmptyObject())
        return AnnotationsInfo(value) if isinstance(value, dict) else value

    def __bool__(self) -> bool:
        return bool(self.annotationsDict)

    def __repr__(self) -> str:
        return json.dumps(self.annotationsDict, ensure_ascii=False) if self.annotationsDict else ""


class ExceptionInfo:
    """The exception of a job: `occurred`, `severity`, `type` and `note`."""

    def __init__(self, occurred: Any, severity: Any, _type: str, note: str) -> None:
        self.occurred = occurred
        self.severity = severity
        self.type = _type
        self.note = note


class InfoList(List[str]):
    """Texts that are shown separated by commas."""

    def __str__(self) -> str:
        return ",".join(self)


# Attributes that are objects here.
_OBJECTS = ("id", "exception", "annotations", "sched", "user")
# Attributes of a job that job-list sends by another name.
_RENAMED = {"state": "state_id", "result": "result_id"}


class JobInfo:
    """One job: every attribute of RFC 43, and derived fields such as status, runtime and result.

    Its `__dict__` has `_NAME` for each attribute that job-list sent, or its default. The numbers of state and result
    are `_state_id` and `_result_id`.
    """

    __slots__ = ("__dict__", "_info")

    def __init__(self, info_resp: Dict[str, Any]) -> None:
        self._info = fields.JobInfo(info_resp)
        sent = {"dependencies": [], **fields.DEFAULTS, **info_resp}
        annotations = AnnotationsInfo(sent.get("annotations", {}))
        sent.update(
            id=JobID(sent["id"]),
            exception=ExceptionInfo(
                bool(sent.get("exception_occurred")),
                *(sent.get(f"exception_{k}", "") for k in ("severity", "type", "note")),
            ),
            annotations=annotations,
            sched=annotations.sched or AnnotationsInfo({}),
            user=annotations.user or AnnotationsInfo({}),
        )
        self.__dict__ = {f"_{_RENAMED.get(name, name)}": value for name, value in sent.items()}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            if name in _OBJECTS:
                return self.__dict__["_" + name]
            if self._info.has(name):
                return self._info.get(name)
            name = "_" + name
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"invalid JobInfo attribute '{name}'")

    def get_instance_info(self) -> JobInfo:
        """Query the job's instance, if there is one, for the data of `instance`; returns this object."""
        self._info.instance = instance_info.ask(self._info)
        return self

    @property
    def instance(self) -> AnnotationsInfo:
        """Jobs and resources of the job's instance (`instance.stats.running`).

        It is empty before `get_instance_info`.
        """
        tree: Dict[str, Any] = {}
        # The deepest names first: `stats` is a text, but as an attribute it is an object with the values `stats.NAME`.
        for name, value in sorted(self._info.instance.items(), key=lambda item: -item[0].count(".")):
            *parents, last = name.split(".")[1:]
            here = tree
            for parent in parents:
                here = here.setdefault(parent, {})
            here.setdefault(last, value)
        return AnnotationsInfo(tree)

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
        """The complete listing, from all responses of the stream."""
        if not hasattr(self, "_all"):
            found: List[Dict[str, Any]] = []
            # If a callback is registered, the first response has been consumed already.
            taken = [] if self._message is None or self._message.errnum == errno.ENODATA else [super().get()]
            for answer in chain(taken, () if self._call.done and not self._call.ready else self._call):
                found.extend(answer["jobs"])
            self._all = {"jobs": found}
        return self._all


class JobListIdRPC(RPC):
    """One job: `.get_job()` returns a dictionary, `.get_jobinfo()` an object."""

    jobid: JobID

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
    # As in Flux, programs may pass the number of entries as they got it on their command line.
    body = {"max_entries": int(max_entries), "attrs": list(attrs), "since": since, "constraint": {"and": terms}}
    return JobListRPC(flux_handle, "job-list.list", body, flags=_STREAMING)


def job_list_inactive(
    flux_handle: Flux,
    since: float = 0.0,
    max_entries: int = 1000,
    attrs: Iterable[str] = ("all",),
    name: Optional[str] = None,
    queue: Optional[str] = None,
    constraint: Optional[Dict[str, Any]] = None,
) -> JobListRPC:
    """List inactive jobs of all users, by default, that ended after `since`."""
    return job_list(flux_handle, max_entries, attrs, USERID_UNKNOWN, INACTIVE, 0, since, name, queue, constraint)


def job_list_id(flux_handle: Flux, jobid: Any, attrs: Iterable[str] = ("all",)) -> JobListIdRPC:
    rpc = JobListIdRPC(flux_handle, "job-list.list-id", {"id": to_id(jobid), "attrs": list(attrs)})
    rpc.jobid = JobID(jobid)
    return rpc


def get_job(flux_handle: Flux, jobid: Any) -> Optional[Dict[str, Any]]:
    """The job as a dictionary of derived fields; None if there is none."""
    try:
        return job_list_id(flux_handle, jobid).get_jobinfo().to_dict(filtered=False)
    except FileNotFoundError:
        return None


class JobListIdsFuture(WaitAllFuture):
    """Several jobs by their ids, as a listing; `errors` has a line for each id whose lookup failed."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: List[str] = []

    def get_jobs(self) -> List[Dict[str, Any]]:
        """The jobs that were found; waits for all lookups."""
        self.wait_for()
        found = []
        self.errors.clear()
        for child in self.children:
            try:
                found.append(child.get_job())
            except OSError as exc:
                missing = exc.errno == errno.ENOENT
                self.errors.append(f"JobID {child.jobid.orig} unknown" if missing else f"rpc: {exc.strerror}")
        return found

    def get_jobinfos(self) -> List[JobInfo]:
        return [JobInfo(job) for job in self.get_jobs()]


class JobList:
    """A listing by ids or filters, by default of the user's own jobs; `.jobs()` requests it.

    Raises ValueError for an unknown filter or user.
    """

    STATES = STATE_NAMES
    RESULTS = RESULT_BITS

    def __init__(
        self,
        flux_handle: Flux,
        attrs: Iterable[str] = ("all",),
        filters: Iterable[str] = (),
        ids: Optional[Iterable[Any]] = (),
        user: Optional[Union[str, int]] = None,
        max_entries: int = 1000,
        since: float = 0.0,
        name: Optional[str] = None,
        queue: Optional[str] = None,
        constraint: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.handle = flux_handle
        self.attrs = list(attrs)
        self.ids = [JobID(jobid) for jobid in ids or ()]
        self.errors: List[str] = []
        self.max_entries, self.since = max_entries, since
        self.name, self.queue, self.constraint = name, queue, constraint
        self.states = self.results = 0
        for fname in filters:
            self.add_filter(fname)
        self.set_user(user)

    def set_user(self, user: Optional[Union[str, int]]) -> None:
        """List jobs of a user by name or number, of all users ("all"), or of this process's (None)."""
        self.userid = os.getuid() if user is None else userid_or_all(str(user))

    def add_filter(self, fname: str) -> None:
        """Also list jobs with the given states or results: names separated by commas."""
        states, results = bits_of(fname)
        self.states |= states
        self.results |= results

    def fetch_jobs(self) -> Union[JobListRPC, JobListIdsFuture]:
        """Request the jobs and return at once; both kinds of future have `get_jobs` and `get_jobinfos`."""
        if not self.ids:
            return job_list(
                self.handle,
                self.max_entries,
                self.attrs,
                self.userid,
                self.states,
                self.results,
                self.since,
                self.name,
                self.queue,
                self.constraint,
            )
        future = JobListIdsFuture()
        for jobid in self.ids:
            future.push(job_list_id(self.handle, jobid, self.attrs))
        return future

    def jobs(self) -> List[JobInfo]:
        """The jobs; `errors` has a line for each id whose lookup failed."""
        future = self.fetch_jobs()
        found = list(future.get_jobinfos())
        self.errors = getattr(future, "errors", [])
        return found


def statetostr(stateid: int, fmt: str = "L") -> str:
    """The name of a job state; short with fmt "S"."""
    return fields.STATES_SINGLE[stateid] if fmt == "S" else fields.STATES[stateid]


def resulttostr(resultid: Union[int, str], fmt: str = "L") -> str:
    """The name of a job's result; short with fmt "S", "" for a job without one ("")."""
    if resultid == "":
        return ""
    return (fields.RESULTS_SHORT if fmt == "S" else fields.RESULTS)[int(resultid)]


def get_username(userid: int) -> str:
    return fields.username(userid)


def statustostr(stateid: int, resultid: Union[int, str], fmt: str = "L") -> str:
    """The name of a job's result, or of its state if it has no result; short with fmt "S"."""
    return resulttostr(resultid, fmt) if stateid == INACTIVE else statetostr(stateid, fmt)


def statetoemoji(stateid: int) -> str:
    return str(JobInfo({"id": 0, "state": stateid}).state_emoji)


def resulttoemoji(resultid: Union[int, str]) -> str:
    return str(JobInfo({"id": 0, "state": INACTIVE, "result": resultid}).result_emoji)


def statustoemoji(stateid: int, resultid: Union[int, str]) -> str:
    return resulttoemoji(resultid) if stateid == INACTIVE else statetoemoji(stateid)


def job_fields_to_attrs(fields: Iterable[str]) -> List[str]:
    """The attributes of job-list from which the fields of a format are derived."""
    return list(attributes_for(list(fields)))


class JobInfoFormat:
    """A format string of `flux jobs -o`. Raises ValueError for an invalid format."""

    headings = fields.HEADINGS

    def __init__(self, fmt: str) -> None:
        from headrace.wire.query.format import Format

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
