"""Kubernetes nodes as vertices of a graph. A node contains a pool for each of its resources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.k8s.objects.conditions import holds
from headrace.sched.graph import Graph
from headrace.sched.graph.model import MAX_SIZE
from headrace.sched.graph.selection import Selection

from . import constraints, resources

Object = dict[str, Any]
# The end of all plans, in seconds since the epoch.
_END = 2**52
# The types whose sums rule out starts: nearly every pod asks for these.
FILTERS = ("cpu", "memory", "pod")
# Types that a topology level cannot have.
_TAKEN = ("cluster", "node", "slot", "xor_slot", "cpu", "memory", "ephemeral-storage", "pod", "gpu")
# The types whose sums are used to estimate starts.
SUMMED = ("cpu", "gpu")
# The units of pools.
_UNITS = {"cpu": "m", "memory": "MiB", "ephemeral-storage": "MiB"}


def empty() -> Graph:
    """The graph of a cluster without nodes."""
    graph = Graph()
    graph.add("cluster", id=0)
    # Jobs without a known end are planned one after the other, for years each.
    graph.end = _END
    return graph.finish()


def part_of(node: Object, rank: int, tests: Iterable[str] = (), topology: Sequence[str] = ()) -> Graph:
    """The graph of a cluster with only this node, to be added to another graph (`Scheduler.grow`)."""
    graph = Graph()
    above = graph.add("cluster", id=0)
    for kind, name in levels_of(node, topology):
        above = graph.add(kind, above, id=rank, name=name)
    vertex = graph.add(
        "node", above, id=rank, rank=rank, name=node["metadata"]["name"], properties=properties_of(node, tests)
    )
    for kind, amount in amounts_of(node).items():
        graph.add(kind, vertex, id=0, size=amount, unit=_UNITS.get(kind, ""))
    return graph.finish()


def levels_of(node: Object, topology: Sequence[str]) -> list[tuple[str, str]]:
    """The vertices above a node, the widest first, as type and name. Missing labels are skipped."""
    labels = node["metadata"].get("labels") or {}
    return [(level_of(label, topology), labels[label]) for label in topology if labels.get(label)]


def level_of(label: str, topology: Sequence[str]) -> str:
    """The type of the vertices for a topology label: its name, or the full label if that is ambiguous."""
    names = [one.rpartition("/")[2] for one in topology]
    name = label.rpartition("/")[2]
    return label.replace("/", "~") if names.count(name) > 1 or name in _TAKEN else name


def amounts_of(node: Object) -> dict[str, int]:
    """The amounts that a node has for pods, in the units of `resources.amounts_of`, rounded down."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    found = {resources.type_of(name): _units_of(name, offered) for name in offered if resources.is_counted(name)}
    return {"cpu": 0, "memory": 0, **found, "pod": _units_of("pods", offered)}


def _units_of(name: str, offered: Object) -> int:
    """The amount that a node has of a resource, at most `MAX_SIZE`; 0 for an invalid amount.

    A device plugin, or a user who patches a node's status, may have written anything.
    """
    try:
        return max(0, min(resources.units_of(name, offered.get(name, 0)), MAX_SIZE))
    except ValueError:
        return 0


def properties_of(node: Object, tests: Iterable[str] = ()) -> dict[str, str]:
    """The properties for constraints: labels, taints, and the `tests` that the node passes.

    See `constraints.passes`.
    """
    labels = node["metadata"].get("labels") or {}
    found = [*labels, *(f"{key}={value}" for key, value in labels.items())]
    found += [f"{one['key']}={one.get('value') or ''}:{one['effect']}" for one in constraints.taints_of(node)]
    return dict.fromkeys([*found, *(test for test in tests if constraints.passes(node, test))], "")


def is_usable(node: Object) -> bool:
    """Whether pods that tolerate the node's taints may start there: it is ready and not cordoned."""
    return is_ready(node) and not (node.get("spec") or {}).get("unschedulable")


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet responds, and so starts and ends pods."""
    return holds(node.get("status"), "Ready")


def amounts_in(selection: Selection) -> dict[str, dict[str, int]]:
    """The amounts that a selection has of the pools of nodes, by node name."""
    graph = selection.graph
    found: dict[str, dict[str, int]] = {}
    for item in selection.items:
        v, above = item.vertex, graph.parent[item.vertex]
        if above >= 0 and graph.type[above] == "node" and item.needs:
            amounts = found.setdefault(graph.name(above), {})
            amounts[graph.type[v]] = amounts.get(graph.type[v], 0) + item.needs
    return found


def names_in(selection: Selection) -> list[str]:
    """The nodes of a job's pods, in order. A node is listed once for each of its pods."""
    graph = selection.graph
    found: list[str] = []
    for v, mark in selection.marks.items():
        if graph.type[v] == "pod":
            found += [graph.name(graph.parent[v])] * mark.needs
    return found
