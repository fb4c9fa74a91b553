"""The graph: its hierarchies of vertices.

A graph may have several hierarchies, one for each subsystem (RFC 4): a node is contained in a rack and is fed by a
power distribution unit. Each hierarchy is a `Graph` of its own with the same vertices by the same numbers. Hierarchies
share the columns that describe a vertex, and differ in parents and children. In one hierarchy a vertex may have several
parents, such as a storage unit that belongs to its rack and to the whole system. Most graphs are one tree (`plain`).

Paths are computed from names and parents; only paths that do not follow that rule are stored. Subtrees of the same
shape share the counts of their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.sched.graph.vertices import MAX_BITS, MAX_SIZE, MAX_VERTICES, GraphError, Vertices

__all__ = ["DOMINANT", "MAX_BITS", "MAX_DEPTH", "MAX_SIZE", "MAX_VERTICES", "Graph", "GraphError"]

DOMINANT = "containment"
_NO_CHILDREN: list[int] = []
# The search is recursive.
MAX_DEPTH = 200


class Graph(Vertices):
    """Resource vertices in one hierarchy, under one root.

    Columns by vertex, in addition to those of `Vertices`: `parent` (the first one; -1 for the root and for vertices
    outside this hierarchy), `position` (place among the children of the first parent), `children`, `totals` (amounts by
    type in its subtree). Sparse columns: `more_parents` (parents other than the first), `paths` (paths other than the
    parent's path plus name). `hierarchies` has all hierarchies of these vertices by subsystem, this one included; it is
    empty if there is only one.
    """

    __slots__ = (
        "_above",
        "_kinds",
        "_least",
        "_nodes",
        "_ranked",
        "_root",
        "by_path",
        "children",
        "end",
        "hierarchies",
        "inside",
        "more_parents",
        "parent",
        "paths",
        "position",
        "shapes",
        "start",
        "subsystem",
        "totals",
    )

    def __init__(self) -> None:
        super().__init__()
        # The subsystem of this hierarchy.
        self.subsystem = DOMINANT
        self.parent: list[int] = []
        self.position: list[int] = []
        self.children: list[list[int]] = []
        self.more_parents: dict[int, list[int]] = {}
        self.paths: dict[int, str] = {}
        self.hierarchies: dict[str, Graph] = {}
        self.totals: list[dict[str, int]] = []
        # The cores and GPUs of subtrees as bits, kept by `execution_ids`; equal sets are one object.
        self.inside: dict[int, dict[str, int]] = {}
        self.shapes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        self._above: dict[frozenset[str], frozenset[int]] = {}
        self._least: dict[str, dict[str, int]] = {}
        self._kinds: dict[int, dict[str, list[int]]] = {}
        self._ranked: dict[tuple[int, str, bool], list[int]] = {}
        self._root = -1
        self._nodes: list[int] | None = None
        self.by_path: dict[str, list[int]] | None = None
        # The span of time for which the graph is valid, in seconds.
        self.start = 0
        self.end = 100 * 365 * 24 * 3600

    @property
    def plain(self) -> bool:
        """Whether the graph is one tree: one hierarchy in which no vertex has two parents."""
        return not self.hierarchies and not self.more_parents

    @property
    def others(self) -> list[Graph]:
        """The other hierarchies of these vertices."""
        return [tree for tree in self.hierarchies.values() if tree is not self]

    def hierarchy(self, subsystem: str) -> Graph:
        """The same vertices in the hierarchy of a subsystem; a new hierarchy is empty."""
        if subsystem == self.subsystem:
            return self
        found = self.hierarchies.get(subsystem)
        if found is None:
            found = Graph()
            found.subsystem = subsystem
            for column in Vertices.__slots__:
                setattr(found, column, getattr(self, column))
            count = len(self.type)
            found.parent, found.position = [-1] * count, [0] * count
            found.children = [_NO_CHILDREN] * count
            self.hierarchies[self.subsystem] = self
            self.hierarchies[subsystem] = found
            found.hierarchies = self.hierarchies
        return found

    def has(self, v: int) -> bool:
        """Whether a vertex is in this hierarchy."""
        return self.parent[v] >= 0 or v == self.root

    def add(
        self,
        type: str,
        parent: int = -1,
        *,
        basename: str | None = None,
        id: int = -1,
        size: int = 1,
        rank: int = -1,
        unit: str = "",
        name: str | None = None,
        uniq: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Append a vertex below `parent` and return its number. Raises GraphError.

        A `parent` of -1 is for the root, or for a vertex that is placed later.
        """
        v = self._row(type, basename, id, size, rank, unit, name, uniq, properties)
        if v == len(self.parent):
            for tree in self.hierarchies.values() or (self,):
                tree.parent.append(-1)
                tree.position.append(0)
                tree.children.append(_NO_CHILDREN)
                if tree.totals:
                    tree.totals.append({})
        if parent >= 0:
            self.place(v, parent)
        return v

    def add_copy(self, other: Graph, u: int, uniq: int) -> int:
        """Append an unplaced copy of vertex `u` of another graph, with its status; returns its number."""
        v = self.add(
            other.type[u],
            basename=other.basename[u],
            id=other.id[u],
            size=other.size[u],
            rank=other.rank[u],
            unit=other.unit.get(u, ""),
            name=other.names.get(u),
            uniq=uniq,
            properties=other.properties.get(u),
        )
        self.up[v] = other.up[u]
        if u in other.elsewhere:
            self.elsewhere[v] = other.elsewhere[u]
        return v

    def place(self, v: int, parent: int) -> None:
        """Make `v` the last child of `parent`. Raises GraphError if it already is a child of `parent`."""
        kids = self.children[parent]
        if kids is _NO_CHILDREN:
            kids = self.children[parent] = []
        if self.parent[v] >= 0:
            more = self.more_parents.setdefault(v, [])
            if parent == self.parent[v] or parent in more:
                raise GraphError(f"{self.name(v)}: contained twice in {self.name(parent)}")
            more.append(parent)
            kids.append(v)
            return
        self.parent[v] = parent
        # This may exceed the number of children, because children may have been removed.
        self.position[v] = self.position[kids[-1]] + 1 if kids else 0
        kids.append(v)

    def parents(self, v: int) -> list[int]:
        """All parents of a vertex, the first parent first."""
        first = self.parent[v]
        return [first, *self.more_parents.get(v, ())] if first >= 0 else []

    def finish(self) -> Graph:
        """Check that each hierarchy has one root and no cycle, and count the contents of each vertex.

        Empty hierarchies are dropped. Raises GraphError for no root, several roots, a cycle, or more than
        MAX_DEPTH levels.
        """
        for subsystem, tree in list(self.hierarchies.items()):
            if not any(tree.children):
                del self.hierarchies[subsystem]
        if list(self.hierarchies) == [self.subsystem]:
            self.hierarchies.clear()
        trees = list(self.hierarchies.values()) or [self]
        for tree in trees:
            tree._finish()
        if len(trees) > 1:
            for v in self.vertices():
                if not any(tree.has(v) for tree in trees):
                    raise GraphError(f"{self.name(v)}: is in no hierarchy of the graph")
        return self

    def _finish(self) -> None:
        n = len(self.type)
        if n == 0 and self.subsystem != DOMINANT:
            raise GraphError(f"the graph has no subsystem {self.subsystem}")
        if n == 0:
            raise GraphError("the graph has no vertices")
        self._root = -1
        root = self._root = self.root
        order = self.preorder(root)
        if len(order) != n:
            seen = bytearray(n)
            for v in order:
                seen[v] = 1
            for v in range(n):
                if not seen[v] and (not self.hierarchies or self.parent[v] >= 0 or self.children[v]):
                    raise GraphError(f"{self.name(v)}: not contained in {self.name(root)} (a cycle, or a second root)")
        self._check_depth(order)
        self.totals = _totals(self, order)
        self._nodes = None
        self.by_path = None

    def _check_depth(self, order: Sequence[int]) -> None:
        """Raise GraphError for a cycle, or for a vertex more than MAX_DEPTH levels below the root."""
        depths = [0] * len(self.type)
        if not self.more_parents:
            for v in order[1:]:
                depths[v] = depths[self.parent[v]] + 1
        else:
            # A vertex is visited after all its parents.
            left = {v: len(self.parents(v)) for v in order}
            ready = [v for v in order if not left[v]]
            for v in ready:
                for child in self.children[v]:
                    depths[child] = max(depths[child], depths[v] + 1)
                    left[child] -= 1
                    if not left[child]:
                        ready.append(child)
            for v, parents in left.items():
                if parents:
                    raise GraphError(f"{self.name(v)}: is contained in itself (a cycle)")
        deepest = max(order, key=depths.__getitem__)
        if depths[deepest] > MAX_DEPTH:
            raise GraphError(f"{self.name(deepest)}: more than {MAX_DEPTH} levels below {self.name(order[0])}")

    @property
    def root(self) -> int:
        if self._root >= 0:
            return self._root
        for v, parent in enumerate(self.parent):
            if parent < 0 and (self.children[v] or not self.hierarchies):
                return v
        raise GraphError(f"{self.subsystem} has no root: every vertex is contained in another")

    def preorder(self, v: int) -> list[int]:
        """`v` and all vertices below it, each once: below the first parent that is reached, children in order."""
        out: list[int] = []
        stack = [v]
        children = self.children
        if self.more_parents:
            seen: set[int] = set()
            while stack:
                u = stack.pop()
                if u not in seen:
                    seen.add(u)
                    out.append(u)
                    stack.extend(reversed(children[u]))
            return out
        while stack:
            u = stack.pop()
            out.append(u)
            kids = children[u]
            if kids:
                stack.extend(reversed(kids))
        return out

    def adjust(self, v: int, times: int) -> None:
        """Add the contents of a subtree to the totals above it (`times` 1), or subtract them (-1)."""
        if not self.plain:
            self.recount()
            return
        for above in self.ancestors(v):
            sums = dict(self.totals[above])
            for name, amount in self.totals[v].items():
                sums[name] = sums.get(name, 0) + times * amount
                if not sums[name]:
                    del sums[name]
            self.totals[above] = sums
            self.inside.pop(above, None)
            self._kinds.pop(above, None)
            for key in [key for key in self._ranked if key[0] == above]:
                del self._ranked[key]
        self._above.clear()
        self._least.clear()
        self._nodes = None
        self.by_path = None

    def set_size(self, v: int, size: int) -> None:
        """Change the size (units) of a vertex without contents. Raises GraphError, and then changes nothing."""
        if self.children[v]:
            raise GraphError(f"{self.path(v)}: has contents; only a vertex without any changes its size")
        if not 0 <= size <= MAX_SIZE:
            raise GraphError(f"{self.path(v)}: size {size} is not between 0 and 2^62")
        kind, more = self.type[v], size - self.size[v]
        self.size[v] = size
        if not self.plain:
            for tree in self.hierarchies.values() or (self,):
                tree.recount()
            return
        self.totals[v] = {kind: size}
        for above in self.ancestors(v):
            # Equal totals are one object, so they are not changed in place.
            sums = self.totals[above]
            self.totals[above] = {**sums, kind: sums.get(kind, 0) + more}
        self._least.clear()

    def recount(self) -> None:
        """Count the contents of every vertex again, and drop everything derived from the counts."""
        self.totals = _totals(self, self.preorder(self.root))
        for known in (self.inside, self._kinds, self._ranked, self._above, self._least):
            known.clear()
        self._nodes = None
        self.by_path = None

    def vacate(self, gone: Iterable[int]) -> None:
        """Empty the rows of removed vertices."""
        trees = list(self.hierarchies.values()) or [self]
        for v in gone:
            self._empty(v)
            for tree in trees:
                tree.parent[v] = -1
                tree.children[v] = _NO_CHILDREN
                tree.totals[v] = {}
                for known in (tree.more_parents, tree.paths, tree.inside, tree._kinds):
                    known.pop(v, None)
        for tree in trees:
            tree._ranked = {key: found for key, found in tree._ranked.items() if self.type[key[0]]}

    def path(self, v: int) -> str:
        parts: list[str] = []
        for _ in range(len(self.type)):
            given = self.paths.get(v) if self.paths else None
            if given is not None:
                return "/".join([given, *reversed(parts)])
            parts.append(self.name(v))
            v = self.parent[v]
            if v < 0:
                break
        return "/" + "/".join(reversed(parts))

    def set_path(self, v: int, path: str) -> None:
        """Set a path other than the parent's path plus the vertex's name.

        The paths of the vertices below do not change.
        """
        for child in self.children[v]:
            self.paths[child] = self.path(child)
        self.paths[v] = path

    def depth(self, v: int) -> int:
        depth = 0
        while self.parent[v] >= 0:
            v = self.parent[v]
            depth += 1
        return depth

    def find_path(self, path: str) -> list[int]:
        """The vertices with this path in any hierarchy, in vertex order; host names, and so paths, may repeat."""
        found = self._known_paths().get(path, ())
        if self.hierarchies:
            return sorted({*found, *(v for tree in self.others for v in tree._known_paths().get(path, ()))})
        return sorted(found)

    def _known_paths(self) -> dict[str, list[int]]:
        if self.by_path is None:
            paths: dict[str, list[int]] = {}
            full: dict[int, str] = {}
            for v in self.preorder(self.root):
                above = self.parent[v]
                text = self.paths.get(v)
                if text is None:
                    text = full[above] + "/" + self.name(v) if above in full else self.path(v)
                full[v] = text
                paths.setdefault(text, []).append(v)
            for v in self.more_parents:
                for above in self.parents(v):
                    text = f"{full[above]}/{self.name(v)}"
                    if v not in paths.setdefault(text, []):
                        paths[text].append(v)
            self.by_path = paths
        return self.by_path

    def ancestors(self, v: int) -> Iterator[int]:
        """The vertices above `v`, nearest first, each once."""
        if self.more_parents:
            seen: dict[int, None] = {}
            found = self.parents(v)
            for up in found:
                if up not in seen:
                    seen[up] = None
                    found += self.parents(up)
            yield from seen
            return
        v = self.parent[v]
        while v >= 0:
            yield v
            v = self.parent[v]

    def above(self, kinds: frozenset[str]) -> frozenset[int]:
        """The vertices above any vertex that directly contains resources of all `kinds`."""
        found = self._above.get(kinds)
        if found is None:
            types, above = self.type, set[int]()
            for v, children in enumerate(self.children):
                if len(children) >= len(kinds) and kinds <= {types[child] for child in children}:
                    for up in self.ancestors(v):
                        if up in above:
                            break
                        above.add(up)
            found = self._above[kinds] = frozenset(above)
        return found

    def least(self, kind: str) -> dict[str, int]:
        """The minimum amounts by type in any vertex of type `kind` with contents."""
        found = self._least.get(kind)
        if found is None:
            shapes = {id(t): t for v, t in enumerate(self.totals) if self.type[v] == kind and self.children[v]}
            names = set.intersection(*(set(t) for t in shapes.values())) if shapes else set()
            found = self._least[kind] = {name: min(t[name] for t in shapes.values()) for name in names}
            if any(self.type[v] == kind and not kids and self.has(v) for v, kids in enumerate(self.children)):
                found.clear()
        return found

    def kinds(self, v: int) -> dict[str, list[int]]:
        """The children of a vertex by type, in order."""
        found = self._kinds.get(v)
        if found is None:
            found = {}
            for child in self.children[v]:
                found.setdefault(self.type[child], []).append(child)
            self._kinds[v] = found
        return found

    def ranked(self, v: int, kind: str, falling: bool) -> list[int]:
        """The children of one type by rising or falling id; equal ids stay in the graph's order."""
        key = (v, kind, falling)
        found = self._ranked.get(key)
        if found is None:
            found = self._ranked[key] = sorted(self.kinds(v)[kind], key=self.id.__getitem__, reverse=falling)
        return found

    def nodes(self) -> list[int]:
        """The vertices of type node, by number; callers must not change the list."""
        if self._nodes is None:
            self._nodes = [v for v, kind in enumerate(self.type) if kind == "node"]
            if self.hierarchies:
                self._nodes = [v for v in self._nodes if self.has(v)]
        return self._nodes

    def types(self) -> frozenset[str]:
        return frozenset(self.totals[self.root])


def _totals(graph: Graph, order: Sequence[int]) -> list[dict[str, int]]:
    """The amounts by type in the subtree of each vertex. Equal amounts are one object."""
    shapes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    totals: list[dict[str, int]] = [{}] * len(graph.type)
    types, sizes, children = graph.type, graph.size, graph.children
    leaves: dict[tuple[str, int], dict[str, int]] = {}
    # A vertex with several parents counts once in each vertex above it, though several paths lead to it.
    over = {above for v in graph.more_parents for above in graph.ancestors(v)}
    for v in over:
        below: dict[str, int] = {}
        for u in graph.preorder(v):
            below[types[u]] = below.get(types[u], 0) + sizes[u]
        totals[v] = below
    for v in reversed(order):
        if v in over:
            continue
        kids = children[v]
        if not kids:
            leaf = (types[v], sizes[v])
            found = leaves.get(leaf)
            if found is None:
                found = leaves[leaf] = {types[v]: sizes[v]}
            totals[v] = found
            continue
        sums = {types[v]: sizes[v]}
        for kid in kids:
            for name, amount in totals[kid].items():
                sums[name] = sums.get(name, 0) + amount
        key = tuple(sums.items())
        totals[v] = shapes.setdefault(key, sums)
    return totals
