"""The order in which the children of a vertex are tried.

Policies with scores look at every child in the graph's own order. Policies that stop at the first match try untouched
children first, the one added last before the others; a child is untouched if none of its resources was ever taken.

A child that was used while it stayed shared has a weight: the amount of one type that was free in it at that time. The
type is the last one that is counted for its subtree (`-p`; a vertex does not count its own type). Children with higher
weights are tried first. A release of resources does not change weights.

This is Fluxion's order, as recorded runs show, with one case that is not in them: a node directly below the root that
the request does not name by type. Such a node keeps its weight, so that jobs of few cores fill one node before the
next.

A vertex keeps its children as bit sets, one for each weight, so that the best children of another set are found by a
few integer operations. Bit i is the child with the i-th highest number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.sched.graph.bitsets import lowest_numbers, numbers
from headrace.sched.graph.model import Graph

if TYPE_CHECKING:
    from headrace.sched.graph.selection import Selection
    from headrace.sched.graph.usage import Usage

# The weight of an idle child.
_UNTOUCHED = 1 << 63


class _Weighed:
    """The children of one vertex by weight.

    `ranked` has the children by descending number, `rank` the place of each child in it.
    """

    __slots__ = ("buckets", "rank", "ranked", "weights")

    def __init__(self, graph: Graph, v: int) -> None:
        self.ranked = sorted(graph.children[v], key=graph.uniq.__getitem__, reverse=True)
        self.rank = {c: i for i, c in enumerate(self.ranked)}
        self.weights = [_UNTOUCHED] * len(self.ranked)
        self.buckets = {_UNTOUCHED: (1 << len(self.ranked)) - 1} if self.ranked else {}

    def __iter__(self) -> Iterator[int]:
        ranked = self.ranked
        for weight in sorted(self.buckets, reverse=True):
            for i in numbers(self.buckets.get(weight, 0)):
                yield ranked[i]

    def among(self, bits: int) -> Iterator[int]:
        for weight in sorted(self.buckets, reverse=True):
            yield from numbers(self.buckets[weight] & bits)

    def first(self, among: int, count: int) -> list[int]:
        found: list[int] = []
        for weight in sorted(self.buckets, reverse=True):
            found += lowest_numbers(self.buckets[weight] & among, count - len(found))
            if len(found) == count:
                break
        return found

    def weigh(self, v: int, weight: int) -> None:
        i = self.rank[v]
        old = self.weights[i]
        if old == weight:
            return
        bit = 1 << i
        left = self.buckets[old] ^ bit
        if left:
            self.buckets[old] = left
        else:
            del self.buckets[old]
        self.buckets[weight] = self.buckets.get(weight, 0) | bit
        self.weights[i] = weight


class ChildOrder:
    """Callable: the children of a vertex in the order to try them."""

    __slots__ = ("_graph", "_types", "_vertices", "_weighed")

    def __init__(self, graph: Graph, filters: tuple[str, ...], weighed: bool) -> None:
        self._graph = graph
        # The last of the counted types, and the one before it.
        self._types = filters[-1:] + filters[-2:-1]
        self._weighed = weighed
        self._vertices: dict[int, _Weighed] = {}

    def __call__(self, v: int) -> Sequence[int] | _Weighed:
        if not self._weighed:
            return self._graph.children[v]
        return self._of(v)

    def _of(self, v: int) -> _Weighed:
        found = self._vertices.get(v)
        if found is None:
            found = self._vertices[v] = _Weighed(self._graph, v)
        return found

    def prepare(self, v: int) -> None:
        """Order the children of `v` now, rather than when they are first asked for."""
        if self._weighed:
            self._of(v)

    def after_resize(self) -> None:
        """Add and drop children after the graph was resized; children that stayed keep their weights."""
        for v, old in list(self._vertices.items()):
            if not self._graph.children[v]:
                del self._vertices[v]
                continue
            new = self._vertices[v] = _Weighed(self._graph, v)
            for child, i in old.rank.items():
                if child in new.rank:
                    new.weigh(child, old.weights[i])

    def first(self, v: int, among: int, count: int) -> list[int]:
        """The first `count` children of `v` in the order, from the set `among`.

        Children are given as places by descending number.
        """
        return self._of(v).first(among, count)

    def among(self, v: int, bits: int) -> Iterator[int]:
        """As `first`, for any count: the places of the children, one at a time."""
        return self._of(v).among(bits)

    def sorted(self, v: int, among: Sequence[int]) -> list[int]:
        """The children `among` of `v`, as vertices in the order."""
        weighed = self._of(v)
        ranks, weights = weighed.rank, weighed.weights
        if len(among) == 2:
            # A node with two sockets is the most frequent case, which short jobs request most often.
            one, other = among
            i, j = ranks[one], ranks[other]
            return [one, other] if (weights[j], i) < (weights[i], j) else [other, one]
        order = sorted([(-weights[rank], rank) for rank in map(ranks.__getitem__, among)])
        return [weighed.ranked[rank] for _, rank in order]

    def used(self, usage: Usage, selection: Selection, at: int) -> None:
        """Set the weights of the shared vertices of a selection that was just taken."""
        if not self._weighed:
            return
        graph = self._graph
        root, types, parent, reached_from = graph.root, graph.type, graph.parent, selection.reached_from
        for v, _, exclusive, path, _ in selection.inner_order():
            if exclusive:
                continue
            up = reached_from.get(v, parent[v]) if reached_from else parent[v]
            if up < 0 or not graph.children[v]:
                continue
            kind = types[v]
            if path and up == root and kind == "node":
                continue
            counted = next((name for name in self._types if name != kind), "")
            self._of(up).weigh(v, usage.free(v, counted, at))
