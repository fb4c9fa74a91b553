"""What a pod asks of its node, and a job of the graph, in whole cores and pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from ..graph.request import JobRequest, parse_jobspec
from ..minicluster.object_rules import quantity

Object = dict[str, Any]
Amounts = Mapping[str, int]
"""Amounts by the type of the graph's vertices."""


def amounts_of(spec: Object) -> dict[str, int]:
    """What a pod with this spec (core/v1 PodSpec) takes of its node."""
    cpu = sum(quantity(str(_requests(one).get("cpu", 0))) for one in spec.get("containers") or ())
    return {"pod": 1, **({"core": ceil(cpu)} if cpu else {})}


def _requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def total(several: Iterable[Amounts]) -> dict[str, int]:
    """The sum of amounts."""
    found: dict[str, int] = {}
    for amounts in several:
        for kind, amount in amounts.items():
            found[kind] = found.get(kind, 0) + amount
    return found


def largest(several: Iterable[Amounts]) -> dict[str, int]:
    """Amounts that are enough for each of several."""
    found: dict[str, int] = {}
    for amounts in several:
        for kind, amount in amounts.items():
            found[kind] = max(found.get(kind, 0), amount)
    return found


def constraint_of(spec: Object) -> Any:
    """The constraint (RFC 31) on the nodes of a pod, None for all; nodes have their labels as properties."""
    wanted = [f"{key}={value}" for key, value in sorted((spec.get("nodeSelector") or {}).items())]
    return {"properties": wanted} if wanted else None


def jobspec(
    name: str, namespace: str, pods: int, amounts: Amounts, duration: float = 0, constraint: Any = None
) -> Object:
    """The jobspec (RFC 14) of so many pods, each with `amounts` of one node; `duration` in seconds, 0 for none."""
    inside = [{"type": kind, "count": amount} for kind, amount in sorted(amounts.items())]
    system: Object = {"duration": ceil(duration), **({"constraints": constraint} if constraint else {})}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": pods, "label": "pod", "with": inside}],
        "tasks": [{"command": [namespace, name], "slot": "pod", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


def on_node(node: str, amounts: Amounts, duration: int) -> JobRequest:
    """The request for `amounts` of this node, for so many seconds."""
    return parse_jobspec(jobspec("hold", "", 1, amounts, duration, {"hostlist": [node]}))
