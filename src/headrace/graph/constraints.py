"""Constraints of RFC 31 on a graph: the node vertices that a constraint leaves.

A node counts as having a property under its own name; a property of one of its resources is written `name@type` and
stands at the node as well. Hosts of storage are nodes here. Answers are kept by constraint, because a queue holds many
jobs with the same one.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.graph.model import Graph
from headrace.spec import constraint

# Types of what a job may be told to run on, or not.
HOSTS = frozenset({"node", "storage_node"})


class ConstraintCache:
    """Compiles constraints and remembers what they leave, until the graph's names or properties change."""

    __slots__ = ("_allowed", "_graph")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._allowed: dict[str, frozenset[int]] = {}

    def forget(self) -> None:
        self._allowed.clear()

    def _hosts(self) -> list[int]:
        types = self._graph.type
        return [v for v in self._graph.vertices() if types[v] in HOSTS]

    def allowed(self, obj: Any) -> frozenset[int] | None:
        """The vertices of HOSTS that satisfy `obj`; None for no constraint. Raises constraint.ConstraintError."""
        if not obj:
            return None
        key = json.dumps(obj, sort_keys=True)
        found = self._allowed.get(key)
        if found is None:
            if len(self._allowed) > 1000:
                self._allowed.clear()
            found = self._allowed[key] = self._evaluate(obj)
        return found

    def _evaluate(self, obj: Any) -> frozenset[int]:
        matcher = constraint.compile(obj)
        nodes = self._nodes()
        if nodes is None:
            # Ranks are missing or shared, so that they cannot stand for nodes.
            return frozenset(v for v in self._hosts() if self._one(matcher, v))
        every, hosts, properties, of_rank = nodes
        bits = matcher(every, lambda name: hosts.get(name, 0), properties)
        found = []
        while bits:
            bit = bits & -bits
            found.append(of_rank[bit.bit_length() - 1])
            bits ^= bit
        return frozenset(found)

    def _one(self, matcher: constraint.Matcher, v: int) -> bool:
        graph = self._graph
        bit, name = 1 << max(graph.rank[v], 0), graph.name(v)
        return bool(
            matcher(bit, lambda host: bit if host == name else 0, dict.fromkeys(graph.properties.get(v, {}), bit))
        )

    def _nodes(self) -> tuple[int, dict[str, int], dict[str, int], dict[int, int]] | None:
        """All ranks, ranks by host and by property, and the node of each rank; None if ranks do not tell nodes
        apart.
        """
        graph = self._graph
        every = 0
        hosts: dict[str, int] = {}
        properties: dict[str, int] = {}
        of_rank: dict[int, int] = {}
        for v in self._hosts():
            rank = graph.rank[v]
            if rank < 0 or rank in of_rank:
                return None
            of_rank[rank] = v
            bit = 1 << rank
            every |= bit
            name = graph.name(v)
            hosts[name] = hosts.get(name, 0) | bit
            for key in graph.properties.get(v, ()):
                properties[key] = properties.get(key, 0) | bit
        return every, hosts, properties, of_rank
