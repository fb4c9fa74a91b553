"""`GET /metrics`, for Prometheus: with a token, or from this machine."""

from __future__ import annotations

import ipaddress

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from headrace.formats.exposition.metrics import CONTENT_TYPE
from headrace.service import problems, service
from headrace.service.people import AdminsOnly

PATH = "/metrics"
router = APIRouter()


def _is_local(request: Request) -> bool:
    # Behind a proxy, every request comes from the proxy's address or from one that a client may have written.
    if request.client is None or service.of(request).settings.behind_proxy:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


@router.get(PATH, include_in_schema=False)
async def get_metrics(request: Request) -> Response:
    here = service.of(request)
    is_private = (await here.own_link.call("config.get")).get("access", {}).get("private-mode") is True
    if is_private or not _is_local(request):
        await service.by_header(request)
    if is_private and not here.identity.sees_all:
        raise AdminsOnly("access.private-mode: the numbers of all jobs are for administrators only")
    return Response(await here.service.collector.text(here.own_link), media_type=CONTENT_TYPE)


def answer(exc: Exception) -> Response:
    """What is answered when something is wrong."""
    problem = problems.of(exc)
    return PlainTextResponse(problem.text + "\n", problem.status, problem.headers)
