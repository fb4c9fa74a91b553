"""The page of the machine: each node with its usage, its running jobs, and why it is drained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.formats.spec import jobid
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_state import RUNNING
from headrace.service import instance, jobs, service
from headrace.service.fields import Field, choice, of_query, optional, whole_number
from headrace.service.pages import html, view
from headrace.wire.query.job_info import username
from headrace.wire.query.listing import Query

# Nodes on a page.
PER_PAGE = 500
# The maximum number of running jobs that are shown on nodes.
_MOST_JOBS = 10_000
_SHAPES = {"free": "○", "partly used": "◐", "full": "●", "draining": "◍", "drained": "⊘", "excluded": "⊖", "down": "✖"}
# Links and reloads of the page have a `state` even if none was chosen; it is then empty.
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
    query = Query(count=_MOST_JOBS)
    query.states = RUNNING
    running = await jobs.listing(link, query, ["name", "userid", "ranks"])
    found = nodes((await instance.all_nodes(link))[0], running)
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


def nodes(found: Iterable[instance.Node], running: list[dict[str, Any]]) -> list[Node]:
    """The nodes of an instance with the running jobs on each."""
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
    return [_node(node, tenants.get(node.rank, [])) for node in found]


def _node(node: instance.Node, tenants: list[Tenant]) -> Node:
    cores, gpus = (len(node.cores_used), len(node.cores)), (len(node.gpus_used), len(node.gpus))
    state = node.state
    if state == "allocated":
        state = "full" if cores[0] == cores[1] else "partly used"
    reason = (node.drain["reason"] or "no reason given") if node.drain else ""
    return Node(node.rank, node.host, state, _SHAPES[state], cores, gpus, reason, tenants)
