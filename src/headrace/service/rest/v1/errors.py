"""What `/v1` answers when something is wrong: `Message`, and `Errors` where several things are.

Status codes are those of flux-restful-api 1.1.0.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from headrace.service import problems
from headrace.service.fields import BadFields
from headrace.service.jobs import BadId, NoSuchJob
from headrace.service.rest.v1.fields import BadBody


def answer(request: Request, exc: Exception) -> Response:
    if isinstance(exc, BadFields):
        errors = [f"{name} {text}" for name, text in exc.problems]
        return JSONResponse({"Message": "; ".join(errors), "Errors": errors}, 422)
    if isinstance(exc, BadBody):
        return JSONResponse({"Message": str(exc), "Errors": [str(exc)]}, 400)
    if isinstance(exc, BadId):
        return JSONResponse({"Message": str(exc)}, 400)
    if isinstance(exc, NoSuchJob):
        return _no_job(request, exc)
    problem = problems.of(exc)
    return JSONResponse({"Message": problem.text}, problem.status, problem.headers)


def _no_job(request: Request, exc: NoSuchJob) -> Response:
    """404, but for the routes where clients of flux-restful-api expect another status for a job that is not there."""
    route = request.scope["route"].path.rpartition("{jobid}")[2]
    if route == "/cancel":
        return JSONResponse({"Message": f"Job cannot be cancelled: {exc}.", "id": request.path_params["jobid"]}, 400)
    if route == "/output":
        return JSONResponse({"Message": f"The output does not exist yet, or never will: {exc}."})
    if route == "/output/stream":
        return PlainTextResponse("")
    return JSONResponse({"Message": str(exc)}, 404)
