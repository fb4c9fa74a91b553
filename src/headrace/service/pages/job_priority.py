"""The part of a job's page that says why the job has its priority, as a page of its own.

It asks for all pending jobs, so the job's page loads it once and then less often than its other parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.formats.spec import jobid
from headrace.service import accounting, jobs, service
from headrace.service.fields import of_query
from headrace.service.pages import html, view

router = APIRouter()


class Term(NamedTuple):
    """A term of a priority, as texts."""

    about: str
    value: str
    weight: str
    product: str


class Ahead(NamedTuple):
    """A job before this one; `plain_id` is for addresses."""

    id: str
    plain_id: str
    user: str
    bank: str
    priority: str


class Priority(NamedTuple):
    """Why a job has its priority, as texts. `before` is "" for a job that does not wait; `more` jobs are not listed."""

    priority: str
    note: str
    bank: str
    terms: list[Term]
    holds: list[str]
    before: str
    ahead: list[Ahead]
    more: int


@router.get("/jobs/{id}/priority")
async def show(request: Request, id: str) -> Response:
    of_query(request, ())
    here, number = service.of(request), jobs.read_id(id)
    found = await accounting.priority(here.link, here.own_link, number)
    return html.page(
        request,
        "job_priority.html",
        id=jobid.encode(number, "f58plain"),
        shown=jobid.encode(number),
        waits=found["before"] is not None,
        found=priority(found),
    )


def priority(found: Mapping[str, Any]) -> Priority:
    """The texts of `accounting.priority`."""
    before = found["before"]
    ahead = [_ahead(job) for job in before["jobs"]] if before else []
    return Priority(
        priority="none yet" if found["priority"] is None else str(found["priority"]),
        note=found["note"],
        bank=found["bank"],
        terms=[
            Term(term["about"], _number(term["value"]), _number(term["weight"]), _number(term["product"]))
            for term in found["terms"]
        ],
        holds=[f"{limit['name']}: {limit['about']}" for limit in found["limits"]],
        before=_before(before["count"], before["banks"]) if before else "",
        ahead=ahead,
        more=before["count"] - len(ahead) if before else 0,
    )


def _ahead(job: Mapping[str, Any]) -> Ahead:
    user = view.clipped(job["user"], view.LONGEST_NAME)
    return Ahead(jobid.encode(jobid.parse(job["id"])), job["id"], user, job["bank"], str(job["priority"]))


def _before(count: int, banks: Mapping[str, int]) -> str:
    """How many jobs come before a job, in all and by bank."""
    if not count:
        return "No waiting job of its queue comes before it."
    shown = "One waiting job comes" if count == 1 else f"{count} waiting jobs come"
    return (
        f"{shown} before it: " + ", ".join(f"{number} of {bank or 'no bank'}" for bank, number in banks.items()) + "."
    )


def _number(value: float) -> str:
    """A number without rounding that matters, such as a fair share of six decimals."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
