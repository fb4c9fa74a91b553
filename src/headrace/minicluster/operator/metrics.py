"""The APIs `custom.metrics.k8s.io` and `external.metrics.k8s.io` for all MiniClusters.

The operator's web server serves both. A custom metric describes a MiniCluster object; an external metric has the
MiniCluster's name in the label `minicluster`. The API server authorizes the user and forwards the request (aggregation
layer). Requests from any other client are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from headrace.k8s import metrics_api
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL, Described, Page, Refused, Request
from headrace.k8s.objects.kinds import MINICLUSTERS
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.admission.aggregation import Refusal

from .autoscaler import NAMES, numbers

Object = dict[str, Any]

RESOURCE = f"{MINICLUSTERS.plural}.{MINICLUSTERS.group}"
_RESOURCES = (RESOURCE, MINICLUSTERS.plural)
# The label of an external metric.
LABEL = "minicluster"


def routes(clusters: Callable[[], Iterable[Object]], refusal: Refusal) -> list[web.RouteDef]:
    """The routes of the metrics APIs; `refusal` checks requests, `clusters` returns all MiniClusters."""

    def within(request: Request) -> list[tuple[Object, float]]:
        """The MiniClusters of the request's namespace that have a value. Raises Refused."""
        metric = request.metric(NAMES, " of MiniClusters")
        now, namespace = time.time(), request.fields["namespace"]
        found = [one for one in clusters() if one["metadata"]["namespace"] == namespace]
        return [(one, values[metric]) for one in found if (values := numbers(one, now))]

    async def custom(request: Request) -> Object:
        fields = request.fields
        metric, name = fields["metric"], fields["name"]
        if fields["resource"] not in _RESOURCES:
            raise Refused(404, f"only {RESOURCE} has metrics, not {fields['resource']}")
        chosen = request.chosen() if name == "*" else lambda labels: True
        about = Described(MINICLUSTERS.kind, MINICLUSTERS.api_version, fields["namespace"], "")
        rows = [
            (about._replace(name=one["metadata"]["name"]), value)
            for one, value in within(request)
            if name in ("*", one["metadata"]["name"]) and chosen(one["metadata"].get("labels") or {})
        ]
        if not rows and name != "*":
            raise Refused(404, f"no MiniCluster {fields['namespace']}/{name} is running, so it has no {metric}")
        return metrics_api.custom_values(metric, rows, text_of(time.time()), request.path)

    async def external(request: Request) -> Object:
        metric, chosen = request.fields["metric"], request.chosen()
        rows = [({LABEL: one["metadata"]["name"]}, value) for one, value in within(request)]
        return metrics_api.external_values(metric, [row for row in rows if chosen(row[0])], text_of(time.time()))

    found: dict[str, Page] = {
        **metrics_api.lists({CUSTOM: [f"{RESOURCE}/{name}" for name in NAMES], EXTERNAL: NAMES}),
        f"/apis/{CUSTOM}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}": custom,
        f"/apis/{EXTERNAL}/namespaces/{{namespace}}/{{metric}}": external,
    }
    return [web.get(path, _answering(page, refusal)) for path, page in found.items()]


def _answering(page: Page, refusal: Refusal) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        async def refused(_: Request) -> Object:
            raise Refused(401, why)

        why = refusal(request)
        asked = Request(request.path, request.match_info, request.query)
        status, body = await metrics_api.answer(refused if why else page, asked)
        response = web.Response(status=status, body=body, content_type="application/json")
        if why:
            response.force_close()
        return response

    return answer
