"""The routes of `/v2` that stream: a job's output, its events, and the events of all jobs.

Events are server-sent events (WHATWG HTML, section 9.2): `data` is the event of RFC 21 as JSON. A client that
reconnects continues after the last `id` that it has received.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.formats.spec import eventlog, stdio
from headrace.formats.spec.job_state import INACTIVE
from headrace.formats.spec.jobid import encode
from headrace.service import jobs, service
from headrace.service.fields import Field, choice, of_query, whole_number
from headrace.service.journal import Journal, News
from headrace.service.rest.v2 import errors, fields

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_either)])

_STREAMS = ("stdout", "stderr")
_EVENTS = "text/event-stream"
_LARGEST = (1 << 53) - 1
_RANGE = re.compile(r"bytes=(\d{0,16})-(\d{0,16})", re.ASCII)


_OUTPUT = (
    Field("stream", choice(_STREAMS), {"type": "string", "enum": list(_STREAMS)}, "Only this stream (default: both)"),
    Field(
        "offset",
        whole_number(0, _LARGEST),
        {"type": "integer", "minimum": 0, "maximum": _LARGEST},
        "The first byte to return, counted in the chosen streams",
    ),
    Field("follow", fields.switch, {"type": "boolean"}, "Follow the output until it ends"),
)
_READ = {"parameters": fields.parameters(_OUTPUT)}
_LAST = {
    "parameters": [
        {
            **{"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}},
            "description": "The id of the last received event; the stream continues after it",
        }
    ]
}


@router.get("/jobs/{jobid}/output", summary="What a job writes", openapi_extra=_READ)
async def get_job_output(request: Request, jobid: str) -> Response:
    here = service.of(request)
    chosen = of_query(request, _OUTPUT)
    job = await jobs.readable(here.link, jobs.read_id(jobid), ["state"])
    offset = chosen.get("offset", 0)
    if chosen.get("follow"):
        pieces = _beyond(_chosen(_followed(here, job["id"]), chosen), offset)
    else:
        asked = _RANGE.fullmatch(request.headers.get("range", ""))
        if asked is not None and any(asked.groups()):
            return await _part(here, job, chosen, *asked.groups())
        pieces = _beyond(_chosen(_written(here, job), chosen), offset)
    return here.stream(pieces, "application/octet-stream")


async def _part(here: service.Here, job: dict[str, Any], chosen: dict[str, Any], first: str, last: str) -> Response:
    """A range of the output so far (RFC 9110 section 14), with the total size."""
    size = 0
    async for piece in _chosen(_written(here, job), chosen):
        size += len(piece)
    begin = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if begin > end:
        return errors.problem(
            416, f"there are {size} bytes", field="Range", headers={"Content-Range": f"bytes */{size}"}
        )
    pieces = _beyond(_chosen(_written(here, job), chosen), begin, end + 1 - begin)
    headers = {"Content-Range": f"bytes {begin}-{end}/{size}"}
    found = here.stream(pieces, "application/octet-stream", headers)
    found.status_code = 206
    return found


async def _followed(here: service.Here, id: int) -> AsyncIterator[stdio.Data]:
    async for part in jobs.parts(here.service.followers.follow(here.link, id, "guest.output"), id):
        yield part


async def _written(here: service.Here, job: dict[str, Any]) -> AsyncIterator[stdio.Data]:
    """The output of a job so far.

    The output of an ended job is read piece by piece, so it may be of any length.
    """
    if job["state"] == INACTIVE:
        async for part in _followed(here, job["id"]):
            yield part
    else:
        for part in await jobs.output(here.link, job["id"]):
            yield part


async def _chosen(parts: AsyncIterator[stdio.Data], chosen: dict[str, Any]) -> AsyncIterator[bytes]:
    name = chosen.get("stream")
    async for part in parts:
        if part.data and (name is None or part.stream == name):
            yield part.data


async def _beyond(pieces: AsyncIterator[bytes], skip: int, most: int = _LARGEST) -> AsyncIterator[bytes]:
    """`most` bytes after the first `skip`."""
    async for piece in pieces:
        shown = piece[skip : skip + most]
        skip -= min(skip, len(piece))
        most -= len(shown)
        if shown:
            yield shown
        if most <= 0:
            return


def _sent(id: str, data: bytes, name: str = "") -> bytes:
    """Encode a server-sent event. The data is JSON, so it has no line ends."""
    return b"%sid: %s\ndata: %s\n\n" % (f"event: {name}\n".encode() if name else b"", id.encode(), data)


@router.get("/jobs/{jobid}/events", summary="A job's events, as they come", openapi_extra=_LAST)
async def follow_job_events(request: Request, jobid: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    job = await jobs.readable(here.link, jobs.read_id(jobid), ["state"])
    last = request.headers.get("last-event-id", "")
    skip = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
    if skip and job["state"] == INACTIVE:
        past = eventlog.decode(await jobs.kept(here.link, job["id"], "eventlog"))
        if skip >= len(past):
            # No event will follow. With 204 browsers do not reconnect (section 9.2.2).
            return Response(status_code=204)

    async def pieces() -> AsyncIterator[bytes]:
        number = skip
        async for line in here.service.followers.follow(here.link, job["id"], "eventlog", skip):
            number += 1
            yield _sent(str(number), line.rstrip("\n").encode())

    return here.stream(pieces(), _EVENTS)


@router.get("/events", summary="The events of all jobs that are yours to see, as they come", openapi_extra=_LAST)
async def follow_events(request: Request) -> Response:
    """Without Last-Event-ID, or if it is too old, an event `begin` comes first, then only new events."""
    of_query(request, ())
    here = service.of(request)
    journal = here.service.news(here.own_link)
    now = await journal.begin()
    name, _, number = request.headers.get("last-event-id", "").partition(".")
    known = name == journal.name and number.isascii() and number.isdigit() and len(number) < 16
    resumes = known and journal.has(int(number))
    pieces = _news(here, journal, int(number) if resumes else now, begins=not resumes)
    return here.stream(pieces, _EVENTS)


async def _news(here: service.Here, journal: Journal, after: int, begins: bool) -> AsyncIterator[bytes]:
    if begins:
        yield _sent(f"{journal.name}.{after}", b"{}", "begin")
    async for news in journal.follow(here.identity, after):
        yield _sent(f"{journal.name}.{news.number}", _data(news))


def _data(news: News) -> bytes:
    return msgspec.json.encode({"id": encode(news.id, "f58plain"), **news.event})
