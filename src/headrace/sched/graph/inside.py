"""The cores and GPUs below a vertex, as bits by id, as R (RFC 20) lists them for a whole node.

The graph caches them, because the same nodes are allocated whole many times; equal sets are one object.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.sched.graph.model import Graph
from headrace.sched.graph.selection import Selection

# The types of resources in a node that R_lite (RFC 20) lists.
EXECUTION_TYPES = frozenset({"core", "gpu"})


def execution_ids(graph: Graph, v: int) -> dict[str, int]:
    """The ids, as bits, of the cores and GPUs below a vertex."""
    found = graph.inside.get(v)
    if found is None:
        found = {}
        types, ids, children = graph.type, graph.id, graph.children
        stack = [v]
        while stack:
            u = stack.pop()
            kids = children[u]
            kind = types[u]
            if kind in EXECUTION_TYPES:
                found[kind] = found.get(kind, 0) | 1 << ids[u]
            for kind in EXECUTION_TYPES:
                numbers = [ids[kid] for kid in kids if types[kid] == kind]
                if numbers:
                    found[kind] = found.get(kind, 0) | _bits(numbers)
            stack.extend([kid for kid in kids if children[kid]])
        found = graph.inside[v] = graph.shapes.setdefault(tuple(found.items()), found)
    return found


class Part(NamedTuple):
    """The part of a selection on one node: its rank and vertex, and the ids of cores and GPUs as bits."""

    rank: int
    vertex: int
    cores: int
    gpus: int


def parts(selection: Selection) -> list[Part]:
    """The part of a selection on each node where it has cores or GPUs, in the graph's order."""
    graph, runs = selection.graph, selection.runs
    types, ids = graph.type, graph.id
    found: list[Part] = []
    cores = gpus = 0
    # Children come before their parents, so a node's cores and GPUs are complete when the node comes.
    for v, _, _, _, whole in selection.inner_order():
        kind = types[v]
        if v in runs:
            held = runs[v].ids
            cores |= held.get("core", 0)
            gpus |= held.get("gpu", 0)
        if kind == "core":
            cores |= 1 << ids[v]
        elif kind == "gpu":
            gpus |= 1 << ids[v]
        elif whole:
            inside = execution_ids(graph, v)
            cores |= inside.get("core", 0)
            gpus |= inside.get("gpu", 0)
        if kind == "node" and (cores or gpus):
            found.append(Part(graph.rank[v], v, cores, gpus))
            cores = gpus = 0
    return found


def _bits(numbers: list[int]) -> int:
    first, count = numbers[0], len(numbers)
    # Ids are nearly always consecutive.
    if numbers[-1] == first + count - 1 and numbers == list(range(first, first + count)):
        return ((1 << count) - 1) << first
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
