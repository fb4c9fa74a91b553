"""The routes of the pages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from headrace.api import jobs, problems, service
from headrace.api.identity.access import cookie_name
from headrace.api.pages import view
from headrace.query.errors import QueryError
from headrace.query.listing import Query

_HERE = Path(__file__).parent
PER_PAGE = 50
# The choices of the filter by state: the names that `flux jobs --filter` takes.
STATES = ("pending", "running", "inactive", "completed", "failed", "canceled", "timeout")
_FILTERS = ("state", "user", "name", "queue")

static = StaticFiles(directory=_HERE / "static")
_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(moment=view.moment, machine_moment=view.machine_moment)


public = APIRouter(include_in_schema=False)
router = APIRouter(include_in_schema=False, dependencies=[Depends(service.by_cookie)])


def _page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    here = service.of(request)
    text = _templates.get_template(template).render(instance=here.uri, **values)
    return HTMLResponse(text, status)


def answer(request: Request, exc: Exception) -> Response:
    """The page for a problem."""
    problem = problems.of(exc)
    return _page(request, "problem.html", problem.status, problem=problem)


@public.get("/login")
async def log_in(request: Request, token: str = "") -> Response:
    """Take the one-time token of the address that was printed, for a cookie."""
    access = service.of(request).access
    if not access.logins.use_up(token):
        # A browser that has the cookie already may open the one-time address again.
        await access.of_cookie(request)
        return RedirectResponse("/jobs", 303)
    found = RedirectResponse("/jobs", 303)
    found.set_cookie(
        cookie_name(request),
        access.tokens.issue(),
        max_age=access.seconds,
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="lax",
    )
    return found


@router.get("/")
async def home() -> Response:
    return RedirectResponse("/jobs", 303)


@router.get("/jobs")
async def list_jobs(request: Request) -> Response:
    chosen = {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    page = request.query_params.get("page", "1")
    number = max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 6 else 1
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
    return _page(
        request,
        "jobs.html",
        400 if problem else 200,
        problem=problem,
        chosen=chosen,
        states=STATES,
        rows=[view.row(raw, now) for raw in shown],
        newer=urlencode({**given, "page": number - 1}) if number > 1 else "",
        older=urlencode({**given, "page": number + 1}) if len(found) > number * PER_PAGE else "",
    )


def _restrict(query: Query, chosen: dict[str, str]) -> None:
    if chosen["state"]:
        query.filter(chosen["state"])
    if chosen["user"]:
        query.user(chosen["user"])
    for name in ("name", "queue"):
        if chosen[name]:
            query.add(name, [chosen[name]])
