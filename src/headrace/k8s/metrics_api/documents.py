"""What the metrics APIs of Kubernetes answer: lists of metrics, values, refusals. Pure.

Sources: k8s.io/metrics, custom_metrics/v1beta2 and external_metrics/v1beta1; meta/v1 (APIResourceList, Status);
apimachinery's resource.Quantity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Object = dict[str, Any]

CUSTOM_GROUP, CUSTOM_VERSION = "custom.metrics.k8s.io", "v1beta2"
EXTERNAL_GROUP, EXTERNAL_VERSION = "external.metrics.k8s.io", "v1beta1"
CUSTOM = f"{CUSTOM_GROUP}/{CUSTOM_VERSION}"
EXTERNAL = f"{EXTERNAL_GROUP}/{EXTERNAL_VERSION}"


class Described(NamedTuple):
    """The object that a value is about."""

    kind: str
    api_version: str
    namespace: str
    name: str


def quantity(number: float) -> str:
    """A number as a quantity: whole, or in thousandths. Raises ValueError for what is none, such as infinity."""
    thousandths = round(number * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def group_list(*group_versions: str) -> Object:
    """The list at `/apis`."""
    groups = []
    for one in group_versions:
        group, _, version = one.partition("/")
        served = {"groupVersion": one, "version": version}
        groups.append({"name": group, "versions": [served], "preferredVersion": served})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(group_version: str, names: Iterable[str]) -> Object:
    """The list of what a version of a group serves: names such as `services/node_up_count`."""
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


def status(code: int, message: str) -> Object:
    """A refusal: a Status with the reason that goes with the HTTP status `code`."""
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
