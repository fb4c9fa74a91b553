"""The page of the machine: each node with what is used of it, who runs there, and why it is not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.formats.spec import jobid
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_state import RUNNING
from headrace.formats.spec.rset import ResourceSet
from headrace.service import jobs, service
from headrace.service.fields import Field, choice, of_query, optional, whole_number
from headrace.service.pages import html, view
from headrace.wire.query.job_info import username
from headrace.wire.query.listing import Query

# Nodes on a page.
PER_PAGE = 500
# Running jobs that are looked for on nodes.
_MOST_JOBS = 10_000
_SHAPES = {"free": "○", "partly used": "◐", "full": "●", "draining": "◍", "drained": "⊘", "excluded": "⊖", "down": "✖"}
# Links and reloads of the page have a state also where none was chosen.
_FIELDS = (Field("state", optional(choice(_SHAPES))), Field("page", whole_number(1, 99_999)))

router = APIRouter()


class Tenant(NamedTuple):
    """A job that runs on a node."""

    id: str
    plain_id: str
    name: str
    user: str


class Node(NamedTuple):
    rank: int
    name: str
    state: str
    shape: str
    cores: tuple[int, int]
    gpus: tuple[int, int]
    reason: str
    tenants: list[Tenant]


@router.get("/machine")
async def show(request: Request) -> Response:
    given = of_query(request, _FIELDS)
    chosen, number = given.get("state", ""), given.get("page", 1)
    link = service.of(request).link
    status = await link.call("resource.status", {}, nodeid=0)
    sched = await link.call("resource.sched-status", {}, nodeid=0)
    query = Query(count=_MOST_JOBS)
    query.states = RUNNING
    running = await jobs.listing(link, query, ["name", "userid", "ranks"])
    found = nodes(status, sched.get("allocated"), running)
    counts = {state: sum(node.state == state for node in found) for state in _SHAPES}
    matching = [node for node in found if chosen in ("", node.state)]
    return html.page(
        request,
        "machine.html",
        nodes=matching[(number - 1) * PER_PAGE : number * PER_PAGE],
        counts={state: count for state, count in counts.items() if count},
        shapes=_SHAPES,
        chosen=chosen,
        number=number,
        more=len(matching) > number * PER_PAGE,
        total=len(found),
    )


def nodes(status: Mapping[str, Any], allocated: Any, running: list[dict[str, Any]]) -> list[Node]:
    """The nodes of an instance by what `resource.status` says, the resources that jobs have, and running jobs."""
    all = ResourceSet.from_obj(status["R"]) if status.get("R") else ResourceSet()
    used = ResourceSet.from_obj(allocated) if allocated else ResourceSet()
    online = set(Idset.parse(status.get("online", "")))
    excluded = set(Idset.parse(status.get("exclude", "")))
    reasons = {
        rank: str(entry.get("reason") or "no reason given")
        for ids, entry in status.get("drain", {}).items()
        for rank in Idset.parse(ids)
    }
    tenants: dict[int, list[Tenant]] = {}
    for job in running:
        id = job["id"]
        one = Tenant(
            jobid.encode(id),
            jobid.encode(id, "f58plain"),
            view.clipped(job.get("name", ""), view.LONGEST_NAME),
            username(job.get("userid", "")),
        )
        for rank in Idset.parse(str(job.get("ranks", ""))):
            tenants.setdefault(rank, []).append(one)
    busy = set(used.ranks)
    found = []
    for node in all.nodes():
        taken = (len(used.cores(node.rank)), len(used.gpus(node.rank))) if node.rank in busy else (0, 0)
        if node.rank in reasons:
            state = "draining" if node.rank in busy else "drained"
        elif node.rank in excluded:
            state = "excluded"
        elif node.rank not in online:
            state = "down"
        else:
            state = "free" if not taken[0] else "full" if taken[0] == len(node.cores) else "partly used"
        cores, gpus = (taken[0], len(node.cores)), (taken[1], len(node.gpus))
        reason, guests = reasons.get(node.rank, ""), tenants.get(node.rank, [])
        found.append(Node(node.rank, node.host, state, _SHAPES[state], cores, gpus, reason, guests))
    return found
