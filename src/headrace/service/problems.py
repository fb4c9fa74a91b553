"""An error as an HTTP status and a sentence, the same for every interface."""

from __future__ import annotations

import errno
from typing import NamedTuple

from starlette.exceptions import HTTPException

from headrace.experiments.store.folder import FolderError
from headrace.service.accounting import NoAccounting, NoSuchAssociation, NoSuchBank, NotCoordinator, Rejected
from headrace.service.audit import NotAudited
from headrace.service.broker_link import AWAY, BrokerUnreachable
from headrace.service.experiments import NoExperiments, NoSuchExperiment
from headrace.service.jobs import BadOutput, JobHasEnded, NoSuchJob, NothingYet, Refused
from headrace.service.people import AdminsOnly, NoAudit
from headrace.service.store import NoSuchToken, NoSuchUser, StoreError, StoreUnusable
from headrace.service.streams import TooManyStreams
from headrace.service.users.access import TooManyFailures, Unauthenticated
from headrace.service.users.csrf import Forged
from headrace.service.users.userids import UseridMismatch

# The status and the headers of each kind of error. The first kind that matches applies.
_KINDS: tuple[tuple[type[Exception], int, dict[str, str]], ...] = (
    (Unauthenticated, 401, {"WWW-Authenticate": "Bearer"}),
    (Forged, 403, {}),
    (UseridMismatch, 403, {}),
    (AdminsOnly, 403, {}),
    (NotCoordinator, 403, {}),
    (NoAccounting, 501, {}),
    (NoSuchBank, 404, {}),
    (NoSuchAssociation, 404, {}),
    (Rejected, 400, {}),
    (NoAudit, 404, {}),
    (NoExperiments, 404, {}),
    (NoSuchExperiment, 404, {}),
    (FolderError, 500, {}),
    (NoSuchToken, 404, {}),
    (NoSuchUser, 404, {}),
    (StoreUnusable, 503, {"Retry-After": "10"}),
    (StoreError, 400, {}),
    (NoSuchJob, 404, {}),
    (NothingYet, 404, {}),
    (JobHasEnded, 400, {}),
    (Refused, 400, {}),
    (BadOutput, 502, {}),
    (TooManyStreams, 429, {}),
    (NotAudited, 503, {"Retry-After": "60"}),
    (BrokerUnreachable, 503, {"Retry-After": "2"}),
)
# Errnos of the broker that the request caused, or that are temporary. All others are 502.
_BY_ERRNO = {
    **{errno.EPERM: 403, errno.EINVAL: 400, errno.EPROTO: 400, errno.ENOENT: 404, errno.EAGAIN: 429},
    **dict.fromkeys(AWAY, 503),
}
EXCEPTIONS = (*(kind for kind, _, _ in _KINDS), TooManyFailures, OSError, HTTPException)


class Problem(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


def of(exc: Exception) -> Problem:
    """The problem of one of EXCEPTIONS."""
    if isinstance(exc, HTTPException):
        return Problem(exc.status_code, str(exc.detail), dict(exc.headers or {}))
    if isinstance(exc, TooManyFailures):
        return Problem(429, str(exc), {"Retry-After": str(exc.wait)})
    text = (exc.strerror if isinstance(exc, OSError) else "") or str(exc)
    for kind, status, headers in _KINDS:
        if isinstance(exc, kind):
            return Problem(status, text, headers)
    return Problem(_BY_ERRNO.get(exc.errno or 0, 502) if isinstance(exc, OSError) else 500, text, {})
