"""The routes of `/v1`: paths, fields and keys are those of flux-restful-api."""

from __future__ import annotations

import io
import os
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headrace.formats.config import guests
from headrace.formats.spec.hostlist import Hostlist
from headrace.service import jobs, service
from headrace.service.rest.v1 import fields, submission
from headrace.service.rest.v1.answers import mentions, record
from headrace.service.rest.v1.fields import Field, count, if_valid, integer, switch, text
from headrace.wire.query.listing import Query
from headrace.wire.query.resource_sets import Given, SchedulerResources

_MOST = 1000
_LIST = (
    Field("details", switch, "boolean", "Each job in detail, by its id", ("detail",)),
    Field("listing", switch, "boolean", "With details: a list"),
    Field("limit", if_valid(count), "integer", f"The maximum number of jobs (default: {_MOST})"),
)
_SEARCH = (
    Field("search[value]", text, "string", "Only jobs that contain this text", ("search", "query")),
    Field("start", if_valid(count), "integer", "The number of found jobs to skip"),
    Field("length", if_valid(integer), "integer", "The maximum number of found jobs (default: all)"),
    Field("draw", if_valid(integer), "integer", "Returned unchanged"),
)


router = APIRouter(prefix="/v1", tags=["v1"], dependencies=[Depends(service.by_header)])


@router.post("/service/stop", summary="Stop the instance")
async def stop(request: Request) -> Response:
    here = service.of(request)
    if not here.access.needed:
        raise HTTPException(403, "the instance cannot be stopped through a service without authentication")
    if not here.identity.sees_all:
        raise HTTPException(403, "the instance is stopped by its owner and by administrators only")
    await here.own_link.call("shutdown.start", {"loglevel": 6}, nodeid=0)
    return service.as_json({"Message": "The instance is requested to stop."})


@router.get("/jobs", summary="The jobs, newest first", openapi_extra=fields.openapi(_LIST))
async def list_jobs(request: Request) -> Response:
    values = await fields.read(request, _LIST)
    limit = values.get("limit", _MOST)
    # For job-list a count of 0 means all jobs.
    found = await _jobs(request, limit) if limit else []
    if not values.get("details"):
        return service.as_json({"jobs": found})
    details = [record(raw) for raw in found]
    return service.as_json(details if values.get("listing") else {str(job["id"]): job for job in details})


@router.get("/jobs/search", summary="The jobs that contain a text", openapi_extra=fields.openapi(_SEARCH))
async def search(request: Request) -> Response:
    values = await fields.read(request, _SEARCH)
    everything = [record(raw) for raw in await _jobs(request, 0)]
    sought = values.get("search[value]")
    found = everything if sought is None else [job for job in everything if mentions(job, sought)]
    if values.get("start", 0) < len(found):
        found = found[values.get("start", 0) :]
    # DataTables requests all rows with -1.
    if values.get("length", -1) >= 0:
        found = found[: values["length"]]
    draw = values.get("draw", 1)
    return service.as_json(
        {"data": found, "draw": draw, "recordsTotal": len(everything), "recordsFiltered": len(found)}
    )


async def _jobs(request: Request, limit: int) -> list[dict[str, Any]]:
    """At most `limit` jobs (0: all), newest first. If there are more, active jobs take precedence."""
    found = await jobs.listing(service.of(request).link, Query(count=limit), jobs.ALL_ATTRIBUTES)
    return sorted(found, key=lambda job: -job["id"])


@router.get("/nodes", summary="The hosts that are up")
async def list_nodes(request: Request) -> Response:
    answer = await service.of(request).link.call("resource.sched-status", nodeid=0)
    hosts = Hostlist.parse(str(SchedulerResources(Given(answer)).state("up").nodelist))
    # A host with several brokers is listed once.
    return service.as_json({"nodes": list(dict.fromkeys(hosts))})


@router.post("/jobs/submit", summary="Submit a job", openapi_extra=fields.openapi(submission.FIELDS))
async def submit(request: Request) -> Response:
    here = service.of(request)
    given = fields.of_query(request)
    body = await fields.of_body(request)
    if "command" in given and "envars" not in given and fields.is_json(request):
        given["envars"] = body
    else:
        given = {**body, **given}
    values = fields.pick(given, submission.FIELDS)
    try:
        if values.get("is_launcher"):
            return service.as_json(
                {"Message": f"{await _launch(here, values)} was started, and submits jobs.", "id": "MANY"}
            )
        jobspec = submission.jobspec(values, here.settings)
        if submission.may_be_too_large(values):
            await jobs.check_if_possible(here.link, jobspec)
        id = await jobs.submit(here.link, jobspec)
    except jobs.Refused as exc:
        return service.as_json({"Message": f"The job is not submitted: {exc}.", "Errors": exc.problems}, 400)
    request.state.job = id
    return service.as_json({"Message": "The job is submitted.", "id": id})


async def _launch(here: service.Here, values: dict[str, Any]) -> str:
    """Start a workflow tool; returns its name. Raises jobs.Refused."""
    command, environment = submission.launcher(values)
    if here.access.accounts.several:
        # The tool runs as the owner. Only with as-owner do the users' jobs run as the owner, too.
        allowed = guests.submit(await here.own_link.call("config.get"))
        if allowed != guests.AS_OWNER:
            raise jobs.Refused(
                [
                    f'is_launcher would run {command[0]} as the owner of the instance, and {guests.KEY} is "{allowed}" '
                    "here: submit it without is_launcher, as a job of yours, in which it submits jobs, too"
                ]
            )
    try:
        here.launch(command, environment, values.get("workdir") or here.settings.directory or os.getcwd())
    except OSError as exc:
        raise jobs.Refused([f"{command[0]}: {exc.strerror}"]) from None
    return command[0]


@router.get("/jobs/{jobid}", summary="One job in detail")
async def get_job(request: Request, jobid: str) -> Response:
    return service.as_json(record(await jobs.one(service.of(request).link, jobs.read_id(jobid))))


@router.post("/jobs/{jobid}/cancel", summary="Cancel a job")
async def cancel(request: Request, jobid: str) -> Response:
    try:
        await jobs.cancel(service.of(request).link, jobs.read_id(jobid))
    except jobs.JobHasEnded as exc:
        return service.as_json({"Message": f"Job cannot be cancelled: {exc}.", "id": jobid}, 400)
    return service.as_json({"Message": "Job is requested to cancel.", "id": jobid})


@router.get("/jobs/{jobid}/output", summary="What a job has written until now, as lines")
async def get_output(request: Request, jobid: str) -> Response:
    parts = await jobs.output(service.of(request).link, jobs.read_id(jobid))
    written = _text(parts)
    if not written:
        return service.as_json(
            {"Message": "The output does not exist yet: the job has not begun, or has written nothing."}
        )
    # Only "\n" ends a line. str.splitlines would split at other characters, too.
    return service.as_json({"Output": list(io.StringIO(written, newline="\n"))})


@router.get("/jobs/{jobid}/output/stream", summary="What a job writes, as it comes")
async def stream_output(request: Request, jobid: str) -> Response:
    here, id = service.of(request), jobs.read_id(jobid)
    await jobs.readable(here.link, id)

    pieces = (part.data async for part in jobs.follow_output(here.link, id) if part.data)
    return here.stream(pieces, "text/plain; charset=utf-8")


def _text(parts: list[Any]) -> str:
    return b"".join(part.data for part in parts if part.data).decode("utf-8", "replace")
