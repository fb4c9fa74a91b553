"""Constraints of RFC 31 on a graph: the node vertices that satisfy a constraint.

A node has a property under the property's own name. A property of one of its resources is written `name@type` and
belongs to the node as well. Hosts of storage count as nodes here. Results are kept by constraint, because many jobs of
a queue have the same one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.formats.spec import constraint
from headrace.sched.graph.bitsets import numbers
from headrace.sched.graph.model import Graph

# The types of vertices that a constraint selects or excludes.
HOSTS = frozenset({"node", "storage_node"})
# Maximum size of the cache: bytes of constraints plus the vertices that satisfy them.
_KEPT = 1 << 20


class _Hosts(NamedTuple):
    """The vertices of types HOSTS, and their ranks as bits.

    `every` has all ranks, `ranks` those of each host name, `properties` those of each key. `of_rank` has the vertex of
    each rank. It is None if ranks are missing or shared, so that they do not identify hosts.
    """

    vertices: list[int]
    every: int
    ranks: dict[str, tuple[int, ...]]
    properties: dict[str, int]
    of_rank: dict[int, int] | None


class ConstraintCache:
    """Evaluates constraints and keeps the results until the graph's names or properties change."""

    __slots__ = ("_allowed", "_graph", "_known", "_size")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._allowed: dict[bytes, frozenset[int]] = {}
        # The size of the cache in bytes and vertices.
        self._size = 0
        self._known: _Hosts | None = None

    def forget(self) -> None:
        self._allowed.clear()
        self._size = 0
        self._known = None

    def prepare(self) -> None:
        """Read the graph's hosts now, rather than at the first constraint."""
        self._hosts()

    def allowed(self, obj: Any) -> frozenset[int] | None:
        """The vertices of HOSTS that satisfy `obj`; None for no constraint. Raises constraint.ConstraintError."""
        if not obj:
            return None
        key = msgspec.json.encode(obj)
        found = self._allowed.get(key)
        if found is None:
            found = self._evaluate(obj)
            self._size += len(key) + len(found)
            if self._size > _KEPT:
                self._allowed.clear()
                self._size = len(key) + len(found)
            self._allowed[key] = found
        return found

    def _evaluate(self, obj: Any) -> frozenset[int]:
        matcher = constraint.compile(obj)
        hosts = self._hosts()
        if hosts.of_rank is None:
            return frozenset(v for v in hosts.vertices if self._satisfies(matcher, v))

        def named(name: str) -> int:
            ranks = hosts.ranks.get(name, ())
            return 1 << ranks[0] if len(ranks) == 1 else sum([1 << rank for rank in ranks])

        bits = matcher(hosts.every, named, hosts.properties)
        return frozenset([hosts.of_rank[rank] for rank in numbers(bits)])

    def _satisfies(self, matcher: constraint.Matcher, v: int) -> bool:
        graph = self._graph
        bit, name = 1 << max(graph.rank[v], 0), graph.name(v)
        return bool(
            matcher(bit, lambda host: bit if host == name else 0, dict.fromkeys(graph.properties.get(v, {}), bit))
        )

    def _hosts(self) -> _Hosts:
        if self._known is not None:
            return self._known
        graph = self._graph
        every = 0
        vertices = [v for v in graph.vertices() if graph.type[v] in HOSTS]
        ranks: dict[str, tuple[int, ...]] = {}
        properties: dict[str, int] = {}
        of_rank: dict[int, int] | None = {graph.rank[v]: v for v in vertices}
        if len(of_rank or ()) < len(vertices) or any(graph.rank[v] < 0 for v in vertices):
            of_rank = None
        else:
            for v in vertices:
                rank = graph.rank[v]
                every |= 1 << rank
                name = graph.name(v)
                ranks[name] = (*ranks[name], rank) if name in ranks else (rank,)
                for key in graph.properties.get(v, ()):
                    properties[key] = properties.get(key, 0) | 1 << rank
        self._known = _Hosts(vertices, every, ranks, properties, of_rank)
        return self._known
