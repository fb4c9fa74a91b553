from __future__ import annotations

import errno

import pytest
from starlette.exceptions import HTTPException

from headrace.service import problems
from headrace.service.broker_link import BrokerUnreachable
from headrace.service.jobs import BadOutput, JobHasEnded, NoSuchJob, NothingYet, Refused
from headrace.service.people import AdminsOnly, NoAudit
from headrace.service.store import NoSuchToken, NoSuchUser, StoreError
from headrace.service.users.access import TooManyFailures, Unauthenticated
from headrace.service.users.csrf import Forged


@pytest.mark.parametrize(
    ("exc", "status"),
    [
        (Unauthenticated("text"), 401),
        (Forged("text"), 403),
        (AdminsOnly("text"), 403),
        (NoSuchJob("text"), 404),
        (NothingYet("text"), 404),
        (NoSuchUser("text"), 404),
        (NoSuchToken("text"), 404),
        (NoAudit("text"), 404),
        (StoreError("text"), 400),
        (JobHasEnded("text"), 400),
        (Refused(["text"]), 400),
        (BadOutput("text"), 502),
        (BrokerUnreachable("text"), 503),
        (HTTPException(418, "text"), 418),
        (OSError(errno.EPERM, "text"), 403),
        (OSError(errno.EINVAL, "text"), 400),
        (OSError(errno.ENOENT, "text"), 404),
        (OSError(errno.EAGAIN, "text"), 429),
        (OSError(errno.ENOSYS, "text"), 503),
        (OSError(errno.EIO, "text"), 502),
        (OSError("text"), 502),
    ],
)
def test_each_kind_has_its_status_and_keeps_its_text(exc: Exception, status: int) -> None:
    found = problems.of(exc)
    assert (found.status, found.text) == (status, "text")
    assert isinstance(exc, problems.EXCEPTIONS)


def test_headers_that_say_what_to_do() -> None:
    assert problems.of(Unauthenticated("x")).headers == {"WWW-Authenticate": "Bearer"}
    assert problems.of(TooManyFailures(7)) == (429, "too many failures: try again in 7 s", {"Retry-After": "7"})
    assert problems.of(BrokerUnreachable("x")).headers == {"Retry-After": "2"}
