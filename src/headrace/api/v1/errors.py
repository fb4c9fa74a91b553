"""What `/v1` answers when something is wrong: `Message`, and `Errors` where several things are."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from headrace.api import problems
from headrace.api.fields import BadFields
from headrace.api.v1.fields import BadBody


def answer(exc: Exception) -> Response:
    if isinstance(exc, BadFields):
        errors = [f"{name} {text}" for name, text in exc.problems]
        return JSONResponse({"Message": "; ".join(errors), "Errors": errors}, 422)
    if isinstance(exc, BadBody):
        return JSONResponse({"Message": str(exc), "Errors": [str(exc)]}, 400)
    problem = problems.of(exc)
    return JSONResponse({"Message": problem.text}, problem.status, problem.headers)
