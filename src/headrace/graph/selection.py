"""What a match chose, as the part of the graph it covers: the picks, everything below those given whole, and the way
up.

Writers walk it children first, in the graph's order. The scheduler turns it into spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.graph.matcher import Pick
from headrace.graph.model import Graph


class Chosen(NamedTuple):
    """One vertex of a selection: `needs` units; `path` marks those that are only on the way to what was asked for."""

    vertex: int
    needs: int
    exclusive: bool
    path: bool


class Selection:
    """The chosen vertices, children before their parents, and for each how many levels it is below the root."""

    __slots__ = ("depths", "items")

    def __init__(self, items: list[Chosen], depths: list[int]) -> None:
        self.items = items
        self.depths = depths


def select(graph: Graph, picks: Sequence[Pick], whole: frozenset[str] = frozenset()) -> Selection:
    """The selection of `picks`. Vertices of a type in `whole` that lie on the way are given whole (node-exclusive
    policies).
    """
    marks: dict[int, Chosen] = {}
    below: dict[int, list[int]] = {}
    parent, size, types = graph.parent, graph.size, graph.type
    stack: list[Pick] = list(reversed(picks))
    while stack:
        pick = stack.pop()
        v = pick.vertex
        known = v in marks
        marks[v] = Chosen(v, pick.needs, pick.exclusive, False)
        if not known:
            _climb(graph, v, marks, below, whole)
        if pick.whole:
            _fill(graph, v, marks, below)
        elif pick.below:
            stack.extend(reversed(pick.below))
    for v in [v for v, mark in marks.items() if mark.path and types[v] in whole]:
        marks[v] = Chosen(v, size[v], True, True)
        _fill(graph, v, marks, below)
    root = graph.root
    position = graph.position
    items: list[Chosen] = []
    depths: list[int] = []
    walk: list[tuple[int, int]] = [(root, 0)] if root in marks else []
    # Parents first with the last child first, then reversed: children first in order.
    while walk:
        v, depth = walk.pop()
        items.append(marks[v])
        depths.append(depth)
        kids = below.get(v)
        if kids:
            if len(kids) > 1:
                kids.sort(key=position.__getitem__)
            walk.extend((kid, depth + 1) for kid in kids)
    items.reverse()
    depths.reverse()
    assert parent[items[-1].vertex] < 0
    return Selection(items, depths)


def _climb(graph: Graph, v: int, marks: dict[int, Chosen], below: dict[int, list[int]], whole: frozenset[str]) -> None:
    up = graph.parent[v]
    while up >= 0:
        below.setdefault(up, []).append(v)
        if up in marks:
            return
        marks[up] = Chosen(up, graph.size[up], False, True)
        v, up = up, graph.parent[up]


def _fill(graph: Graph, v: int, marks: dict[int, Chosen], below: dict[int, list[int]]) -> None:
    for u in graph.preorder(v):
        if u != v:
            marks[u] = Chosen(u, graph.size[u], True, False)
        if graph.children[u]:
            below[u] = list(graph.children[u])


def from_vertices(graph: Graph, taken: Iterable[tuple[int, int, bool]]) -> Selection:
    """A selection of exactly these (vertex, needs, exclusive), such as an earlier selection read back."""
    return select(graph, [Pick(v, needs, exclusive, False, ()) for v, needs, exclusive in taken])
