"""Constraints of RFC 31 on a graph: the node vertices that a constraint leaves.

A node counts as having a property under its own name; a property of one of its resources is written `name@type` and
stands at the node as well. Answers are kept by constraint, because a queue holds many jobs with the same one.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.graph.model import Graph
from headrace.spec import constraint


class ConstraintCache:
    """Compiles constraints and remembers what they leave, until the graph's names or properties change."""

    __slots__ = ("_allowed", "_graph")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._allowed: dict[str, frozenset[int]] = {}

    def forget(self) -> None:
        self._allowed.clear()

    def allowed(self, obj: Any) -> frozenset[int] | None:
        """The node vertices that satisfy `obj`; None for no constraint. Raises constraint.ConstraintError."""
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
        graph = self._graph
        constraint.validate(obj)
        return frozenset(
            v
            for v, kind in enumerate(graph.type)
            if kind == "node"
            and constraint.match(obj, max(graph.rank[v], 0), graph.name(v), graph.properties.get(v, {}).keys())
        )
