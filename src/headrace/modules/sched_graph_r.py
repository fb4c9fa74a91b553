"""R for the jobs of the graph scheduler, and back: allocations as ranks with cores and GPUs, those as R objects.

Nearly every job is a few cores of one node, so what is written again and again (idsets, host lists) is remembered as
text. What an R means to the graph is found by rank, never by walking all vertices: a restarted scheduler has thousands
of them to put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.graph.inside import execution_ids
from headrace.graph.model import Graph, GraphError
from headrace.graph.scheduler import Allocation
from headrace.graph.selection import Selection, from_vertices
from headrace.spec.hostlist import Hostlist
from headrace.spec.idset import Idset
from headrace.spec.rset import ResourceSet


class Share(NamedTuple):
    """What one rank gives to a job: core and GPU ids as bit sets."""

    rank: int
    cores: int
    gpus: int


Shares = tuple[Share, ...]


def each(bits: int) -> Iterator[int]:
    """The numbers of the set bits, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


@lru_cache(maxsize=8192)
def ids(bits: int) -> str:
    """A bit set as an idset (RFC 22)."""
    if bits and not bits & (bits - 1):
        return str(bits.bit_length() - 1)
    return Idset.from_bits(bits).encode()


def shares_of_r(r: Mapping[str, Any]) -> Shares:
    """What an R object (RFC 20) holds, rank by rank. Raises RsetError."""
    return tuple(Share(node.rank, node.cores.bits, node.gpus.bits) for node in ResourceSet.from_obj(r).nodes())


class Nodes:
    """The nodes of a graph by rank. Raises GraphError where ranks do not tell nodes apart."""

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
        """What an allocation holds, in rank order."""
        graph = self.graph
        types, numbers = graph.type, graph.id
        found: list[Share] = []
        cores = gpus = 0
        # Children come before parents, so a node's cores and GPUs are complete when the node itself comes.
        for v, _, _, _, whole in allocation.selection.order():
            kind = types[v]
            if kind == "core":
                cores |= 1 << numbers[v]
            elif kind == "gpu":
                gpus |= 1 << numbers[v]
            elif whole:
                inside = execution_ids(graph, v)
                cores |= inside.get("core", 0)
                gpus |= inside.get("gpu", 0)
            if kind == "node":
                if cores or gpus:
                    found.append(Share(graph.rank[v], cores, gpus))
                cores = gpus = 0
        if len(found) > 1:
            found.sort()
        return tuple(found)

    def selection(self, shares: Iterable[Share]) -> Selection:
        """The vertices that shares name. Raises GraphError for one that is not there."""
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
                # Nothing is left on the node for anybody else.
                taken.append((node, graph.size[node], True))
            taken.extend((v, graph.size[v], True) for v in vertices)
        return from_vertices(graph, taken)

    def write(self, shares: Shares, starttime: float, expiration: float) -> dict[str, Any]:
        """R (RFC 20), keys in the order flux-core writes them."""
        graph, vertex = self.graph, self.vertex
        if len(shares) == 1:
            rank, cores, gpus = shares[0]
            ranks = 1 << rank
            r_lite = [{"rank": str(rank), "children": _children(cores, gpus)}]
            nodelist = graph.name(vertex[rank])
        else:
            groups: dict[tuple[int, int], int] = {}
            ranks = 0
            for rank, cores, gpus in shares:
                groups[cores, gpus] = groups.get((cores, gpus), 0) | 1 << rank
                ranks |= 1 << rank
            r_lite = [
                {"rank": ids(members), "children": _children(*children)}
                for children, members in sorted(groups.items(), key=lambda item: item[1] & -item[1])
            ]
            nodelist = Hostlist([graph.name(vertex[share.rank]) for share in shares]).encode()
        execution: dict[str, Any] = {
            "R_lite": r_lite,
            "nodelist": [nodelist],
            "starttime": starttime,
            "expiration": expiration,
        }
        if self.properties:
            own = {name: members & ranks for name, members in self.properties.items() if members & ranks}
            if own:
                execution["properties"] = {name: ids(members) for name, members in own.items()}
        return {"version": 1, "execution": execution}


def _children(cores: int, gpus: int) -> dict[str, str]:
    if gpus:
        return {"core": ids(cores), "gpu": ids(gpus)} if cores else {"gpu": ids(gpus)}
    return {"core": ids(cores)}


def summary(r: Mapping[str, Any]) -> str:
    """The `resource_summary` annotation of an R: `rank[0-3]/core[0-1]`."""
    return " ".join(
        f"rank{_brackets(group['rank'])}/"
        + ",".join(kind + _brackets(numbers) for kind, numbers in sorted(group["children"].items()))
        for group in r["execution"]["R_lite"]
    )


def _brackets(numbers: str) -> str:
    return f"[{numbers}]" if "-" in numbers or "," in numbers else numbers
