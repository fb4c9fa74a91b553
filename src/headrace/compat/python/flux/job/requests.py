"""Submitting, waiting for and ending jobs."""

from __future__ import annotations

import collections
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from flux.future import Future
from flux.job.event import event_watch
from flux.job.ids import JobID, to_id
from flux.job.info import JobInfo, job_list_id
from flux.job.jobspec import Jobspec
from flux.kvs import KVSDir
from headrace.cli.signing import sign
from headrace.spec import jobid

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
    text = jobspec if isinstance(jobspec, str) else jobspec.dumps()
    flags = (_DEBUG if debug else 0) | (_WAITABLE if waitable else 0) | (_NOVALIDATE if novalidate else 0)
    body = {"J": text if pre_signed else sign(text), "urgency": urgency, "flags": flags}
    return SubmitFuture(flux_handle, flux_handle.handle.rpc("job-ingest.submit", body))


def submit_get_id(future: SubmitFuture) -> JobID:
    return future.get_id()


def submit(flux_handle: Flux, jobspec: Union[Jobspec, str], **options: Any) -> JobID:
    """Submit a job and return its id; raises OSError when it is refused."""
    return submit_async(flux_handle, jobspec, **options).get_id()


def job_raise_async(
    flux_handle: Flux, jobid: Any, exception_type: str, severity: int = 0, note: Optional[str] = None
) -> Future:
    body = {"id": to_id(jobid), "type": exception_type, "severity": severity, "note": note or ""}
    return Future(flux_handle, flux_handle.handle.rpc("job-manager.raise", body))


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
    return Future(flux_handle, flux_handle.handle.rpc("job-manager.kill", body))


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
    return JobWaitFuture(flux_handle, flux_handle.handle.rpc("job-manager.wait", body))


def wait_get_status(future: JobWaitFuture) -> JobWaitResult:
    return future.get_status()


def wait(flux_handle: Flux, jobid: Any = -1) -> JobWaitResult:
    """Wait for a waitable job, any one by default."""
    return wait_async(flux_handle, jobid).get_status()


def result(flux_handle: Flux, jobid: Any, flags: int = 0) -> JobInfo:
    """Wait for a job's end and return what became of it."""
    raw = {"id": to_id(jobid), "state": 64, "exception_occurred": False}
    for event in event_watch(flux_handle, jobid):
        context = event.context or {}
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
    kind = raw.get("exception_type")
    if kind == "cancel":
        raw["result"] = 4
    elif kind == "timeout":
        raw["result"] = 8
    else:
        raw["result"] = 1 if raw.get("success") and not kind else 2
    return JobInfo(raw)


def job_kvs(flux_handle: Flux, jobid_: Any) -> KVSDir:
    """The job's directory in the KVS."""
    return KVSDir(flux_handle, jobid.encode(to_id(jobid_), "kvs"))


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
