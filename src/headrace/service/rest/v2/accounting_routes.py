"""The routes of `/v2` about accounting: banks, associations, usage, and the priority of a job.

Names of banks may have slashes, so their part of a path is of the kind `path`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.service import accounting, jobs, service
from headrace.service.fields import BadFields, Field, of_query, pick, whole_number
from headrace.service.rest.v2 import fields

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])

_TEXT = {"type": "string"}
_CHOSEN = (
    Field("bank", fields.text, _TEXT, "Of this bank"),
    Field("user", fields.text, _TEXT, "Of this user, by name"),
)
_MONTH = 30 * 86400.0
_PARTS, _MOST_PARTS = 60, 1000
_SPAN = (
    Field("from", fields.moment, _TEXT, "From this time on (default: 30 days before to)"),
    Field("to", fields.moment, _TEXT, "Until this time (default: now)"),
    Field(
        "parts",
        whole_number(1, _MOST_PARTS),
        {"type": "integer", "minimum": 1, "maximum": _MOST_PARTS, "default": _PARTS},
        "The number of equal parts of the time for over_time",
    ),
)


def _parameters(form: Iterable[Field]) -> dict[str, Any]:
    return {"parameters": fields.parameters(form)}


def _body(form: Iterable[Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"requestBody": fields.body_of(form, required)}


@router.get("/banks", summary="The tree of banks: shares, usage and fair share")
async def list_banks(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    return service.as_json({"banks": (await accounting.overview(here.link, here.own_link, "none"))["banks"]})


@router.get(
    "/associations",
    summary="Users in banks: your own, those of banks that you coordinate, or all for administrators",
    openapi_extra=_parameters(_CHOSEN),
)
async def list_associations(request: Request) -> Response:
    here, chosen = service.of(request), of_query(request, _CHOSEN)
    found = await accounting.overview(here.link, here.own_link, **chosen)
    return service.as_json({"associations": found["associations"]})


@router.post(
    "/banks/{bank:path}/users",
    summary="Add a user to a bank, or bring one back, for coordinators and administrators",
    openapi_extra=_body(accounting.ADD_FIELDS, ("user",)),
)
async def add_bank_user(request: Request, bank: str) -> Response:
    here = service.of(request)
    values = pick(await fields.of_body(request), accounting.ADD_FIELDS)
    if "user" not in values:
        raise BadFields([("user", "is required")])
    user = values.pop("user")
    userid = here.people.userid_of(user)
    made = await accounting.add_user(here.link, here.own_link, bank, user, values, userid)
    return service.as_json(made, 201, {"Location": f"/v2/associations?bank={quote(bank)}&user={quote(user)}"})


@router.post(
    "/banks/{bank:path}/users/{user}",
    summary="Change shares and limits of a user in a bank, for coordinators and administrators",
    openapi_extra=_body(accounting.USER_FIELDS),
)
async def change_bank_user(request: Request, bank: str, user: str) -> Response:
    here = service.of(request)
    values = pick(await fields.of_body(request), accounting.USER_FIELDS)
    return service.as_json(await accounting.change_user(here.link, here.own_link, bank, user, values))


@router.delete(
    "/banks/{bank:path}/users/{user}",
    summary="Make a user of a bank inactive, for coordinators and administrators; usage and limits are kept",
)
async def remove_bank_user(request: Request, bank: str, user: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    await accounting.remove_user(here.link, here.own_link, bank, user)
    return Response(status_code=204)


@router.post(
    "/banks/{bank:path}",
    summary="Change the shares of a bank, for administrators and coordinators of a bank above it",
    openapi_extra=_body(accounting.BANK_FIELDS),
)
async def change_bank(request: Request, bank: str) -> Response:
    here = service.of(request)
    values = pick(await fields.of_body(request), accounting.BANK_FIELDS)
    return service.as_json(await accounting.change_bank(here.link, here.own_link, bank, values))


@router.get(
    "/usage",
    summary="The usage of banks against their shares, and over time",
    openapi_extra=_parameters(_SPAN),
)
async def get_usage(request: Request) -> Response:
    here, chosen = service.of(request), of_query(request, _SPAN)
    end = chosen.get("to", time.time())
    begin = chosen.get("from", max(0.0, end - _MONTH))
    if not begin < end:
        raise BadFields([("from", "must be before to")])
    return service.as_json(await accounting.usage(here.link, here.own_link, begin, end, chosen.get("parts", _PARTS)))


@router.get("/jobs/{jobid}/priority", summary="Why a job has its priority: terms, jobs before it, limits")
async def get_job_priority(request: Request, jobid: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    return service.as_json(await accounting.priority(here.link, here.own_link, jobs.read_id(jobid)))
