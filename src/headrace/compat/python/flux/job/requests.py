"""Submitting, waiting for and ending jobs."""

from __future__ import annotations

import collections
import errno
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from flux.future import Future, connection
from flux.job.event import EventLogEvent, JobEventWatchFuture
from flux.job.info import JobInfo, job_list_id
from flux.job.JobID import JobID, to_id
from flux.job.Jobspec import Jobspec, to_text
from headrace.cli.signing import sign

if TYPE_CHECKING:
    from flux.core.handle import Flux

_DEBUG, _WAITABLE, _NOVALIDATE = 2, 4, 8


class SubmitFuture(Future):
    """Fulfilled with the id of a submitted job."""

    def get_id(self) -> JobID:
        return JobID(self.get()["id"])


def submit_async(
    flux_handle: Flux,
    jobspec: Union[Jobspec, str],
    urgency: int = 16,
    waitable: bool = False,
    debug: bool = False,
    pre_signed: bool = False,
    novalidate: bool = False,
) -> SubmitFuture:
    """Submit a job; `.get_id()` of the result is its id."""
    handle, text = connection(flux_handle), to_text(jobspec)
    flags = (_DEBUG if debug else 0) | (_WAITABLE if waitable else 0) | (_NOVALIDATE if novalidate else 0)
    body = {"J": text if pre_signed else sign(text), "urgency": urgency, "flags": flags}
    return SubmitFuture(flux_handle, handle.rpc("job-ingest.submit", body))


def submit_get_id(future: SubmitFuture) -> JobID:
    """The id of a job that `submit_async` submitted."""
    if future is None:
        raise OSError(errno.EINVAL, "submit_get_id: a future is needed")
    return future.get_id()


def submit(flux_handle: Flux, jobspec: Union[Jobspec, str], **options: Any) -> JobID:
    """Submit a job and return its id; raises OSError when it is refused."""
    return submit_async(flux_handle, jobspec, **options).get_id()


def job_raise_async(
    flux_handle: Flux, jobid: Any, exception_type: str, severity: int = 0, note: Optional[str] = None
) -> Future:
    body = {"id": to_id(jobid), "type": exception_type, "severity": severity, "note": note or ""}
    return Future(flux_handle, connection(flux_handle).rpc("job-manager.raise", body))


def job_raise(
    flux_handle: Flux, jobid: Any, exception_type: str, severity: int = 0, note: Optional[str] = None
) -> None:
    """Raise an exception on a job; FileNotFoundError when there is no such job."""
    job_raise_async(flux_handle, jobid, exception_type, severity, note).get()


def cancel_async(flux_handle: Flux, jobid: Any, reason: Optional[str] = None) -> Future:
    return job_raise_async(flux_handle, jobid, "cancel", 0, reason)


def cancel(flux_handle: Flux, jobid: Any, reason: Optional[str] = None) -> None:
    cancel_async(flux_handle, jobid, reason).get()


def kill_async(flux_handle: Flux, jobid: Any, signum: Optional[int] = None) -> Future:
    body = {"id": to_id(jobid), "signum": 15 if signum is None else int(signum)}
    return Future(flux_handle, connection(flux_handle).rpc("job-manager.kill", body))


def kill(flux_handle: Flux, jobid: Any, signum: Optional[int] = None) -> None:
    kill_async(flux_handle, jobid, signum).get()


class JobWaitResult(collections.namedtuple("JobWaitResult", "jobid, success, errstr")):
    """What became of a waitable job; `errstr` is bytes, as in the C bindings."""


class JobWaitFuture(Future):
    def get_status(self) -> JobWaitResult:
        answer = self.get()
        return JobWaitResult(JobID(answer["id"]), answer["success"], answer.get("errstr", "").encode())


def wait_async(flux_handle: Flux, jobid: Any = -1) -> JobWaitFuture:
    body = {"id": to_id(jobid)}
    return JobWaitFuture(flux_handle, connection(flux_handle).rpc("job-manager.wait", body))


def wait_get_status(future: JobWaitFuture) -> JobWaitResult:
    return future.get_status()


def wait(flux_handle: Flux, jobid: Any = -1) -> JobWaitResult:
    """Wait for a waitable job, any one by default."""
    return wait_async(flux_handle, jobid).get_status()


class _Outcome:
    """What a job's events say of it, as job-list would."""

    def __init__(self, id: int) -> None:
        self.raw: Dict[str, Any] = {"id": id, "state": 64, "exception_occurred": False, "duration": 0.0}

    def take(self, event: EventLogEvent) -> None:
        raw, context = self.raw, event.context or {}
        if event.name == "submit":
            raw.update(t_submit=event.timestamp, userid=context.get("userid", -1), urgency=context.get("urgency", 16))
        elif event.name in ("alloc", "clean"):
            raw["t_run" if event.name == "alloc" else "t_inactive"] = event.timestamp
        elif event.name == "finish":
            raw.update(waitstatus=context["status"], t_cleanup=event.timestamp, success=context["status"] == 0)
        elif event.name == "exception" and context.get("severity") == 0:
            raw.update(
                exception_occurred=True,
                exception_type=context["type"],
                exception_severity=0,
                exception_note=context.get("note", ""),
                success=False,
            )

    def finished(self) -> Dict[str, Any]:
        raw = self.raw
        kind = raw.get("exception_type")
        if kind in ("cancel", "timeout"):
            raw["result"] = 4 if kind == "cancel" else 8
        else:
            raw["result"] = 1 if raw.get("success") and not kind else 2
        return raw


class JobResultFuture(JobEventWatchFuture):
    """Fulfilled when the job has ended; its callback runs once."""

    def __init__(self, handle: Flux, call: Any, id: int) -> None:
        super().__init__(handle, call)
        self._outcome = _Outcome(id)
        self._over = False

    def get_dict(self) -> Dict[str, Any]:
        """What became of the job, with the keys of job-list. Waits for its end."""
        while not self._over:
            event = self.get_event()
            if event is None:
                self._over = True
            else:
                self._outcome.take(event)
        return self._outcome.finished()

    def get_info(self) -> JobInfo:
        return JobInfo(self.get_dict())

    def then(self, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> JobResultFuture:
        def each(_future: Any) -> None:
            event = self.get_event()
            if event is None:
                self._over = True
                callback(self, *args, **kwargs)
            else:
                self._outcome.take(event)

        return super().then(each, timeout=timeout)


def result_async(flux_handle: Flux, jobid: Any, flags: int = 0) -> JobResultFuture:
    """A future for a job's end."""
    body = {"id": to_id(jobid), "path": "eventlog", "flags": 0}
    call = connection(flux_handle).stream("job-info.eventlog-watch", body)
    return JobResultFuture(flux_handle, call, to_id(jobid))


def result(flux_handle: Flux, jobid: Any, flags: int = 0) -> JobInfo:
    """Wait for a job's end and return what became of it."""
    return result_async(flux_handle, jobid, flags).get_info()


def timeleft(flux_handle: Optional[Flux] = None) -> float:
    """Seconds until this job (or this instance) expires, infinity without a limit."""
    import time

    from flux.core.handle import Flux as Handle

    handle = flux_handle or Handle()
    own = os.environ.get("FLUX_JOB_ID")
    if own is None:
        own, handle = handle.attr_get("jobid"), Handle(handle.attr_get("parent-uri"))
    raw = job_list_id(handle, JobID(own), ["expiration"]).get_job()
    expiration = float(raw.get("expiration", 0.0))
    return max(0.0, expiration - time.time()) if expiration else float("inf")
