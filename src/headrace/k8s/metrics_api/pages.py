"""Pages of the metrics APIs for any web server: lists of metrics, refusals, and answers as bytes.

Also the names of the metrics that an instance and a MiniCluster have in common; they are those of flux-metrics-api.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.formats.spec.job_state import STATE_BITS

from . import documents
from .selectors import Matches, selector

Object = dict[str, Any]

DEMAND_NODES, IDLE_SECONDS, NODES_UP = "demand_nodes", "idle_seconds", "node_up_count"
# The metrics that count jobs, by state.
JOBS = {state: f"job_queue_state_{state}_count" for state in STATE_BITS}


class Refused(Exception):
    """A request without values; `status` is that of HTTP, the text is for users."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request(NamedTuple):
    """A request: its path, the fields of the path, and its query."""

    path: str
    fields: Mapping[str, str]
    query: Mapping[str, str]

    def chosen(self) -> Matches:
        """Whether labels meet the request's label selector. Raises Refused."""
        try:
            return selector(self.query.get("labelSelector", ""))
        except ValueError as exc:
            raise Refused(400, str(exc)) from None

    def metric(self, names: Iterable[str], of: str = "") -> str:
        """The name of the metric, which is one of `names`. Raises Refused."""
        name, known = self.fields["metric"], list(names)
        if name not in known:
            raise Refused(404, f"there is no metric {name}{of}: {', '.join(known)}")
        return name


# Makes the document that answers a request. Raises Refused.
Page = Callable[[Request], Awaitable[Object]]


def lists(served: Mapping[str, Iterable[str]]) -> dict[str, Page]:
    """The pages that list the group versions that are served and, as names, what each of them serves; by path."""
    return {
        "/apis": constant(documents.group_list(*served)),
        **{f"/apis/{one}": constant(documents.resource_list(one, names)) for one, names in served.items()},
    }


def constant(document: Object) -> Page:
    async def page(request: Request) -> Object:
        return document

    return page


async def answer(page: Page, request: Request) -> tuple[int, bytes]:
    """The HTTP status and the body (JSON) for a request."""
    try:
        status, document = 200, await page(request)
    except Refused as exc:
        status, document = exc.status, documents.status(exc.status, str(exc))
    return status, msgspec.json.encode(document)
