"""The routes of the pages, with authentication and error pages."""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from headrace.service import problems, service
from headrace.service.fields import BadFields, of_query
from headrace.service.pages import (
    experiments,
    html,
    job,
    job_list,
    job_priority,
    login,
    machine,
    people,
    queue,
    shares,
    statistics,
    submit,
)
from headrace.service.users.access import Unauthenticated

router = APIRouter(include_in_schema=False, dependencies=[Depends(service.by_cookie)])
static = html.static


async def answer(request: Request, exc: Exception) -> Response:
    """The error page for an exception; the login form if logging in can help."""
    if not hasattr(request.state, "identity") and not isinstance(exc, Unauthenticated):
        # The path has no route, or a public one, so the user of the request has not been looked up.
        with contextlib.suppress(Unauthenticated):
            await service.let_in(request, service.of(request).access.of_cookie)
    if isinstance(exc, Unauthenticated) and service.of(request).access.accounts.logs_in and request.method == "GET":
        return login.to_form(request)
    if isinstance(exc, BadFields):
        text = "; ".join(f"{name} {text}" for name, text in exc.problems)
        problem = problems.Problem(400, f"The address of this page is wrong: {text}.", {})
    else:
        problem = problems.of(exc)
    return html.page(request, "problem.html", problem.status, problem=problem)


@router.get("/")
async def home(request: Request) -> Response:
    of_query(request, ())
    return RedirectResponse("/jobs", 303)


for page in (
    job_list,
    job,
    job_priority,
    submit,
    queue,
    machine,
    statistics,
    shares,
    experiments,
    people,
):
    router.include_router(page.router)
