"""Translates jobspecs that were written for other schedulers to the cluster's graph. Pure.

Such jobspecs ask for cores; the cluster's graph has a pool of cpu on each node instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.formats.spec import ranges
from headrace.sched.graph import Graph
from headrace.sched.graph.request import RequestError

from ..model import nodes

Object = dict[str, Any]

# One core, in the unit of the cluster's graph: thousandths of a core.
CORE = 1000
_SUBNET, _ZONE = "subnet", "topology.kubernetes.io/zone"


class _Graph(NamedTuple):
    """The types of a graph that are not pools. `zone` is "" in a graph without zones."""

    levels: tuple[str, ...]
    zone: str


def in_pools(jobspec: Any, graph: Graph, topology: Sequence[str]) -> Any:
    """Translate a decoded jobspec to a graph with this topology.

    Cores become cpu in thousandths, and a subnet becomes a zone. Pools are requested without exclusive use, so the job
    gets only the amount that it asks for. A slot that names neither a pod nor a node also asks for one unit of the
    node's pool of pods. Invalid parts are returned unchanged.

    Raises RequestError for counts of cores that cannot be expressed in thousandths.
    """
    if not isinstance(jobspec, dict):
        return jobspec
    zone = nodes.level_of(_ZONE, topology) if _ZONE in topology else ""
    levels = ("cluster", "node", "slot", *(nodes.level_of(label, topology) for label in topology))
    types = _Graph(levels, zone if zone in graph.types() else "")
    return {**jobspec, "resources": _all_in_pools(jobspec.get("resources"), types)}


def _all_in_pools(resources: Any, types: _Graph) -> Any:
    if not isinstance(resources, list):
        return resources
    found: list[Any] = []
    for one in resources:
        if isinstance(one, dict) and not types.zone and _is_one_subnet(one):
            # In a graph without zones, all nodes are in one subnet.
            found += _all_in_pools(one["with"], types)
        else:
            found.append(_in_pool(one, types) if isinstance(one, dict) else one)
    return found


def _is_one_subnet(one: Object) -> bool:
    return one.get("type") == _SUBNET and one.get("count") == 1 and isinstance(one.get("with"), list)


def _in_pool(one: Object, types: _Graph) -> Object:
    kind = one.get("type")
    inside = {"with": _all_in_pools(one["with"], types)} if "with" in one else {}
    if kind == "core":
        return {**one, **inside, "type": "cpu", "count": _in_thousandths(one.get("count")), "exclusive": False}
    if kind == _SUBNET:
        return {**one, **inside, "type": types.zone or kind}
    if kind == "slot" and isinstance(inside.get("with"), list):
        names = {str(part.get("type")) for part in inside["with"] if isinstance(part, dict)}
        if names and not names & {"pod", "node"}:
            inside["with"] = [*inside["with"], {"type": "pod", "count": 1, "exclusive": False}]
    if kind in types.levels or "with" in one:
        return {**one, **inside}
    return {"exclusive": False, **one}


def _in_thousandths(count: Any) -> Any:
    """A count of cores in thousandths. An invalid count is returned unchanged.

    The count has the form of RFC 14 or, if it is text, of RFC 45.
    """
    if isinstance(count, str):
        try:
            found = ranges.parse(count)
        except ranges.RangeError:
            return count
        if found.ids is not None:
            raise RequestError(f"count of cores: must be a number or a range here, not the set {count!r}")
        count = found.to_obj()
    if not isinstance(count, dict):
        return _times(count)
    operator = count.get("operator", "+")
    if operator == "^":
        raise RequestError("count.operator of cores: must be + or * here, not ^")
    scaled = {key: _times(value) if key in ("min", "max") else value for key, value in count.items()}
    return {**scaled, "operand": _times(count.get("operand", 1))} if operator == "+" else scaled


def _times(number: Any) -> Any:
    return number * CORE if isinstance(number, int) and not isinstance(number, bool) else number
