"""In which order a vertex's children are tried.

Policies that score look at every child in the graph's own order. Policies that stop at the first find try the child
with most free units of the leading filter type first, and of equals the one added last. The free amounts are those of
the last time something below the child was taken while the child itself stayed shared; giving back does not reorder,
and the root's children move only where they were asked for by type. Recorded runs of Fluxion show each of these.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.graph.model import Graph

if TYPE_CHECKING:
    from headrace.graph.scheduler import Scheduler
    from headrace.graph.selection import Selection


class ChildOrder:
    """Callable: the children of a vertex in the order to try them."""

    __slots__ = ("_graph", "_keys", "_lists", "_type", "_weighted")

    def __init__(self, graph: Graph, type: str, weighted: bool) -> None:
        self._graph = graph
        self._type = type
        self._weighted = weighted
        self._keys: dict[int, int] = {}
        self._lists: dict[int, list[tuple[int, int, int]]] = {}

    def __call__(self, v: int) -> Sequence[int]:
        if not self._weighted:
            return self._graph.children[v]
        return [key[2] for key in self._list(v)]

    def _list(self, v: int) -> list[tuple[int, int, int]]:
        keys = self._lists.get(v)
        if keys is None:
            graph, name = self._graph, self._type
            keys = sorted((-graph.totals[c].get(name, 0), -graph.uniq[c], c) for c in graph.children[v])
            self._lists[v] = keys
            for key in keys:
                self._keys[key[2]] = key[0]
        return keys

    def used(self, scheduler: Scheduler, selection: Selection, at: int) -> None:
        """Something was taken: weigh the chosen vertices anew."""
        if not self._weighted:
            return
        graph = self._graph
        root = graph.root
        for item in selection.items:
            v = item.vertex
            up = graph.parent[v]
            if up < 0 or item.exclusive or not graph.children[v] or (item.path and up == root):
                continue
            keys = self._list(up)
            weight = -scheduler.free(v, self._type, at)
            old = self._keys[v]
            if weight != old:
                uniq = -graph.uniq[v]
                del keys[bisect_left(keys, (old, uniq, v))]
                insort(keys, (weight, uniq, v))
                self._keys[v] = weight
