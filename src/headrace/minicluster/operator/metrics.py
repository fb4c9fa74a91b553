"""`custom.metrics.k8s.io` and `external.metrics.k8s.io` for all MiniClusters, as pages of the operator's web server.

A custom metric is about a MiniCluster; an external one has its name in the label `minicluster`. The API server has
checked what the user may do, and passes requests on (aggregation layer); all others are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from aiohttp import web

from headrace.k8s.metrics_api import documents
from headrace.k8s.metrics_api.documents import CUSTOM, EXTERNAL, Described
from headrace.k8s.metrics_api.selectors import selector
from headrace.k8s.objects.kinds import MINICLUSTERS
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.admission.aggregation import Refusal

from .autoscaler import NAMES, numbers

Object = dict[str, Any]

RESOURCE = f"{MINICLUSTERS.plural}.{MINICLUSTERS.group}"
_RESOURCES = (RESOURCE, MINICLUSTERS.plural)
# The label of an external metric.
LABEL = "minicluster"


class Refused(Exception):
    """A request without values; `status` is that of HTTP, the text is for users."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def routes(clusters: Callable[[], Iterable[Object]], refusal: Refusal) -> list[web.RouteDef]:
    """The pages, for requests without a `refusal`; `clusters` are the MiniClusters that there are."""

    def within(request: web.Request, metric: str) -> list[tuple[Object, float]]:
        """The MiniClusters of the request's namespace that have a value. Raises Refused."""
        if metric not in NAMES:
            raise Refused(404, f"there is no metric {metric} of MiniClusters: {', '.join(NAMES)}")
        now, namespace = time.time(), request.match_info["namespace"]
        found = [one for one in clusters() if one["metadata"]["namespace"] == namespace]
        return [(one, values[metric]) for one in found if (values := numbers(one, now))]

    async def custom(request: web.Request) -> Object:
        fields = request.match_info
        metric, name = fields["metric"], fields["name"]
        if fields["resource"] not in _RESOURCES:
            raise Refused(404, f"there are metrics of {RESOURCE} only, not of {fields['resource']}")
        chosen = _selector(request) if name == "*" else lambda labels: True
        about = Described(MINICLUSTERS.kind, MINICLUSTERS.api_version, fields["namespace"], "")
        rows = [
            (about._replace(name=one["metadata"]["name"]), value)
            for one, value in within(request, metric)
            if name in ("*", one["metadata"]["name"]) and chosen(one["metadata"].get("labels") or {})
        ]
        if not rows and name != "*":
            raise Refused(404, f"no MiniCluster {fields['namespace']}/{name} runs, so that it has no {metric}")
        return documents.custom_values(metric, rows, text_of(time.time()), request.path)

    async def external(request: web.Request) -> Object:
        metric, chosen = request.match_info["metric"], _selector(request)
        rows = [({LABEL: one["metadata"]["name"]}, value) for one, value in within(request, metric)]
        return documents.external_values(metric, [row for row in rows if chosen(row[0])], text_of(time.time()))

    pages: dict[str, Callable[[web.Request], Any]] = {
        "/apis": _constant(documents.group_list(CUSTOM, EXTERNAL)),
        f"/apis/{CUSTOM}": _constant(documents.resource_list(CUSTOM, [f"{RESOURCE}/{name}" for name in NAMES])),
        f"/apis/{EXTERNAL}": _constant(documents.resource_list(EXTERNAL, NAMES)),
        f"/apis/{CUSTOM}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}": custom,
        f"/apis/{EXTERNAL}/namespaces/{{namespace}}/{{metric}}": external,
    }
    return [web.get(path, _answering(page, refusal)) for path, page in pages.items()]


def _constant(content: Object) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> Object:
        return content

    return answer


def _answering(page: Callable[[web.Request], Any], refusal: Refusal) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        status, why = 200, refusal(request)
        try:
            if why:
                raise Refused(401, why)
            content = await page(request)
        except Refused as exc:
            status, content = exc.status, documents.status(exc.status, str(exc))
        response = web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")
        if why:
            response.force_close()
        return response

    return answer


def _selector(request: web.Request) -> Callable[[Any], bool]:
    try:
        return selector(request.query.get("labelSelector", ""))
    except ValueError as exc:
        raise Refused(400, str(exc)) from None
