"""Submitting jobs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Union

from flux.future import Future, connection
from flux.job.JobID import JobID
from flux.job.Jobspec import Jobspec, to_text
from headrace.formats.spec.job_state import FLAG_DEBUG, FLAG_NOVALIDATE, FLAG_WAITABLE
from headrace.formats.spec.urgency import URGENCY_DEFAULT
from headrace.wire.query.signing import sign

if TYPE_CHECKING:
    from flux.core.handle import Flux


class SubmitFuture(Future):
    """Fulfilled with the id of a submitted job."""

    def get_id(self) -> JobID:
        return JobID(self.get()["id"])


def submit_async(
    flux_handle: Flux,
    jobspec: Union[Jobspec, str],
    urgency: int = URGENCY_DEFAULT,
    waitable: bool = False,
    debug: bool = False,
    pre_signed: bool = False,
    novalidate: bool = False,
) -> SubmitFuture:
    """Submit a job; `.get_id()` of the result is its id."""
    handle, text = connection(flux_handle), to_text(jobspec)
    flags = (FLAG_DEBUG if debug else 0) | (FLAG_WAITABLE if waitable else 0) | (FLAG_NOVALIDATE if novalidate else 0)
    body = {"J": text if pre_signed else sign(text), "urgency": urgency, "flags": flags}
    return SubmitFuture(flux_handle, handle.rpc("job-ingest.submit", body))


def submit_get_id(future: SubmitFuture) -> JobID:
    """The id of a job that `submit_async` submitted."""
    if future is None:
        raise OSError(errno.EINVAL, "submit_get_id: a future is needed")
    return future.get_id()


def submit(
    flux_handle: Flux,
    jobspec: Union[Jobspec, str],
    urgency: int = URGENCY_DEFAULT,
    waitable: bool = False,
    debug: bool = False,
    pre_signed: bool = False,
    novalidate: bool = False,
) -> JobID:
    """Submit a job and return its id. Raises OSError if it is refused."""
    return submit_async(flux_handle, jobspec, urgency, waitable, debug, pre_signed, novalidate).get_id()
