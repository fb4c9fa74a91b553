"""What `/v1` answers when something is wrong: `Message`, and `Errors` where several things are."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.api import problems
from headrace.api.v1.fields import BadBody, BadFields


async def bad_fields(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, BadFields)
    errors = [f"{name} {text}" for name, text in exc.problems]
    return JSONResponse({"Message": "; ".join(errors), "Errors": errors}, 422)


async def bad_body(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, BadBody)
    return JSONResponse({"Message": str(exc), "Errors": [str(exc)]}, 400)


def answer(exc: Exception) -> Response:
    problem = problems.of(exc)
    return JSONResponse({"Message": problem.text}, problem.status, problem.headers)
