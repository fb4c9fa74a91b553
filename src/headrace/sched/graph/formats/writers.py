"""Allocations as text for people and programs: `simple` trees, JGF, and variants of R version 1.

`write(name, ...)` finds a format by Fluxion's name for it. Every writer takes a graph and an allocation and returns
text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset_fields import is_property_name
from headrace.sched.graph.formats.jgf import SHORTHAND
from headrace.sched.graph.inside import Part, parts
from headrace.sched.graph.model import DOMINANT, Graph
from headrace.sched.graph.usage import Allocation

# The objects here have no circular references.
_json = json.JSONEncoder(check_circular=False).encode


def simple(graph: Graph, allocation: Allocation) -> str:
    """One line for each vertex, children first: `name[units:x]` for exclusive, `s` for shared."""
    return "".join(_lines(graph, allocation, "x", "s"))


def pretty_simple(graph: Graph, allocation: Allocation) -> str:
    """One line for each vertex, parents first, with sharing in words."""
    return "".join(reversed(_lines(graph, allocation, "exclusive", "shared")))


def _lines(graph: Graph, allocation: Allocation, exclusive: str, shared: str) -> list[str]:
    selection = allocation.selection
    return [
        f"      {'---' * (depth + 1)}{graph.name(i.vertex)}[{i.needs}:{exclusive if i.exclusive else shared}]\n"
        for i, depth in zip(selection.items, selection.depths, strict=True)
    ]


def vertex_metadata(graph: Graph, v: int, exclusive: bool = False, size: int | None = None) -> dict[str, Any]:
    """The JGF metadata of a vertex without default values. The status is omitted: it is not the job's."""
    kind, basename, number = graph.type[v], graph.basename[v], graph.id[v]
    meta: dict[str, Any] = {"type": kind}
    if basename != kind:
        meta["basename"] = basename
    if v in graph.names:
        meta["name"] = graph.names[v]
    meta["id"] = number
    meta["rank"] = graph.rank[v]
    properties = graph.properties.get(v)
    if properties:
        meta["properties"] = dict(sorted(properties.items()))
    if v in graph.unit:
        meta["unit"] = graph.unit[v]
    if exclusive:
        meta["exclusive"] = True
    amount = graph.size[v] if size is None else size
    if amount != 1:
        meta["size"] = amount
    meta["paths"] = _paths(graph, v)
    return meta


def _paths(graph: Graph, v: int) -> dict[str, str]:
    """The paths of a vertex by subsystem, containment first."""
    if graph.hierarchies:
        paths = {name: tree.path(v) for name, tree in graph.hierarchies.items() if tree.has(v)}
    else:
        paths = {graph.subsystem: graph.path(v)}
    if v in graph.elsewhere:
        paths.update(graph.elsewhere[v])
        if DOMINANT in paths:
            paths = {DOMINANT: paths[DOMINANT], **paths}
    return paths


def graph_object(graph: Graph, allocation: Allocation) -> dict[str, Any]:
    """The selected part of the graph as a JGF object."""
    nodes = []
    edges: list[dict[str, Any]] = []
    # An edge without a subsystem belongs to containment.
    kind: dict[str, Any] = {}
    if graph.subsystem != DOMINANT:
        kind["metadata"] = {"subsystem": graph.subsystem}
    selection = allocation.selection
    for item in selection.items:
        v = item.vertex
        meta = vertex_metadata(graph, v, item.exclusive, item.needs)
        if v in selection.labels:
            meta["ephemeral"] = {"label": selection.labels[v]}
        nodes.append({"id": str(graph.uniq[v]), "metadata": meta})
        up = selection.parent(v)
        if up >= 0:
            edges.append({"source": str(graph.uniq[up]), "target": str(graph.uniq[v]), **kind})
    return {"graph": {"nodes": nodes, "edges": edges}}


def short_graph_object(graph: Graph, allocation: Allocation) -> dict[str, Any]:
    """As graph_object, but an exclusive vertex represents all vertices below it.

    `writer` names the shorthand if anything was left out.
    """
    selection = allocation.selection
    found = graph_object(graph, allocation._replace(selection=selection.shortened()))
    cut = any(
        mark.exclusive and (selection.below.get(v) or (mark.whole and graph.children[v]))
        for v, mark in selection.marks.items()
    )
    if cut:
        found["writer"] = SHORTHAND
    return found


def execution_object(graph: Graph, allocation: Allocation) -> dict[str, Any]:
    """The execution key of R (RFC 20): ranks with equal children share an entry; hosts in rank order."""
    held = parts(allocation.selection)
    # Ranks identify nodes here; the last of several nodes with the same rank represents all of them.
    by_rank = sorted({part.rank: part for part in held}.values())
    if by_rank and by_rank[0].rank < 0:
        return _rankless_object(graph, allocation, held)
    groups: dict[tuple[int, int], int] = {}
    properties: dict[str, int] = {}
    hosts: list[str] = []
    for rank, v, cores, gpus in by_rank:
        key, bit = (cores, gpus), 1 << rank
        groups[key] = groups.get(key, 0) | bit
        hosts.append(graph.name(v))
        for name in _properties(graph, v):
            properties[name] = properties.get(name, 0) | bit
    entries = [(_children(*key), ranks) for key, ranks in groups.items()]
    entries.sort()
    lite = [{"rank": _encode(ranks), "children": dict(children)} for children, ranks in entries]
    return _execution(allocation, lite, hosts, {name: _encode(properties[name]) for name in sorted(properties)})


def _properties(graph: Graph, v: int) -> list[str]:
    """The properties of a vertex for R. Values are omitted if R's syntax does not allow them."""
    found = graph.properties.get(v)
    if not found:
        return []
    return [f"{name}={value}" if is_property_name(value) else name for name, value in found.items()]


def _rankless_object(graph: Graph, allocation: Allocation, held: list[Part]) -> dict[str, Any]:
    """The execution key for nodes without ranks, as in graphs of recipes and hwloc: each has rank -1."""
    groups: dict[tuple[int, int], list[Part]] = {}
    properties: dict[str, list[Part]] = {}
    for part in held:
        groups.setdefault((part.cores, part.gpus), []).append(part)
        for name in _properties(graph, part.vertex):
            properties.setdefault(name, []).append(part)
    entries = sorted((_children(*key), nodes) for key, nodes in groups.items())
    nodes = sorted([part for _, group in entries for part in group], key=lambda part: part.rank)
    lite = [{"rank": _ranks(group), "children": dict(children)} for children, group in entries]
    hosts = [graph.name(part.vertex) for part in nodes]
    return _execution(allocation, lite, hosts, {name: _ranks(properties[name]) for name in sorted(properties)})


def _ranks(held: list[Part]) -> str:
    return ",".join(str(rank) for rank in sorted(part.rank for part in held))


def _execution(
    allocation: Allocation, lite: list[dict[str, Any]], hosts: list[str], properties: dict[str, str]
) -> dict[str, Any]:
    nodelist = hosts if len(hosts) < 2 else [Hostlist(hosts).encode()]
    execution: dict[str, Any] = {"R_lite": lite, "nodelist": nodelist}
    if properties:
        execution["properties"] = properties
    execution["starttime"] = allocation.start
    execution["expiration"] = allocation.end
    return execution


def _children(cores: int, gpus: int) -> list[tuple[str, str]]:
    return [(kind, _encode(bits)) for kind, bits in (("core", cores), ("gpu", gpus)) if bits]


@lru_cache(maxsize=4096)
def _encode(bits: int) -> str:
    if bits and not bits & (bits - 1):
        return str(bits.bit_length() - 1)
    return Idset.from_bits(bits).encode()


def jgf(graph: Graph, allocation: Allocation) -> str:
    return _json(graph_object(graph, allocation)) + "\n"


def jgf_shorthand(graph: Graph, allocation: Allocation) -> str:
    """As jgf, of short_graph_object."""
    return _json(short_graph_object(graph, allocation)) + "\n"


def rlite(graph: Graph, allocation: Allocation) -> str:
    """Only the list R_lite; "" if the job has neither cores nor GPUs."""
    found = execution_object(graph, allocation)["R_lite"]
    return _json(found) + "\n" if found else ""


def rv1_nosched(graph: Graph, allocation: Allocation) -> str:
    return _json({"version": 1, "execution": execution_object(graph, allocation)}) + "\n"


def rv1(graph: Graph, allocation: Allocation) -> str:
    """R version 1 with the selected graph under the scheduling key."""
    r = {"version": 1, "execution": execution_object(graph, allocation), "scheduling": graph_object(graph, allocation)}
    return _json(r) + "\n"


def rv1_shorthand(graph: Graph, allocation: Allocation) -> str:
    """As rv1, with the graph of jgf_shorthand."""
    short = short_graph_object(graph, allocation)
    return _json({"version": 1, "execution": execution_object(graph, allocation), "scheduling": short}) + "\n"


Writer = Callable[[Graph, Allocation], str]
WRITERS: dict[str, Writer] = {
    "simple": simple,
    "pretty_simple": pretty_simple,
    "jgf": jgf,
    "jgf_shorthand": jgf_shorthand,
    "rlite": rlite,
    "rv1": rv1,
    "rv1_nosched": rv1_nosched,
    "rv1_shorthand": rv1_shorthand,
}
