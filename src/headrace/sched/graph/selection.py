"""The part of a graph chosen by a match: picks, whole vertices, and the vertices up to the root.

A vertex allocated whole represents everything below it, so that 64 nodes are 64 entries and not thousands. Writers that
need every vertex read `items`, which adds the vertices below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.sched.graph.matcher import Failure, Pick
from headrace.sched.graph.model import Graph


class Chosen(NamedTuple):
    """One vertex of a selection.

    It has `needs` units. `path`: it is only on the way to requested vertices. `whole`: it includes everything below.

    A pool that is chosen exclusively is held in units, too: the job has `needs` of them, and other jobs may use the
    rest.
    """

    vertex: int
    needs: int
    exclusive: bool
    path: bool
    whole: bool = False


# The same as `Chosen(...)`, without a Python frame for each of the many vertices of a large job.
_new = tuple.__new__


class Run(NamedTuple):
    """Single resources of one vertex, each held exclusively: in the graph's order, and as bits by place.

    `ids` are the ids as bits, by type.
    """

    vertices: Sequence[int]
    bits: int
    ids: Mapping[str, int]


_NO_RUNS: Mapping[int, Run] = {}
_NO_LABELS: Mapping[int, str] = {}
# For selections that reach every vertex through its first parent.
_FIRST: Mapping[int, int] = {}


class Selection:
    """The chosen vertices of a graph.

    `marks` has them by vertex, and `below` the chosen children of each vertex in the graph's order.

    A job of a thousand cores is a few dozen `runs`, by the vertex that holds them; `inner` has the other vertices, the
    only ones that are processed one by one. For every vertex, including cores, read `marks`, `below` and `order`.

    `graph` is the hierarchy of the match. If it is not a tree, `reached_from` maps each vertex that was not reached
    through its first parent to the parent it was reached through. `labels` are those of the request, for writers of
    JGF; the caller that knows the request sets them (`labels.labels_of`). `sets` are the partial selections of a
    request with several sets.
    """

    __slots__ = (
        "_below",
        "_expanded",
        "_filled",
        "_inner_order",
        "_order",
        "graph",
        "inner",
        "labels",
        "reached_from",
        "runs",
        "sets",
    )

    def __init__(
        self,
        graph: Graph,
        marks: dict[int, Chosen],
        below: dict[int, list[int]],
        runs: Mapping[int, Run] = _NO_RUNS,
        reached_from: Mapping[int, int] = _FIRST,
    ) -> None:
        self.graph = graph
        self.reached_from = reached_from
        self.inner = marks
        self.runs = runs
        self.labels = _NO_LABELS
        self.sets: tuple[Selection, ...] = ()
        self._below = below
        self._filled = None if runs else (marks, below)
        self._expanded: tuple[list[Chosen], list[int]] | None = None
        self._inner_order: list[Chosen] | None = None
        self._order: list[Chosen] | None = None

    def _fill(self) -> tuple[dict[int, Chosen], dict[int, list[int]]]:
        if self._filled is None:
            marks, below = dict(self.inner), dict(self._below)
            position = self.graph.position
            for h, run in self.runs.items():
                for v in run.vertices:
                    marks[v] = _new(Chosen, (v, 1, True, False, True))
                kids = below.get(h)
                below[h] = sorted([*kids, *run.vertices], key=position.__getitem__) if kids else list(run.vertices)
            self._filled = marks, below
        return self._filled

    @property
    def marks(self) -> dict[int, Chosen]:
        return self._fill()[0]

    @property
    def below(self) -> dict[int, list[int]]:
        return self._fill()[1]

    def parent(self, v: int) -> int:
        """The vertex through which the selection reaches `v`; -1 for the root."""
        return self.reached_from.get(v, self.graph.parent[v])

    def order(self) -> list[Chosen]:
        """The vertices of `marks`, children before parents, in the graph's order.

        Vertices inside whole vertices are left out.
        """
        if self._order is None:
            self._order = self._sorted(self.marks, self.below) if self.runs else self.inner_order()
        return self._order

    def inner_order(self) -> list[Chosen]:
        """As `order`, without the resources of `runs`."""
        if self._inner_order is None:
            self._inner_order = self._sorted(self.inner, self._below)
        return self._inner_order

    def _sorted(self, marks: dict[int, Chosen], below: dict[int, list[int]]) -> list[Chosen]:
        root = self.graph.root
        out: list[Chosen] = []
        walk = [root] if root in marks else []
        # The walk visits parents first and the last child first; the result is reversed.
        while walk:
            v = walk.pop()
            out.append(marks[v])
            kids = below.get(v)
            if kids:
                walk.extend(kids)
        out.reverse()
        return out

    def _expand(self) -> tuple[list[Chosen], list[int]]:
        if self._expanded is None:
            self._expanded = self._walk()
        return self._expanded

    def _walk(self) -> tuple[list[Chosen], list[int]]:
        if self.graph.more_parents:
            return self._walk_once()
        graph, marks, below = self.graph, self.marks, self.below
        children, size = graph.children, graph.size
        items: list[Chosen] = []
        depths: list[int] = []
        root = graph.root
        walk: list[tuple[int, int, bool]] = [(root, 0, False)] if root in marks else []
        while walk:
            v, depth, inside = walk.pop()
            mark = Chosen(v, size[v], True, False) if inside else marks[v]
            items.append(mark)
            depths.append(depth)
            if inside or mark.whole:
                walk.extend((kid, depth + 1, True) for kid in children[v])
            else:
                walk.extend((kid, depth + 1, False) for kid in below.get(v, ()))
        items.reverse()
        depths.reverse()
        return items, depths

    def _walk_once(self) -> tuple[list[Chosen], list[int]]:
        """As `_walk`, for graphs where a vertex may be below several vertices that are given whole."""
        graph, marks, below = self.graph, self.marks, self.below
        items: list[Chosen] = []
        depths: list[int] = []
        seen: set[int] = set()

        def visit(v: int, depth: int, inside: bool) -> None:
            seen.add(v)
            mark = marks.get(v)
            if mark is None or (inside and not mark.exclusive):
                mark = Chosen(v, graph.size[v], True, False)
            all_below = inside or mark.whole
            for kid in graph.children[v] if all_below else below.get(v, ()):
                if kid not in seen:
                    visit(kid, depth + 1, all_below)
            items.append(mark)
            depths.append(depth)

        if graph.root in marks:
            visit(graph.root, 0, False)
        return items, depths

    @property
    def items(self) -> list[Chosen]:
        """Every vertex of the selection, children before parents, in the graph's order."""
        return self._expand()[0]

    @property
    def depths(self) -> list[int]:
        """The level of each of `items` below the root."""
        return self._expand()[1]

    def shortened(self) -> Selection:
        """The selection in which an exclusive vertex represents everything below it."""
        marks = self.marks
        kept: dict[int, Chosen] = {}
        walk = [self.graph.root] if self.graph.root in marks else []
        while walk:
            v = walk.pop()
            kept[v] = marks[v]._replace(whole=False)
            if not marks[v].exclusive:
                walk.extend(self.below.get(v, ()))
        below = {v: kids for v, kids in self.below.items() if not marks[v].exclusive}
        shortened = Selection(self.graph, kept, below, reached_from=self.reached_from)
        shortened.labels = self.labels
        return shortened

    def without_inside(self, but: frozenset[str]) -> Selection:
        """The selection without the contents of whole vertices, except of vertices of some types."""
        types = self.graph.type
        cut = [v for v, mark in self.inner.items() if mark.whole and types[v] not in but]
        if not any(self.graph.children[v] for v in cut):
            return self
        marks = {**self.inner, **{v: self.inner[v]._replace(whole=False) for v in cut}}
        return Selection(self.graph, marks, self._below, self.runs, self.reached_from)

    def covers(self, v: int) -> bool:
        """Whether the selection includes a vertex, by itself or inside a whole one."""
        marks = self.marks
        if v in marks:
            return True
        return any(up in marks and marks[up].whole for up in self.graph.ancestors(v))


class Match(NamedTuple):
    """The selection for a job until `end` (seconds); or None, and the failure if a search was made."""

    selection: Selection | None
    end: int
    failure: Failure | None = None


# The loop runs once per vertex of a selection: a further function call would slow down every match.
def select(  # noqa: C901, PLR0912
    graph: Graph,
    picks: Sequence[Pick],
    whole: frozenset[str] = frozenset(),
    runs: Mapping[int, Run] = _NO_RUNS,
    reached_from: Mapping[int, int] = _FIRST,
) -> Selection:
    """The selection of `picks` and `runs`, which do not overlap.

    A vertex above picks is taken whole if its type is in `whole` (node-exclusive policies). Vertices are reached
    through their first parents, or through those in `reached_from`.
    """
    marks: dict[int, Chosen] = {}
    below: dict[int, list[int]] = {}
    parent, size, types, children = graph.parent, graph.size, graph.type, graph.children
    stack: list[Pick] = list(reversed(picks))
    unsorted: set[int] = set()
    whole_ones: list[int] = []
    while stack:
        v, needs, exclusive, is_whole, inner = stack.pop()
        if v not in marks:
            # Add the vertices above, up to the first that is already in the selection.
            child, up = v, reached_from.get(v, parent[v]) if reached_from else parent[v]
            while up >= 0:
                kids = below.get(up)
                if kids is None:
                    below[up] = [child]
                else:
                    kids.append(child)
                    unsorted.add(up)
                if up in marks:
                    break
                on_way = types[up] in whole
                if on_way:
                    whole_ones.append(up)
                marks[up] = Chosen(up, size[up], on_way, True, on_way)
                child, up = up, reached_from.get(up, parent[up]) if reached_from else parent[up]
        marks[v] = _new(Chosen, (v, needs, exclusive, False, is_whole))
        if is_whole:
            if v in below or children[v]:
                whole_ones.append(v)
        elif inner:
            stack.extend(reversed(inner))
    for v in whole_ones:
        below.pop(v, None)
    for h in runs:
        v = h
        while v >= 0 and v not in marks:
            marks[v] = _new(Chosen, (v, size[v], False, True, False))
            child, v = v, parent[v]
            if v >= 0:
                kids = below.get(v)
                if kids is None:
                    below[v] = [child]
                else:
                    kids.append(child)
                    unsorted.add(v)
    position = graph.position
    for v in unsorted:
        if v in below:
            # `position` is the place among the children of the first parent.
            below[v].sort(key=children[v].index if graph.more_parents else position.__getitem__)
    return Selection(graph, marks, below, runs, reached_from)


def from_vertices(
    graph: Graph, taken: Iterable[tuple[int, int, bool]], reached_from: Mapping[int, int] = _FIRST
) -> Selection:
    """A selection of exactly these (vertex, needs, exclusive), such as one read from a document."""
    return select(
        graph, [Pick(v, needs, exclusive, False, ()) for v, needs, exclusive in taken], reached_from=reached_from
    )
