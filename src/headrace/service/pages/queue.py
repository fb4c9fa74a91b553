"""The page of the queues: their states, and pending jobs in the order of the scheduler."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.formats.spec.job_state import PENDING
from headrace.formats.spec.urgency import PRIORITY_MAX
from headrace.service import instance, jobs, service
from headrace.service.fields import of_query
from headrace.service.pages import html, view
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query

# The maximum number of pending jobs that are shown, from the front of the order.
SHOWN = 200

router = APIRouter()


class Place(NamedTuple):
    """A pending job in its queue.

    `number` is its position, which also counts jobs that this user cannot see. `start` is its expected start in
    seconds since the epoch. Both are 0 if unknown.
    """

    number: int
    row: view.Row
    priority: str
    reason: str
    start: float


class Queue(NamedTuple):
    """A queue with its pending jobs. `name` is "" in an instance without named queues.

    `sizes` has the free and the total number of nodes, cores and GPUs.
    """

    name: str
    enabled: bool
    started: bool
    why: str
    sizes: list[tuple[str, int, int]]
    places: list[Place]


@router.get("/queue")
async def show(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    query = Query(count=SHOWN + 1)
    query.states = PENDING
    waiting, queues = await asyncio.gather(
        jobs.listing(here.link, query, view.ATTRIBUTES), instance.queues(here.link, here.own_link)
    )
    now = time.time()
    by_queue: dict[str, list[Place]] = {}
    for raw in waiting[:SHOWN]:
        by_queue.setdefault(raw.get("queue", ""), []).append(place(raw, now))
    shown = [_queue(queue, by_queue.get(queue["name"], [])) for queue in queues]
    return html.page(request, "queue.html", queues=shown, more=len(waiting) > SHOWN, shown=SHOWN)


def _queue(found: dict[str, Any], places: list[Place]) -> Queue:
    kinds = (("nodes", "nnodes"), ("cores", "ncores"), ("GPUs", "ngpus"))
    sizes = [(label, found["free"][kind], found["all"][kind]) for label, kind in kinds]
    why = "; ".join(str(found[key]) for key in ("disable_reason", "stop_reason") if found[key])
    return Queue(found["name"], found["enabled"], found["started"], why, sizes, places)


def place(raw: dict[str, Any], now: float) -> Place:
    job = JobInfo(raw, now)
    start = job.get("sched.t_estimate")
    priority = raw.get("priority")
    shown = "first" if priority == PRIORITY_MAX else "" if priority is None else str(priority)
    reason = view.clipped(view.why(job))
    ahead = job.get("sched.jobs_ahead")
    number = ahead + 1 if isinstance(ahead, int) else 0
    return Place(number, view.row(raw, now), shown, reason, float(start) if isinstance(start, (int, float)) else 0.0)
