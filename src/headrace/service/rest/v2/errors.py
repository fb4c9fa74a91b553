"""What `/v2` answers when something is wrong: a problem of RFC 9457, with the field and the broker's errno.

`type` is about:blank, with which RFC 9457 has `title` be the status's own phrase. Where several fields are wrong,
`errors` has each, and `field` and `detail` are those of the first.
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
        # The broker's errno for a jobspec that is wrong is EPERM.
        return problem(429 if exc.errno == EAGAIN else 400, str(exc), field=exc.field or None, errno=exc.errno)
    found = problems.of(exc)
    # That the broker is away is no refusal of its own.
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
