"""The machine of a simulation: a graph from a document in any supported format, or equal nodes."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.sched.graph.formats import grug, jgf, rv1
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.selection import Selection

# A simulation's clock may start anywhere: at 0, or at the time of a recorded job. So the graph covers all times.
_FOR_EVER = 2**53
_MOST_VERTICES = 50_000_000


def uniform(nodes: int, cores: int = 1, gpus: int = 0) -> Graph:
    """A cluster of equal nodes. Raises GraphError for a size that is invalid or too large."""
    if nodes < 1 or cores < 1 or gpus < 0:
        raise GraphError(f"a machine has at least 1 node of 1 core, not {nodes} of {cores} cores and {gpus} GPUs")
    if nodes * (1 + cores + gpus) > _MOST_VERTICES:
        raise GraphError(f"{nodes} nodes of {cores} cores and {gpus} GPUs: more than {_MOST_VERTICES} vertices")
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        for kind, count in (("core", cores), ("gpu", gpus)):
            for i in range(count):
                graph.add(kind, node, id=i, rank=n)
    return _timeless(graph.finish())


def read(text: str | bytes) -> Graph:
    """The graph of a document: a GraphML recipe, a JSON graph, or R; found by content. Raises GraphError."""
    raw = text.encode() if isinstance(text, str) else text
    start = raw.lstrip()[:1]
    if start == b"<":
        return _timeless(grug.read(raw))
    if start != b"{":
        raise GraphError("the graph must be a GraphML recipe, a JSON graph (JGF) or R: it begins with neither < nor {")
    return _timeless(rv1.read(raw, scheduling=True) if b'"R_lite"' in raw else jgf.read(raw))


def single(graph: Graph) -> bool:
    """Whether there are nodes, and each has one core and no GPU."""
    inside = [graph.totals[v] for v, kind in enumerate(graph.type) if kind == "node"]
    return bool(inside) and all(totals.get("core") == 1 and not totals.get("gpu") for totals in inside)


def from_header(header: Mapping[str, str]) -> tuple[int, int] | None:
    """Nodes and cores per node from the header of a Standard Workload Format trace; None without them."""
    nodes, processors = _number(header, "MaxNodes"), _number(header, "MaxProcs")
    if not (nodes or processors):
        return None
    return nodes or processors, max(1, -(-processors // nodes) if nodes else 1)


def nodes(graph: Graph, selection: Selection) -> list[int]:
    """The nodes that a selection is on, whole or in part, in the graph's order."""
    found = []
    for v, mark in selection.marks.items():
        if graph.type[v] == "node":
            found.append(v)
        elif mark.whole:
            found += [below for below in graph.preorder(v) if graph.type[below] == "node"]
    return sorted(found)


def _number(header: Mapping[str, str], key: str) -> int:
    words = header.get(key, "").split()
    return int(words[0]) if words and words[0].isascii() and words[0].isdigit() else 0


def _timeless(graph: Graph) -> Graph:
    graph.start, graph.end = 0, _FOR_EVER
    return graph
