"""Conversion between allocations of the graph and R: vertices to ranks with cores and GPUs, and back.

Vertices are found by rank, never by a walk over all of them: a restarted scheduler recovers thousands of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.engine.modules.sched.r import Share, Shares, each, job_r
from headrace.sched.graph.inside import parts
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.selection import Selection, from_vertices
from headrace.sched.graph.usage import Allocation


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
        """The vertices of shares. Raises GraphError for a vertex that the graph has not."""
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
                # The job has all resources of the node, so the node is its own.
                taken.append((node, graph.size[node], True))
            taken.extend((v, graph.size[v], True) for v in vertices)
        return from_vertices(graph, taken)

    def write(self, shares: Shares, starttime: float, expiration: float) -> dict[str, Any]:
        """R (RFC 20) of shares in rank order."""
        return job_r(shares, self._host, self.properties, starttime, expiration)

    def _host(self, rank: int) -> str:
        return self.graph.name(self.vertex[rank])
