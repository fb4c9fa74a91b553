"""Nodes of Kubernetes as vertices of a graph: in a node is a pool of each resource that it has for pods. Pure."""

from __future__ import annotations

from typing import Any

from ..graph import Graph
from ..graph.selection import Selection
from . import requests

Object = dict[str, Any]
# The end of all plans, in seconds since the epoch.
_END = 2**52
# The types by whose sums starts are ruled out: nearly every pod asks for these.
FILTERS = ("cpu", "memory", "pod")
# The types by whose sums starts are estimated.
SUMMED = ("cpu", "gpu")
# The effects of taints that keep pods away.
_REPELLING = ("NoSchedule", "NoExecute")
# The units in which pools are counted.
_UNITS = {"cpu": "m", "memory": "MiB", "ephemeral-storage": "MiB"}


def empty() -> Graph:
    """A graph of a cluster without nodes."""
    graph = Graph()
    graph.add("cluster", id=0)
    # Jobs whose ends are not known are planned one after the other, each for years.
    graph.end = _END
    return graph.finish()


def part_of(node: Object, rank: int) -> Graph:
    """The graph of a cluster with this node alone, to add to another one (`Scheduler.grow`)."""
    graph = Graph()
    vertex = graph.add(
        *("node", graph.add("cluster", id=0)), id=rank, rank=rank, name=node["metadata"]["name"],
        properties=properties_of(node),
    )  # fmt: skip
    for kind, amount in amounts_of(node).items():
        graph.add(kind, vertex, id=0, size=amount, unit=_UNITS.get(kind, ""))
    return graph.finish()


def amounts_of(node: Object) -> dict[str, int]:
    """What the node has for pods, in the units of `requests.amounts_of`, rounded down."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    found = {
        requests.type_of(name): requests.units_of(name, offered[name]) for name in offered if requests.is_counted(name)
    }
    return {"cpu": 0, "memory": 0, **found, "pod": requests.units_of("pods", offered.get("pods", 0))}


def properties_of(node: Object) -> dict[str, str]:
    """The properties that constraints name (`requests.constraint_of`): the node's labels."""
    return {f"{key}={value}": "" for key, value in (node["metadata"].get("labels") or {}).items()}


def is_usable(node: Object) -> bool:
    """Whether pods may start on the node: it is ready, and neither cordoned nor tainted."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    tainted = any(one.get("effect") in _REPELLING for one in spec.get("taints") or ())
    return ready and not spec.get("unschedulable") and not tainted


def names_in(selection: Selection) -> list[str]:
    """The nodes of the pods of a job, in order; a node stands in it once for each of its pods."""
    graph = selection.graph
    found: list[str] = []
    for v, mark in selection.marks.items():
        if graph.type[v] == "pod":
            found += [graph.name(graph.parent[v])] * mark.needs
    return found
