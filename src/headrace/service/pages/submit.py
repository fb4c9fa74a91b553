"""The page that submits a job: a form that works without scripts and can check without submitting."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from headrace.formats.spec import jobid
from headrace.service import jobs, service
from headrace.service.fields import Field, of_query
from headrace.service.pages import html, submission
from headrace.wire.query.resource_sets import Given, SchedulerResources


def _job_id(value: str) -> int:
    try:
        return jobid.parse(value)
    except ValueError:
        raise ValueError(f"must be the id of a job, such as f6bJQNPLu, not '{value}'") from None


_FIELDS = (Field("from", _job_id),)

router = APIRouter()


@router.get("/submit")
async def form(request: Request) -> Response:
    """The empty form, or with `from` a form with the values of a job."""
    job_id = of_query(request, _FIELDS).get("from")
    values, lost = dict(submission.EMPTY), list[str]()
    if job_id is not None:
        link = service.of(request).link
        # Another user's job is answered like one that does not exist.
        await jobs.one(link, job_id)
        stored = await jobs.lookup(link, job_id, ["J"])
        values, lost = submission.of_job(stored["J"])
    return await _form(request, values, lost=lost)


@router.post("/submit")
async def submit(request: Request) -> Response:
    given = {**submission.EMPTY, "tasks": "", **await html.changes(request)}
    here = service.of(request)
    found = submission.read(given, here.settings)
    if found.job is None:
        return await _form(request, given, found.problems)
    try:
        if given.get("action") == "check":
            await jobs.check(here.link, found.job.jobspec)
            return await _form(request, given, jobspec=found.job.jobspec)
        id = await jobs.submit(here.link, found.job.jobspec, found.job.urgency)
        request.state.job = id
    except jobs.Refused as exc:
        resources = await _resources(request)
        return await _form(request, given, submission.too_large(given, resources.state("all")) or _refused(exc))
    return RedirectResponse(f"/jobs/{jobid.encode(id, 'f58plain')}?said=submitted", 303)


def _refused(exc: jobs.Refused) -> dict[str, str]:
    """The broker's refusal as an error text by field."""
    return {exc.field: f"is refused: {exc}" if exc.field else str(exc)}


async def _resources(request: Request) -> SchedulerResources:
    here = service.of(request)
    found = SchedulerResources(Given(await here.link.call("resource.sched-status", {}, nodeid=0)))
    found.configure(await here.own_link.call("config.get"))
    return found


async def _form(
    request: Request,
    values: dict[str, str],
    problems: dict[str, str] | None = None,
    lost: list[str] | None = None,
    jobspec: Any = None,
) -> Response:
    resources = await _resources(request)
    free = [
        (queue, *(resources.count("free", kind, queue) for kind in ("nnodes", "ncores", "ngpus")))
        for queue in resources.queues or [""]
    ]
    return html.page(
        request,
        "submit.html",
        422 if problems else 200,
        fields=submission.FIELDS,
        values=values,
        problems=problems or {},
        lost=lost or [],
        free=free,
        queues=resources.queues,
        directory=service.of(request).settings.directory,
        jobspec="" if jobspec is None else json.dumps(jobspec, indent=2, ensure_ascii=False),
    )
