"""The routes of `/v2` about jobs."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.api import jobs, service
from headrace.api.v2 import fields, listing
from headrace.api.v2.record import FIELDS, attributes, record

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return _ready(fields.json_bytes(content), status, headers)


def _ready(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, "application/json")


@router.get("/jobs", summary="Jobs, a page of them", openapi_extra={"parameters": fields.parameters(listing.FIELDS)})
async def list_jobs(request: Request) -> Response:
    chosen = fields.of_query(request, listing.FIELDS)
    return _json(await listing.page(service.of(request).link, chosen, time.time()))


@router.get("/jobs/{jobid}", summary="A job, and why it waits")
async def get_job(request: Request, jobid: str) -> Response:
    raw = await jobs.one(service.of(request).link, jobs.read_id(jobid), attributes(FIELDS))
    return _json(record(raw, FIELDS, time.time()))


@router.get("/jobs/{jobid}/jobspec", summary="A job's jobspec with all updates (RFC 14)")
async def get_jobspec(request: Request, jobid: str) -> Response:
    return await _kept(request, jobid, "jobspec")


@router.get("/jobs/{jobid}/R", summary="The resources that a job has or had (RFC 20)")
async def get_resources(request: Request, jobid: str) -> Response:
    return await _kept(request, jobid, "R")


async def _kept(request: Request, jobid: str, key: str) -> Response:
    # The broker keeps JSON.
    return _ready((await jobs.kept(service.of(request).link, jobs.read_id(jobid), key)).encode())


@router.get("/jobs/{jobid}/eventlog", summary="A job's events until now (RFC 21)")
async def get_eventlog(request: Request, jobid: str) -> Response:
    text = await jobs.kept(service.of(request).link, jobs.read_id(jobid), "eventlog")
    # Each line is an event as JSON (RFC 18), in which a newline is escaped.
    return _ready(b'{"events":[%s]}' % text.rstrip("\n").replace("\n", ",").encode())
