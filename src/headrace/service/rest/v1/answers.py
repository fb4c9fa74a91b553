"""Responses of `/v1`: jobs in detail, and errors as `Message`, with a list `Errors` for bad requests.

Keys and status codes are those of flux-restful-api 1.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from headrace.service import problems
from headrace.service.fields import BadBody, BadFields
from headrace.service.jobs import BadId, NoSuchJob
from headrace.wire.query.job_info import JobInfo


def problem(request: Request, exc: Exception) -> Response:
    """The response to a request that failed."""
    if isinstance(exc, BadFields):
        errors = [f"{name} {text}" for name, text in exc.problems]
        return JSONResponse({"Message": "; ".join(errors), "Errors": errors}, 422)
    if isinstance(exc, BadBody):
        return JSONResponse({"Message": str(exc), "Errors": [str(exc)]}, 400)
    if isinstance(exc, BadId):
        return JSONResponse({"Message": str(exc)}, 400)
    if isinstance(exc, NoSuchJob):
        return _no_job(request, exc)
    found = problems.of(exc)
    return JSONResponse({"Message": found.text}, found.status, found.headers)


def _no_job(request: Request, exc: NoSuchJob) -> Response:
    """404 for an unknown job, except where clients of flux-restful-api expect another status."""
    route = request.scope["route"].path.rpartition("{jobid}")[2]
    if route == "/cancel":
        return JSONResponse({"Message": f"Job cannot be cancelled: {exc}.", "id": request.path_params["jobid"]}, 400)
    if route == "/output":
        return JSONResponse({"Message": f"The output does not exist yet, or never will: {exc}."})
    if route == "/output/stream":
        return PlainTextResponse("")
    return JSONResponse({"Message": str(exc)}, 404)


# Attributes that every job has, "" if they have no value.
_ALWAYS = ("ranks", "expiration", "duration", "nnodes", "nodelist", "priority", "waitstatus")
_DERIVED = ("state", "result", "returncode", "runtime")
_EXCEPTION = ("occurred", "severity", "type", "note")


def record(raw: Mapping[str, Any], now: float = 0.0) -> dict[str, Any]:
    """A job in detail, from `raw` of job-list, with names for numeric states and results.

    `now` is in seconds since the epoch (default: the current time).
    """
    job = JobInfo(dict(raw), now)
    found = {**dict.fromkeys(_ALWAYS, ""), **raw}
    found.update({name: job.get(name) for name in _DERIVED})
    found["exception"] = {name: job.get(f"exception.{name}") for name in _EXCEPTION}
    return found


def mentions(job: Mapping[str, Any], text: str) -> bool:
    """True if a value of the job, or its id in F58 form, contains the text. Case is ignored."""
    sought = text.lower()
    return sought in JobInfo(dict(job)).get("jobid").lower() or any(sought in value for value in _texts(job))


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [str(value).lower()]
