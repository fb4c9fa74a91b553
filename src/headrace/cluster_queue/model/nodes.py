"""Nodes of Kubernetes as vertices of a graph: in a node is a pool of each resource that it has for pods. Pure."""

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
# The types by whose sums starts are ruled out: nearly every pod asks for these.
FILTERS = ("cpu", "memory", "pod")
# Types that are no level's.
_TAKEN = ("cluster", "node", "slot", "xor_slot", "cpu", "memory", "ephemeral-storage", "pod", "gpu")
# The types by whose sums starts are estimated.
SUMMED = ("cpu", "gpu")
# The units in which pools are counted.
_UNITS = {"cpu": "m", "memory": "MiB", "ephemeral-storage": "MiB"}


def empty() -> Graph:
    """A graph of a cluster without nodes."""
    graph = Graph()
    graph.add("cluster", id=0)
    # Jobs whose ends are not known are planned one after the other, each for years.
    graph.end = _END
    return graph.finish()


def part_of(node: Object, rank: int, tests: Iterable[str] = (), topology: Sequence[str] = ()) -> Graph:
    """The graph of a cluster with this node alone, to add to another one (`Scheduler.grow`)."""
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
    """The vertices above a node, the widest first, by type and name: a label that a node has not is no level of its."""
    labels = node["metadata"].get("labels") or {}
    return [(level_of(label, topology), labels[label]) for label in topology if labels.get(label)]


def level_of(label: str, topology: Sequence[str]) -> str:
    """The type of the vertices for a label of a topology: its name, or all of it where that is no name of its own."""
    names = [one.rpartition("/")[2] for one in topology]
    name = label.rpartition("/")[2]
    return label.replace("/", "~") if names.count(name) > 1 or name in _TAKEN else name


def amounts_of(node: Object) -> dict[str, int]:
    """What the node has for pods, in the units of `resources.amounts_of`, rounded down."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    found = {resources.type_of(name): _units_of(name, offered) for name in offered if resources.is_counted(name)}
    return {"cpu": 0, "memory": 0, **found, "pod": _units_of("pods", offered)}


def _units_of(name: str, offered: Object) -> int:
    """What a node has of a resource; of what is no amount, nothing, and at most as much as a graph counts. A device
    plugin, or who patches a node's status, may have written anything.
    """
    try:
        return max(0, min(resources.units_of(name, offered.get(name, 0)), MAX_SIZE))
    except ValueError:
        return 0


def properties_of(node: Object, tests: Iterable[str] = ()) -> dict[str, str]:
    """The properties that constraints name: the node's labels and taints, and those of `tests` that it passes
    (`constraints.passes`).
    """
    labels = node["metadata"].get("labels") or {}
    found = [*labels, *(f"{key}={value}" for key, value in labels.items())]
    found += [f"{one['key']}={one.get('value') or ''}:{one['effect']}" for one in constraints.taints_of(node)]
    return dict.fromkeys([*found, *(test for test in tests if constraints.passes(node, test))], "")


def is_usable(node: Object) -> bool:
    """Whether pods that tolerate its taints may start on the node: it is ready, and not cordoned."""
    return is_ready(node) and not (node.get("spec") or {}).get("unschedulable")


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet answers, and so starts and ends pods."""
    return holds(node.get("status"), "Ready")


def amounts_in(selection: Selection) -> dict[str, dict[str, int]]:
    """What a selection has of the pools of nodes, by the nodes' names."""
    graph = selection.graph
    found: dict[str, dict[str, int]] = {}
    for item in selection.items:
        v, above = item.vertex, graph.parent[item.vertex]
        if above >= 0 and graph.type[above] == "node" and item.needs:
            amounts = found.setdefault(graph.name(above), {})
            amounts[graph.type[v]] = amounts.get(graph.type[v], 0) + item.needs
    return found


def names_in(selection: Selection) -> list[str]:
    """The nodes of the pods of a job, in order; a node stands in it once for each of its pods."""
    graph = selection.graph
    found: list[str] = []
    for v, mark in selection.marks.items():
        if graph.type[v] == "pod":
            found += [graph.name(graph.parent[v])] * mark.needs
    return found
