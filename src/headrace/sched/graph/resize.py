"""Growing and shrinking a graph in use: vertices are added and removed, all others keep their numbers.

Users of a graph store vertices by number, so nothing is renumbered: a removed vertex leaves an empty row, with no type
and no contents, until a later vertex reuses it. Totals are updated by the difference, not counted again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.sched.graph.model import MAX_VERTICES, Graph, GraphError


class Difference(NamedTuple):
    """The difference between another graph and this one.

    `place` maps the other graph's vertices to this graph's. `new` are the vertices that exist only there, parents
    before children.
    """

    place: dict[int, int]
    new: list[int]

    def above(self, part: Graph) -> frozenset[int]:
        """The vertices of this graph that get new vertices below them."""
        return frozenset(self.place[part.parent[u]] for u in self.new if part.parent[u] in self.place)


def grow(graph: Graph, part: Graph) -> list[int]:
    """Add to `graph` the vertices that only `part` has; returns the new vertices, parents before children.

    Raises GraphError, and then changes nothing.
    """
    return insert(graph, part, compare(graph, part))


def compare(graph: Graph, part: Graph) -> Difference:
    """The vertices that `part` has and `graph` lacks.

    The two roots correspond, and below them vertices of the same type and name in the same place, such as racks. A new
    node must have a new rank. Raises GraphError.
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
    """Add the new vertices; returns them, parents before children. A `uniq` number in use is replaced."""
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
        if part.parent[u] in existing and graph.plain:
            graph.adjust(v, 1)
    if not graph.plain:
        for tree in graph.others:
            if tree.subsystem in part.hierarchies:
                added += _place(graph, tree, part.hierarchies[tree.subsystem], place)
        for tree in graph.hierarchies.values() or (graph,):
            tree.recount()
    for subsystem, relation, source, target in part.edges:
        if source not in existing or target not in existing:
            graph.edges.append((subsystem, relation, place[source], place[target]))
    return added


def _place(graph: Graph, tree: Graph, part: Graph, place: dict[int, int]) -> list[int]:
    """Add the edges of one hierarchy of another graph; returns the vertices that are in no other one."""
    added = []
    for u in part.preorder(part.root):
        if u not in place:
            known = [v for v in tree.find_path(part.path(u)) if tree.type[v] == part.type[u]]
            if known:
                place[u] = known[0]
            else:
                place[u] = graph.add_copy(part, u, max(graph.uniq) + 1)
                added.append(place[u])
        for above in part.parents(u):
            if place[above] not in tree.parents(place[u]):
                tree.place(place[u], place[above])
    return added


def check(graph: Graph, roots: Iterable[int]) -> None:
    """Raise GraphError if `roots` include the graph's own root."""
    for v in roots:
        if graph.parent[v] < 0:
            raise GraphError(f"{graph.path(v)}: is the root of the graph, which must stay")


def remove(graph: Graph, roots: Iterable[int]) -> frozenset[int]:
    """Remove subtrees; returns every removed vertex. Raises GraphError for the graph's own root."""
    roots = list(roots)
    check(graph, roots)
    if not graph.plain:
        return _remove_everywhere(graph, {v for root in roots for v in graph.preorder(root)})
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


def _remove_everywhere(graph: Graph, gone: set[int]) -> frozenset[int]:
    """Remove vertices from all hierarchies, and then all vertices left in no hierarchy."""
    trees = list(graph.hierarchies.values()) or [graph]
    roots = {tree.root for tree in trees}
    lost = set(gone)
    while lost:
        for tree in trees:
            for v in graph.vertices():
                parents = [] if v in gone else tree.parents(v)
                left = [up for up in parents if up not in gone]
                if len(left) < len(parents):
                    tree.parent[v] = left[0] if left else -1
                    tree.more_parents.pop(v, None)
                    if left[1:]:
                        tree.more_parents[v] = left[1:]
                if tree.children[v]:
                    tree.children[v] = [child for child in tree.children[v] if child not in gone]
        here = [v for v in graph.vertices() if v not in gone and v not in roots]
        lost = {v for v in here if all(tree.parent[v] < 0 for tree in trees)}
        gone |= lost
    graph.edges[:] = [edge for edge in graph.edges if edge[2] not in gone and edge[3] not in gone]
    graph.vacate(gone)
    for tree in trees:
        tree.recount()
    return frozenset(gone)
