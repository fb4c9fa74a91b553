"""The list of jobs: filters are in the address, 50 jobs on a page."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from headrace.api import jobs, service
from headrace.api.fields import Field, checked_text, choice, of_query, optional, whole_number
from headrace.api.pages import view
from headrace.api.pages.html import changes, page
from headrace.query.errors import QueryError
from headrace.query.listing import Query

PER_PAGE = 50
# The choices of the filter by state: the names that `flux jobs --filter` takes.
STATES = ("pending", "running", "inactive", "completed", "failed", "canceled", "timeout")
_FILTERS = ("state", "user", "name", "queue")
_FIELDS = (
    Field("state", optional(choice(STATES))),
    *(Field(name, checked_text) for name in ("user", "name", "queue")),
    Field("page", whole_number(1, 99_999)),
    # How many were cancelled by the form whose answer leads here.
    Field("cancelled", whole_number(0, PER_PAGE)),
)

router = APIRouter()


@router.get("/jobs")
async def list_jobs(request: Request) -> Response:
    asked = of_query(request, _FIELDS)
    chosen = {name: asked.get(name, "").strip() for name in _FILTERS}
    number = asked.get("page", 1)
    problem = ""
    found: list[dict[str, Any]] = []
    query = Query(count=number * PER_PAGE + 1)
    try:
        _restrict(query, chosen)
        found = await jobs.listing(service.of(request).link, query, view.ATTRIBUTES)
    except QueryError as exc:
        problem = str(exc)
    now = time.time()
    shown = found[(number - 1) * PER_PAGE : number * PER_PAGE]
    given = {name: value for name, value in chosen.items() if value}
    return page(
        request,
        "jobs.html",
        400 if problem else 200,
        problem=problem,
        chosen=chosen,
        said=_said(asked.get("cancelled")),
        here=urlencode({**given, "page": number}),
        states=STATES,
        rows=[view.row(raw, now) for raw in shown],
        newer=urlencode({**given, "page": number - 1}) if number > 1 else "",
        older=urlencode({**given, "page": number + 1}) if len(found) > number * PER_PAGE else "",
    )


@router.post("/jobs/cancel")
async def cancel(request: Request) -> Response:
    """Cancel the jobs that were chosen; back to the list, whose filters are in the address."""
    asked = of_query(request, _FIELDS)
    form = await request.form()
    await changes(request)
    done = 0
    for text in form.getlist("job")[:PER_PAGE]:
        try:
            await jobs.cancel(service.of(request).link, jobs.read_id(str(text)))
        except (jobs.JobHasEnded, jobs.NoSuchJob, PermissionError):
            # PermissionError: another user's job counts as one that never was.
            continue
        done += 1
    query = urlencode({**{name: value for name, value in asked.items() if value}, "cancelled": done})
    return RedirectResponse(f"/jobs?{query}", 303)


def _said(cancelled: int | None) -> str:
    """The sentence on how many jobs were cancelled, "" where none were chosen."""
    if cancelled is None:
        return ""
    return "One job is requested to end." if cancelled == 1 else f"{cancelled} jobs are requested to end."


def _restrict(query: Query, chosen: dict[str, str]) -> None:
    if chosen["state"]:
        query.filter(chosen["state"])
    if chosen["user"]:
        query.user(chosen["user"])
    for name in ("name", "queue"):
        if chosen[name]:
            query.add(name, [chosen[name]])
