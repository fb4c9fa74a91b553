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
from headrace.api.identity import csrf
from headrace.api.identity.access import Unauthenticated
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


router = APIRouter(include_in_schema=False, dependencies=[Depends(service.by_cookie)])


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    here = service.of(request)
    # None where several users are served and this one has not logged in.
    user = getattr(request.state, "identity", None) if here.access.accounts.several else None
    text = _templates.get_template(template).render(instance=here.uri, user=user, forms=csrf.token(request), **values)
    return HTMLResponse(text, status)


def answer(request: Request, exc: Exception) -> Response:
    """The page for a problem; that to log in for one who may."""
    if isinstance(exc, Unauthenticated) and service.of(request).access.accounts.several and request.method == "GET":
        return RedirectResponse(
            "/login?" + urlencode({"next": request.url.path + ("?" + request.url.query if request.url.query else "")}),
            303,
        )
    problem = problems.of(exc)
    return page(request, "problem.html", problem.status, problem=problem)


@router.get("/")
async def home() -> Response:
    return RedirectResponse("/jobs", 303)


@router.get("/jobs")
async def list_jobs(request: Request) -> Response:
    chosen = {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    chosen_page = request.query_params.get("page", "1")
    known = chosen_page.isascii() and chosen_page.isdigit() and len(chosen_page) < 6
    number = max(1, int(chosen_page)) if known else 1
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
