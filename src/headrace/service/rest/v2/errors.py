"""Error responses of `/v2`: problems of RFC 9457, with the invalid field and the broker's errno.

`type` is about:blank, so `title` is the phrase of the HTTP status (RFC 9457). If several fields are invalid, `errors`
has each of them, and `field` and `detail` are about the first.
"""

from __future__ import annotations

from errno import EAGAIN
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from headrace.service import problems
from headrace.service.broker_link import BrokerUnreachable
from headrace.service.fields import BadBody, BadFields
from headrace.service.jobs import JobHasEnded, Refused
from headrace.service.rest.v2.idempotency import HEADER, BadKey, OtherBody

MEDIA_TYPE = "application/problem+json"
_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}


def answer(exc: Exception) -> Response:
    if isinstance(exc, BadFields):
        errors = [{"field": name, "detail": f"{name} {text}"} for name, text in exc.problems]
        more: dict[str, Any] = {"errors": errors} if len(errors) > 1 else {}
        return problem(422, errors[0]["detail"], field=errors[0]["field"], **more)
    if isinstance(exc, BadBody):
        return problem(400, str(exc))
    if isinstance(exc, BadKey):
        return problem(400, str(exc), field=HEADER)
    if isinstance(exc, (OtherBody, JobHasEnded)):
        return problem(409, str(exc))
    if isinstance(exc, Refused):
        # An invalid jobspec is a 400, although the broker's errno for it is EPERM.
        return problem(429 if exc.errno == EAGAIN else 400, str(exc), field=exc.field or None, errno=exc.errno)
    found = problems.of(exc)
    # An unreachable broker has not refused anything, so there is no errno of the broker.
    refused = isinstance(exc, OSError) and not isinstance(exc, BrokerUnreachable)
    code = exc.errno if refused and isinstance(exc, OSError) else None
    return problem(found.status, found.text, errno=code, headers=found.headers)


def problem(
    status: int,
    detail: str,
    field: str | None = None,
    errno: int | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    title = _PHRASES.get(status) or HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "field": field, "errno": errno}
    return Response(msgspec.json.encode({**body, **more}), status, headers, MEDIA_TYPE)
