"""A graph that grows and shrinks in use: vertices come and go, and every other one keeps its number.

Whoever holds vertices holds numbers, so nothing is renumbered: a vertex that left is an empty row, of no type and with
nothing in it, until a later one takes its place. Totals are kept current by what came or went, not counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.graph.model import MAX_VERTICES, Graph, GraphError


class Difference(NamedTuple):
    """What another graph has: `place` is where it is in this one, and `new` what is not, parents before children."""

    place: dict[int, int]
    new: list[int]

    def above(self, part: Graph) -> frozenset[int]:
        """The vertices below which something is new."""
        return frozenset(self.place[part.parent[u]] for u in self.new if part.parent[u] in self.place)


def grow(graph: Graph, part: Graph) -> list[int]:
    """Add to `graph` what `part` has and it has not; returns the new vertices, parents before children.

    Raises GraphError, with nothing changed.
    """
    return insert(graph, part, compare(graph, part))


def compare(graph: Graph, part: Graph) -> Difference:
    """What `part` has that `graph` has not.

    The roots are taken for one another, and below them what has the same type and name in the same place, such as
    racks; a new node must be of a new rank. Raises GraphError.
    """
    root, start = graph.root, part.root
    if graph.type[root] != part.type[start]:
        raise GraphError(f"{part.path(start)}: the graph to add to begins with a {graph.type[root]}")
    ranks = {graph.rank[v]: v for v, kind in enumerate(graph.type) if kind == "node" and graph.rank[v] >= 0}
    known: dict[int, dict[tuple[str, str], int]] = {}
    place = {start: root}
    new: list[int] = []
    for u in part.preorder(start)[1:]:
        kind, above = part.type[u], place.get(part.parent[u], -1)
        if above >= 0:
            beside = known.get(above)
            if beside is None:
                beside = known[above] = {(graph.type[c], graph.name(c)): c for c in graph.children[above]}
            found = beside.get((kind, part.name(u)))
            if found is not None:
                place[u] = found
                continue
        if kind == "node" and part.rank[u] in ranks:
            raise GraphError(f"{part.path(u)}: rank {part.rank[u]} is that of {graph.path(ranks[part.rank[u]])}")
        new.append(u)
    if graph.count + len(new) > MAX_VERTICES:
        raise GraphError(f"more than {MAX_VERTICES} vertices")
    return Difference(place, new)


def insert(graph: Graph, part: Graph, difference: Difference) -> list[int]:
    """Add what is new; returns it, parents before children. A number that is taken already is replaced by another."""
    place, new = difference
    added: list[int] = []
    known = set(graph.uniq)
    following = max(known) + 1
    existing = set(place)
    for u in new:
        uniq = part.uniq[u]
        if uniq in known:
            uniq = following
        known.add(uniq)
        following = max(following, uniq + 1)
        v = place[u] = graph.add_copy(part, u, uniq)
        graph.place(v, place[part.parent[u]])
        graph.totals[v] = part.totals[u]
        added.append(v)
        if part.parent[u] in existing:
            graph.adjust(v, 1)
    for subsystem, relation, source, target in part.edges:
        if source not in existing or target not in existing:
            graph.edges.append((subsystem, relation, place[source], place[target]))
    return added


def check(graph: Graph, roots: Iterable[int]) -> None:
    """Raise GraphError if what is to be removed is the graph's own root."""
    for v in roots:
        if graph.parent[v] < 0:
            raise GraphError(f"{graph.path(v)}: is the root of the graph, which must stay")


def remove(graph: Graph, roots: Iterable[int]) -> frozenset[int]:
    """Take subtrees out of a graph; returns every vertex that is gone. Raises GraphError for the graph's own root."""
    roots = list(roots)
    check(graph, roots)
    gone: set[int] = set()
    parents: set[int] = set()
    for v in roots:
        if v not in gone:
            gone.update(graph.preorder(v))
            parents.add(graph.parent[v])
            graph.adjust(v, -1)
    for parent in parents - gone:
        graph.children[parent] = [c for c in graph.children[parent] if c not in gone]
    graph.edges = [edge for edge in graph.edges if edge[2] not in gone and edge[3] not in gone]
    graph.vacate(gone)
    return frozenset(gone)
