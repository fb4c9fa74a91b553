"""What went wrong, as an HTTP status and a sentence: the same for scripts and for the page."""

from __future__ import annotations

import errno
from typing import NamedTuple

from starlette.exceptions import HTTPException

from headrace.api.broker_link import BrokerUnreachable
from headrace.api.identity.access import Unauthenticated
from headrace.api.jobs import JobHasEnded, NoSuchJob

# What the broker refuses by these errors is wrong with the request; else it is not for this service to say whose fault.
_BY_ERRNO = {errno.EPERM: 403, errno.EINVAL: 400, errno.EPROTO: 400, errno.ENOENT: 404, errno.ENOSPC: 507}
EXCEPTIONS = (NoSuchJob, JobHasEnded, Unauthenticated, OSError, HTTPException)


class Problem(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


def of(exc: Exception) -> Problem:
    """The problem of one of EXCEPTIONS."""
    if isinstance(exc, HTTPException):
        return Problem(exc.status_code, str(exc.detail), dict(exc.headers or {}))
    if isinstance(exc, Unauthenticated):
        return Problem(401, str(exc), {"WWW-Authenticate": "Bearer"})
    if isinstance(exc, NoSuchJob):
        return Problem(404, str(exc), {})
    if isinstance(exc, JobHasEnded):
        return Problem(400, str(exc), {})
    text = (exc.strerror if isinstance(exc, OSError) else "") or str(exc)
    if isinstance(exc, BrokerUnreachable):
        return Problem(503, text, {"Retry-After": "2"})
    return Problem(_BY_ERRNO.get(exc.errno or 0, 502) if isinstance(exc, OSError) else 500, text, {})
