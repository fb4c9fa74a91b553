"""The page of a job: events, reason for waiting, output, requested and allocated resources, actions."""

from __future__ import annotations

import asyncio
import errno
import signal
import time

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import PENDING
from headrace.service import jobs, service
from headrace.service.fields import Field, checked_text, choice, of_query, whole_number
from headrace.service.pages import following, html, job_view, output_search

# The signals that a form may send to the tasks of a job.
SIGNALS = ("SIGTERM", "SIGINT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT")
# The page shows at most this many bytes of output, from its end.
SHOWN = 128 << 10
# Bytes of output that are searched before other requests get a turn.
_TURN = 1 << 20
_FIELDS = (Field("find", checked_text), Field("said", choice(job_view.SAID)))
# `read` is the number of events of the output log that the page has.
_FOLLOW_FIELDS = (Field("read", whole_number(0, (1 << 53) - 1)),)

router = APIRouter()


@router.get("/jobs/{id}")
async def show(request: Request, id: str) -> Response:
    chosen = of_query(request, _FIELDS)
    link, number = service.of(request).link, jobs.read_id(id)
    raw = await jobs.one(link, number)
    if raw["state"] & PENDING:
        raw["annotations"] = await jobs.explanation(link, raw)
    stored = await jobs.lookup(link, number, ["eventlog", "jobspec", "J", *(["R"] if raw.get("t_run") else [])])
    tail, search, problem = job_view.Tail(SHOWN), output_search.Search(chosen.get("find", "").strip()), ""
    turn = _TURN
    try:
        async for part in jobs.written(link, raw):
            tail.add(part)
            search.add(part)
            if search.read > turn:
                turn += _TURN
                # Let the loop answer other requests.
                await asyncio.sleep(0)
        search.finish()
    except jobs.BadOutput as exc:
        problem = str(exc)
    except OSError as exc:
        # The output of a running job comes in one piece, which has a size limit.
        if exc.errno != errno.EFBIG:
            raise
        problem = str(exc.strerror)
    said = chosen.get("said", "")
    if said == "submitted" and job_view.has_failed(raw):
        # "The job was submitted" would mislead on the page of a failed job.
        said = ""
    return html.page(
        request,
        "job.html",
        job=job_view.job(raw, stored, time.time()),
        output=tail.output(),
        output_problem=problem,
        search=search,
        signals=SIGNALS,
        said=job_view.SAID.get(said, ""),
        said_here=f"?said={said}" if said else "",
    )


@router.get("/jobs/{id}/output.txt")
async def download(request: Request, id: str) -> Response:
    """The whole output of an ended job; the output so far of any other job."""
    of_query(request, ())
    here, number = service.of(request), jobs.read_id(id)
    job = await jobs.readable(here.link, number)
    pieces = (part.data or b"" async for part in jobs.written(here.link, job))
    name = f"{jobid.encode(number, 'f58plain')}.txt"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return here.stream(pieces, "text/plain; charset=utf-8", headers)


@router.get("/jobs/{id}/output/events")
async def follow(request: Request, id: str) -> Response:
    read = of_query(request, _FOLLOW_FIELDS).get("read", 0)
    here, number = service.of(request), jobs.read_id(id)
    await jobs.readable(here.link, number)
    # A browser that reconnects requests the same address again, with Last-Event-ID.
    last = request.headers.get("last-event-id", "")
    if last.isascii() and last.isdigit() and len(last) < 16:
        read = int(last)
    return here.stream(following.events(here.link, number, read), "text/event-stream")


@router.post("/jobs/{id}/cancel")
async def cancel(request: Request, id: str) -> Response:
    await html.changes(request)
    try:
        await jobs.cancel(service.of(request).link, jobs.read_id(id))
    except jobs.JobHasEnded:
        return _back(id, "ended")
    return _back(id, "cancelled")


@router.post("/jobs/{id}/kill")
async def kill(request: Request, id: str) -> Response:
    chosen = (await html.changes(request)).get("signal", "")
    if chosen not in SIGNALS:
        raise HTTPException(400, f"'{chosen}' is none of the signals {', '.join(SIGNALS)}")
    try:
        await jobs.kill(service.of(request).link, jobs.read_id(id), signal.Signals[chosen])
    except jobs.JobHasEnded:
        return _back(id, "ended")
    return _back(id, "signalled")


def _back(id: str, said: str) -> Response:
    """Redirect to the job's page, with a sentence about the result."""
    return RedirectResponse(f"/jobs/{jobid.encode(jobs.read_id(id), 'f58plain')}?said={said}", 303)
