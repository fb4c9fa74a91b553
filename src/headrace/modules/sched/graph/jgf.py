"""The graph of an instance's R, and a graph without the ranks that left it.

R's own graph (the scheduling key, RFC 20) wins where it has one that leaves nothing out. In an instance that runs in a
job that graph still has the ranks of the instance around it: its nodes are told apart by host, in the order of their
old ranks where brokers share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.graph import Graph, jgf, resize, rv1
from headrace.graph.model import GraphError
from headrace.spec.rset import ResourceSet

# Seconds since the epoch; an instance's own end bounds R's expiration, not what can be planned.
_FOR_EVER = 2**53


def graph_of(r: Mapping[str, Any], rset: ResourceSet) -> Graph:
    """The graph of R, with the ranks that R's execution key says. Raises GraphError."""
    if isinstance(r.get("scheduling"), Mapping) and jgf.is_complete(r["scheduling"]):
        graph = _reranked(jgf.from_object(r["scheduling"]), rset)
        numbers = [graph.id[v] for v, kind in enumerate(graph.type) if kind == "node"]
        distinct = len(set(numbers)) == len(numbers)
    else:
        graph = rv1.from_object(r)
        distinct = False
    if not distinct:
        name_by_rank(graph)
    graph.start, graph.end = 0, _FOR_EVER
    return graph


def name_by_rank(graph: Graph) -> None:
    """Number nodes by rank.

    Policies prefer nodes by number; hosts that share a name, or have none in it, are told apart by rank.
    """
    for v, kind in enumerate(graph.type):
        if kind == "node":
            graph.names[v] = graph.name(v)
            graph.id[v] = graph.rank[v]


def _reranked(graph: Graph, rset: ResourceSet) -> Graph:
    """The graph with the ranks of `rset`, without nodes that are not in it."""
    nodes = sorted((v for v, kind in enumerate(graph.type) if kind == "node"), key=graph.rank.__getitem__)
    ranks = rset.ranks
    targets = {v: graph.rank[v] for v in nodes if graph.rank[v] in ranks and rset.host(graph.rank[v]) == graph.name(v)}
    if len(targets) < len(ranks):
        by_host: dict[str, list[int]] = {}
        for rank in ranks:
            by_host.setdefault(rset.host(rank), []).append(rank)
        targets = {v: by_host[graph.name(v)].pop(0) for v in nodes if by_host.get(graph.name(v))}
    if len(targets) < len(ranks):
        if len(nodes) != len(ranks):
            raise GraphError(f"R: {len(nodes)} nodes in the scheduling key but {len(ranks)} ranks in R_lite")
        # Brokers under test names: trust their number and order.
        targets = dict(zip(nodes, ranks, strict=True))
    for v, rank in targets.items():
        if graph.rank[v] != rank:
            for below in graph.preorder(v):
                graph.rank[below] = rank
    if len(nodes) > len(targets):
        resize.remove(graph, frozenset(nodes) - frozenset(targets))
    return graph
