"""The graph of an instance's R, and conversion between allocations of the graph and R.

A graph in R (the scheduling key, RFC 20) is preferred if it is complete. In an instance within a job, that graph still
has the ranks of the enclosing instance. Its nodes are then matched by host, and brokers on the same host in the order
of their ranks.

`Nodes` looks up vertices by rank instead of walking the graph, because a restarted scheduler recovers thousands of
jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.engine.modules.sched.r import Share, Shares, each, job_r
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph import resize
from headrace.sched.graph.formats import jgf, rv1
from headrace.sched.graph.inside import parts
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.selection import Selection, from_vertices
from headrace.sched.graph.usage import Allocation

# End of the graph's plans, in seconds since the epoch. The expiration of R ends jobs, but does not limit plans.
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

    Policies prefer nodes by id. A host name may have no number, or the same number as another.
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
        # In test instances, host names differ. Nodes are then matched by order, if their number is equal.
        targets = dict(zip(nodes, ranks, strict=True))
    for v, rank in targets.items():
        if graph.rank[v] != rank:
            for below in graph.preorder(v):
                graph.rank[below] = rank
    if len(nodes) > len(targets):
        resize.remove(graph, frozenset(nodes) - frozenset(targets))
    return graph


class Nodes:
    """The nodes of a graph by rank. Raises GraphError for missing or duplicate ranks."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.vertex: dict[int, int] = {}
        self.all = 0
        self._inside: dict[int, dict[tuple[str, int], int]] = {}
        self.properties: dict[str, int] = {}
        for v, kind in enumerate(graph.type):
            if kind != "node":
                continue
            rank = graph.rank[v]
            if rank < 0:
                raise GraphError(f"{graph.path(v)}: has no rank, so that no job can be started on it")
            if rank in self.vertex:
                raise GraphError(f"{graph.path(v)}: rank {rank} is also that of {graph.path(self.vertex[rank])}")
            self.vertex[rank] = v
            self.all |= 1 << rank
            for name in graph.properties.get(v, ()):
                self.properties[name] = self.properties.get(name, 0) | 1 << rank

    def shares(self, allocation: Allocation) -> Shares:
        """The resources of an allocation, in rank order."""
        return tuple(sorted(Share(rank, cores, gpus) for rank, _, cores, gpus in parts(allocation.selection)))

    def selection(self, shares: Iterable[Share]) -> Selection:
        """The vertices of shares. Raises GraphError for a vertex that is not in the graph."""
        graph = self.graph
        taken: list[tuple[int, int, bool]] = []
        for rank, cores, gpus in shares:
            node = self.vertex.get(rank)
            if node is None:
                raise GraphError(f"rank {rank} is not part of this instance")
            inside = self._inside.get(node)
            if inside is None:
                inside = self._inside[node] = {
                    (graph.type[v], graph.id[v]): v
                    for v in graph.preorder(node)[1:]
                    if graph.type[v] in ("core", "gpu")
                }
            vertices = []
            for kind, bits in (("core", cores), ("gpu", gpus)):
                for number in each(bits):
                    v = inside.get((kind, number))
                    if v is None:
                        raise GraphError(f"{graph.path(node)}: has no {kind}{number}")
                    vertices.append(v)
            if len(vertices) == len(inside) == len(graph.preorder(node)) - 1:
                # The job has all resources of the node, so the node is allocated exclusively.
                taken.append((node, graph.size[node], True))
            taken.extend((v, graph.size[v], True) for v in vertices)
        return from_vertices(graph, taken)

    def write(self, shares: Shares, starttime: float, expiration: float) -> dict[str, Any]:
        """R (RFC 20) of shares in rank order."""
        return job_r(shares, self._host, self.properties, starttime, expiration)

    def _host(self, rank: int) -> str:
        return self.graph.name(self.vertex[rank])
