"""Ending jobs: signals and exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from flux.future import Future, connection
from flux.job.JobID import to_id
from headrace.formats.spec.job_exception import CANCEL, FATAL

if TYPE_CHECKING:
    from flux.core.handle import Flux


def job_raise_async(
    flux_handle: Flux, jobid: Any, exc_type: str, severity: int = FATAL, note: Optional[str] = None
) -> Future:
    body = {"id": to_id(jobid), "type": exc_type, "severity": severity, "note": note or ""}
    return Future(flux_handle, connection(flux_handle).rpc("job-manager.raise", body))


def job_raise(flux_handle: Flux, jobid: Any, exc_type: str, severity: int = FATAL, note: Optional[str] = None) -> None:
    """Raise an exception on a job. Raises FileNotFoundError if there is no such job."""
    job_raise_async(flux_handle, jobid, exc_type, severity, note).get()


def cancel_async(flux_handle: Flux, jobid: Any, reason: Optional[str] = None) -> Future:
    return job_raise_async(flux_handle, jobid, CANCEL, FATAL, reason)


def cancel(flux_handle: Flux, jobid: Any, reason: Optional[str] = None) -> None:
    cancel_async(flux_handle, jobid, reason).get()


def kill_async(flux_handle: Flux, jobid: Any, signum: Optional[int] = None) -> Future:
    body = {"id": to_id(jobid), "signum": 15 if signum is None else int(signum)}
    return Future(flux_handle, connection(flux_handle).rpc("job-manager.kill", body))


def kill(flux_handle: Flux, jobid: Any, signum: Optional[int] = None) -> None:
    kill_async(flux_handle, jobid, signum).get()
