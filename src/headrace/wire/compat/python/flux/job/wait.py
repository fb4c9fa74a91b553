"""Waiting for the end of jobs."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Callable, Dict

from flux.future import Future, connection
from flux.job.event import EventLogEvent, JobEventWatchFuture
from flux.job.info import JobInfo
from flux.job.JobID import JobID, to_id
from headrace.formats.spec.job_exception import FATAL, is_fatal
from headrace.formats.spec.job_state import INACTIVE, result_of
from headrace.formats.spec.urgency import URGENCY_DEFAULT

if TYPE_CHECKING:
    from flux.core.handle import Flux


class JobWaitResult(collections.namedtuple("JobWaitResult", "jobid, success, errstr")):
    """The result of a waitable job; `errstr` is bytes, as in the C bindings."""


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
    """Wait for a waitable job; by default for any waitable job."""
    return wait_async(flux_handle, jobid).get_status()


class _Outcome:
    """Derives the result of a job from its events, in the form of job-list."""

    def __init__(self, id: int) -> None:
        self.raw: Dict[str, Any] = {"id": id, "state": INACTIVE, "exception_occurred": False, "duration": 0.0}

    def take(self, event: EventLogEvent) -> None:
        raw, context = self.raw, event.context or {}
        if event.name == "submit":
            raw.update(
                t_submit=event.timestamp,
                userid=context.get("userid", -1),
                urgency=context.get("urgency", URGENCY_DEFAULT),
            )
        elif event.name in ("alloc", "clean"):
            raw["t_run" if event.name == "alloc" else "t_inactive"] = event.timestamp
        elif event.name == "finish":
            raw.update(waitstatus=context["status"], t_cleanup=event.timestamp, success=context["status"] == 0)
        elif is_fatal(event.name, context):
            raw.update(
                exception_occurred=True,
                exception_type=context["type"],
                exception_severity=FATAL,
                exception_note=context.get("note", ""),
                success=False,
            )

    def finished(self) -> Dict[str, Any]:
        self.raw["result"] = result_of(self.raw.get("exception_type"), self.raw.get("waitstatus"))
        return self.raw


class JobResultFuture(JobEventWatchFuture):
    """Fulfilled when the job has ended; its callback is called once."""

    def __init__(self, handle: Flux, call: Any, id: int) -> None:
        super().__init__(handle, call)
        self._outcome = _Outcome(id)
        self._over = False

    def get_dict(self) -> Dict[str, Any]:
        """The result of the job with the keys of job-list. Waits for its end."""
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
    """Wait for a job's end, and return its result."""
    return result_async(flux_handle, jobid, flags).get_info()
