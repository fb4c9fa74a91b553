"""The graph of an instance's R, and the same graph without removed ranks.

A graph in R (the scheduling key, RFC 20) is preferred if it is complete. In an instance within a job, that graph still
has the ranks of the enclosing instance: nodes are then matched by host, and brokers on one host in order of their
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph import Graph, resize
from headrace.sched.graph.formats import jgf, rv1
from headrace.sched.graph.model import GraphError

# Seconds since the epoch: the expiration of R ends jobs, and does not limit plans.
_FOR_EVER = 2**53


def graph_of(r: Mapping[str, Any], rset: ResourceSet) -> Graph:
    """The graph of R, with the ranks of R's execution key. Raises GraphError."""
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
    """Set the id of each node to its rank.

    Policies prefer nodes by id; host names may have no number, or share one.
    """
    for v, kind in enumerate(graph.type):
        if kind == "node":
            graph.names[v] = graph.name(v)
            graph.id[v] = graph.rank[v]


def _reranked(graph: Graph, rset: ResourceSet) -> Graph:
    """The graph with the ranks of `rset`, without nodes outside it."""
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
        # The hosts of test instances have other names; their number and order decide.
        targets = dict(zip(nodes, ranks, strict=True))
    for v, rank in targets.items():
        if graph.rank[v] != rank:
            for below in graph.preorder(v):
                graph.rank[below] = rank
    if len(nodes) > len(targets):
        resize.remove(graph, frozenset(nodes) - frozenset(targets))
    return graph
