"""The metrics APIs of Kubernetes, which autoscalers read, for any program and web server. Pure.

They consist of lists of metrics, values, errors and label selectors. The names of the metrics that an instance and a
MiniCluster share are those of flux-metrics-api.

Sources: k8s.io/metrics, custom_metrics/v1beta2 and external_metrics/v1beta1; meta/v1 (APIResourceList, Status);
apimachinery's resource.Quantity; Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.formats.spec.job_state import STATE_BITS

Object = dict[str, Any]

CUSTOM_GROUP, CUSTOM_VERSION = "custom.metrics.k8s.io", "v1beta2"
EXTERNAL_GROUP, EXTERNAL_VERSION = "external.metrics.k8s.io", "v1beta1"
CUSTOM = f"{CUSTOM_GROUP}/{CUSTOM_VERSION}"
EXTERNAL = f"{EXTERNAL_GROUP}/{EXTERNAL_VERSION}"

DEMAND_NODES, IDLE_SECONDS, NODES_UP = "demand_nodes", "idle_seconds", "node_up_count"
# Metrics with the number of jobs in each state, by state.
JOB_COUNTS = {state: f"job_queue_state_{state}_count" for state in STATE_BITS}

Matches = Callable[[Mapping[str, str]], bool]

_KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_VALUE = r"[-A-Za-z0-9_.]*"
_FORMS = (
    re.compile(rf"{_KEY}\s*(?P<sign>!=|==|=)\s*(?P<value>{_VALUE})"),
    re.compile(rf"{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)"),
    re.compile(rf"(?P<sign>!?)\s*{_KEY}"),
)


class Described(NamedTuple):
    """The object that a value describes."""

    kind: str
    api_version: str
    namespace: str
    name: str


def quantity(number: float) -> str:
    """A number as a quantity: whole, or in thousandths. Raises ValueError for infinity and NaN."""
    thousandths = round(number * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def group_list(*group_versions: str) -> Object:
    """The APIGroupList of `/apis`."""
    groups = []
    for one in group_versions:
        group, _, version = one.partition("/")
        served = {"groupVersion": one, "version": version}
        groups.append({"name": group, "versions": [served], "preferredVersion": served})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(group_version: str, names: Iterable[str]) -> Object:
    """The APIResourceList of a group version, with names such as `services/node_up_count`."""
    kind = "MetricValueList" if group_version == CUSTOM else "ExternalMetricValueList"
    row = {"singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
    resources = [{"name": name, **row} for name in names]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def custom_values(metric: str, values: Iterable[tuple[Described, float]], when: str, path: str) -> Object:
    """The values of a metric for objects, at a time (RFC 3339)."""
    items = [
        {
            "describedObject": {
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "apiVersion": about.api_version,
            },
            "metric": {"name": metric, "selector": None},
            "timestamp": when,
            "windowSeconds": 0,
            "value": quantity(number),
        }
        for about, number in values
    ]
    return {"kind": "MetricValueList", "apiVersion": CUSTOM, "metadata": {"selfLink": path}, "items": items}


def external_values(metric: str, values: Iterable[tuple[Mapping[str, str], float]], when: str) -> Object:
    """The values of a metric by their labels, at a time (RFC 3339)."""
    items = [
        {"metricName": metric, "metricLabels": dict(labels), "timestamp": when, "value": quantity(number)}
        for labels, number in values
    ]
    return {"kind": "ExternalMetricValueList", "apiVersion": EXTERNAL, "metadata": {}, "items": items}


def failure(code: int, message: str) -> Object:
    """The Status of a failed request, with the reason that belongs to the HTTP status `code`."""
    reason = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable"}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason.get(code, "InternalError"),
        "code": code,
    }


def selector(text: str) -> Matches:
    """A predicate that is true if labels meet all requirements of `text`.

    An example is `a=b,c in (d,e),!f`. Raises ValueError.
    """
    # Commas within parentheses separate values, not requirements.
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    tests = [_requirement(part) for part in parts]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(part: str) -> Matches:
    found = next(filter(None, (form.fullmatch(part) for form in _FORMS)), None)
    if found is None:
        raise ValueError(f"'{part}' is not a requirement of a label selector")
    fields = found.groupdict()
    key, sign = fields["key"], fields["sign"]
    if "values" in fields:
        values = {value.strip() for value in fields["values"].split(",")}
    elif "value" in fields:
        values = {fields["value"]}
    else:
        return lambda labels: (key in labels) == (sign == "")
    if sign in ("!=", "notin"):
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


class Refused(Exception):
    """A request that is rejected with the HTTP status `status`; `text` is the message for the user."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request(NamedTuple):
    """A request: its path, the fields of the path, and its query."""

    path: str
    fields: Mapping[str, str]
    query: Mapping[str, str]

    def chosen(self) -> Matches:
        """A predicate that is true if labels meet the request's label selector. Raises Refused."""
        try:
            return selector(self.query.get("labelSelector", ""))
        except ValueError as exc:
            raise Refused(400, str(exc)) from None

    def metric(self, names: Iterable[str], of: str = "") -> str:
        """The name of the requested metric, which must be one of `names`. Raises Refused."""
        name, known = self.fields["metric"], list(names)
        if name not in known:
            raise Refused(404, f"there is no metric {name}{of}: {', '.join(known)}")
        return name


# Returns the document for a request. Raises Refused.
Page = Callable[[Request], Awaitable[Object]]


def lists(served: Mapping[str, Iterable[str]]) -> dict[str, Page]:
    """The discovery pages, by path: the group versions that are served, and the names in each of them."""
    return {
        "/apis": constant(group_list(*served)),
        **{f"/apis/{one}": constant(resource_list(one, names)) for one, names in served.items()},
    }


def constant(document: Object) -> Page:
    async def page(request: Request) -> Object:
        return document

    return page


async def answer(page: Page, request: Request) -> tuple[int, bytes]:
    """The HTTP status and the body (JSON) of the response to a request."""
    try:
        status, document = 200, await page(request)
    except Refused as exc:
        status, document = exc.status, failure(exc.status, str(exc))
    return status, msgspec.json.encode(document)
