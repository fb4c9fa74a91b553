"""The routes of `/v2` about the instance and the user: queues, resources, statistics."""

from __future__ import annotations

import time

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, Response

from headrace.formats.spec import duration
from headrace.service import instance, jobs, service
from headrace.service.fields import BadFields, Field, of_query
from headrace.service.rest.v2 import documentation, fields
from headrace.service.statistics import ATTRIBUTES, statistics

public = APIRouter(prefix="/v2", tags=["v2"])
router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])

_MOST_BINS = 1000
_BINS = 48
_DAY = 86400.0


def _bin(value: str) -> float:
    seconds = duration.parse(value)
    if not 1 <= seconds < float("inf"):
        raise ValueError(f"must be a second at least, such as 60, 5m or 1h, not '{value}'")
    return seconds


_SPAN = (
    Field("from", fields.moment, {"type": "string"}, "From this time on (default: a day before to)"),
    Field("to", fields.moment, {"type": "string"}, "Until this time (default: now)"),
    Field("bin", _bin, {"type": "string"}, f"Length of a bin, such as 5m (default: {_BINS} bins)"),
)


@router.get("/queues", summary="Queues: state, limits and resources")
async def list_queues(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    return service.as_json({"queues": await instance.queues(here.link, here.own_link)})


@router.get("/resources", summary="Resources by state, and each node")
async def get_resources(request: Request) -> Response:
    of_query(request, ())
    return service.as_json(await instance.resources(service.of(request).link))


@router.get("/resources/graph", summary="The resource graph (RFC 4, JGF)")
async def get_resource_graph(request: Request) -> Response:
    of_query(request, ())
    return Response(await instance.graph(service.of(request).link), media_type="application/json")


@router.get(
    "/statistics",
    summary="Jobs, their use and their waits, over time",
    openapi_extra={"parameters": fields.parameters(_SPAN)},
)
async def get_statistics(request: Request) -> Response:
    chosen = of_query(request, _SPAN)
    now = time.time()
    end = chosen.get("to", now)
    begin = chosen.get("from", max(0.0, end - _DAY))
    if not begin < end:
        raise BadFields([("from", "must be before to")])
    width = chosen.get("bin", max(1.0, (end - begin) / _BINS))
    if (end - begin) / width > _MOST_BINS:
        raise BadFields([("bin", f"must be longer: there are at most {_MOST_BINS} bins")])
    found = await jobs.between(service.of(request).link, begin, end, ATTRIBUTES)
    return service.as_json(statistics(found, begin, end, width, now))


@router.get("/me", summary="Who you are here")
async def get_me(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    identity = here.identity
    return service.as_json(
        {"name": identity.name, "userid": identity.userid, "sees_all": identity.sees_all, "auth": here.settings.auth}
    )


@public.get("/openapi.json", include_in_schema=False)
async def get_openapi(request: Request) -> Response:
    of_query(request, ())
    return Response(documentation.KEPT.read_bytes(), media_type="application/json")


@public.get("/docs", include_in_schema=False)
async def get_documentation(request: Request) -> Response:
    of_query(request, ())
    return HTMLResponse(documentation.page())
