"""The routes of `/v2` about jobs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.formats.spec.jobid import encode
from headrace.service import jobs, service, submission
from headrace.service.fields import BadFields, Field, of_query, pick
from headrace.service.rest.v2 import (
    accounting_routes,
    changes,
    experiment_routes,
    fields,
    idempotency,
    instance_routes,
    listing,
    people_routes,
    stream_routes,
)
from headrace.service.rest.v2.answers import SCHEMAS, SUBMISSIONS
from headrace.service.rest.v2.record import FIELDS, attributes, record

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])
ROUTERS = (
    router,
    stream_routes.router,
    instance_routes.router,
    people_routes.router,
    accounting_routes.router,
    experiment_routes.router,
    instance_routes.public,
)
_DRY_RUN = (Field("dry_run", fields.switch, {"type": "boolean"}, "Only check the job, and return its jobspec"),)
_KEY = {
    "name": idempotency.HEADER,
    "in": "header",
    "required": False,
    "description": "With a key, a repeated request returns the same job for 24 h",
    "schema": {"type": "string", "minLength": 1, "maxLength": idempotency.LONGEST},
}


def _body(form: Iterable[Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"requestBody": fields.body_of(form, required)}


_SUBMIT = {
    "parameters": [*fields.parameters(_DRY_RUN), _KEY],
    "requestBody": {
        "content": {"application/json": {"schema": {"anyOf": [{"$ref": f"{SCHEMAS}/{name}"} for name in SUBMISSIONS]}}},
        "required": True,
    },
}
_RESUBMIT = {"parameters": [_KEY], **_body(submission.RESUBMIT_FIELDS)}
_SET_URGENCY = _body(changes.URGENCY, ("urgency",))
_UPDATE = {
    "requestBody": {
        "content": {"application/json": {"schema": {"type": "object", "minProperties": 1}}},
        "description": "New values by key, as `flux update` has them: duration, name, queue, attributes.system.X",
        "required": True,
    }
}


def _ready(body: bytes) -> Response:
    """A response with encoded JSON."""
    return Response(body, media_type="application/json")


@router.get("/jobs", summary="A page of jobs", openapi_extra={"parameters": fields.parameters(listing.FIELDS)})
async def list_jobs(request: Request) -> Response:
    chosen = of_query(request, listing.FIELDS)
    return service.as_json(await listing.page(service.of(request).link, chosen, time.time()))


@router.post("/jobs", summary="Submit a job", openapi_extra=_SUBMIT)
async def submit_job(request: Request) -> Response:
    here, key = service.of(request), idempotency.key_of(request.headers)
    chosen = of_query(request, _DRY_RUN)
    found = submission.read(await fields.of_body(request, _DRY_RUN), here.settings)
    if chosen.get("dry_run"):
        await jobs.check(here.link, found.jobspec)
        return service.as_json({"jobspec": found.jobspec, "urgency": found.urgency})
    return await _submit(request, key, found)


async def _submit(request: Request, key: str | None, found: submission.Submission) -> Response:
    link = service.of(request).link

    async def send() -> int:
        return await jobs.submit(link, found.jobspec, found.urgency)

    if key is None:
        id = await send()
    else:
        keys: idempotency.Keys = request.app.state.keys
        body = b"%s\0%s" % (request.url.path.encode(), await request.body())
        id = await keys.submit(link, key, body, found.jobspec, send)
    request.state.job = id
    text = encode(id, "f58plain")
    return service.as_json({"id": text}, 201, {"Location": f"/v2/jobs/{text}"})


@router.post("/jobs/{jobid}/resubmit", summary="Submit a job once more", openapi_extra=_RESUBMIT)
async def resubmit_job(request: Request, jobid: str) -> Response:
    key = idempotency.key_of(request.headers)
    jobspec = await changes.submitted(service.of(request).link, jobs.read_id(jobid))
    return await _submit(request, key, submission.resubmission(jobspec, await fields.of_body(request)))


@router.post("/jobs/{jobid}/cancel", summary="Cancel a job", openapi_extra=_body(changes.CANCEL))
async def cancel_job(request: Request, jobid: str) -> Response:
    values = pick(await fields.of_body(request), changes.CANCEL)
    return await _change(request, jobid, "raise", {"type": "cancel", "severity": 0, **values})


@router.post("/jobs/{jobid}/kill", summary="Send a signal to a job's tasks", openapi_extra=_body(changes.KILL))
async def kill_job(request: Request, jobid: str) -> Response:
    values = pick(await fields.of_body(request), changes.KILL)
    return await _change(request, jobid, "kill", {"signum": values.get("signal", signal.SIGTERM)})


@router.post("/jobs/{jobid}/urgency", summary="Move a job up or down its queue", openapi_extra=_SET_URGENCY)
async def set_job_urgency(request: Request, jobid: str) -> Response:
    values = pick(await fields.of_body(request), changes.URGENCY)
    if "urgency" not in values:
        raise BadFields([("urgency", "is required")])
    return await _change(request, jobid, "urgency", values)


@router.post("/jobs/{jobid}/update", summary="Change what a job asks for", openapi_extra=_UPDATE)
async def update_job(request: Request, jobid: str) -> Response:
    id = jobs.read_id(jobid)
    updates = await changes.updates(service.of(request).link, id, await fields.of_body(request))
    return await _change(request, jobid, "update", {"updates": updates})


async def _change(request: Request, jobid: str, method: str, arguments: dict[str, Any]) -> Response:
    id = jobs.read_id(jobid)
    answer = await jobs.change(service.of(request).link, id, method, arguments)
    return service.as_json({"id": encode(id, "f58plain"), **answer})


@router.get("/jobs/{jobid}", summary="A job, and why it waits")
async def get_job(request: Request, jobid: str) -> Response:
    of_query(request, ())
    raw = await jobs.one(service.of(request).link, jobs.read_id(jobid), attributes(FIELDS))
    return service.as_json(record(raw, FIELDS, time.time()))


@router.get("/jobs/{jobid}/jobspec", summary="A job's jobspec with all updates (RFC 14)")
async def get_job_jobspec(request: Request, jobid: str) -> Response:
    return await _kept(request, jobid, "jobspec")


@router.get("/jobs/{jobid}/R", summary="The resources that a job has or had (RFC 20)")
async def get_job_resources(request: Request, jobid: str) -> Response:
    return await _kept(request, jobid, "R")


async def _kept(request: Request, jobid: str, key: str) -> Response:
    of_query(request, ())
    # The broker stores jobspec and R as JSON.
    return _ready((await jobs.kept(service.of(request).link, jobs.read_id(jobid), key)).encode())


@router.get("/jobs/{jobid}/eventlog", summary="A job's events until now (RFC 21)")
async def get_job_eventlog(request: Request, jobid: str) -> Response:
    of_query(request, ())
    text = await jobs.kept(service.of(request).link, jobs.read_id(jobid), "eventlog")
    # Each line is an event as JSON (RFC 18), in which a newline is escaped.
    return _ready(b'{"events":[%s]}' % text.rstrip("\n").replace("\n", ",").encode())
