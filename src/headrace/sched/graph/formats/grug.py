"""Resource recipes in GraphML: a small graph that describes how to generate a large one.

A recipe node is a kind of vertex; a recipe edge says how many of the target go under each source and how they are
numbered. Edges are followed depth first, each for all its sources, which determines the numbers of the vertices.

A recipe may have one hierarchy for each of several subsystems. An edge may also associate existing vertices of the same
or another hierarchy: nodes with the power distribution unit that feeds them, storage units of racks with one of the
whole system.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from headrace.sched.graph.model import DOMINANT, MAX_VERTICES, Graph, GraphError


class _Attributes:
    """The values of one recipe node or edge, with the defaults that the recipe's keys declare."""

    def __init__(self, element: ElementTree.Element, defaults: dict[str, str], where: str) -> None:
        self.values = dict(defaults)
        self.where = where
        for data in element:
            if _tag(data) == "data":
                self.values[data.get("key", "")] = (data.text or "").strip()

    def text(self, key: str, default: str = "") -> str:
        return self.values.get(key, default)

    def number(self, key: str, default: int, least: int = 0) -> int:
        text = self.values.get(key)
        if text is None or text == "":
            return default
        try:
            value = int(text)
        except ValueError:
            raise GraphError(f"{self.where}: {key} must be an integer, not {text!r}") from None
        if value < least:
            raise GraphError(f"{self.where}: {key} must be at least {least}, not {value}")
        return value


# The names of the source and the target recipe node, and the edge's values.
_Edge = tuple[str, str, _Attributes]


def _tag(element: ElementTree.Element) -> str:
    return re.sub(r"^\{.*\}", "", str(element.tag))


def read(text: str | bytes, subsystem: str = DOMINANT) -> Graph:
    """The graph that a GraphML recipe describes, as the tree of a subsystem.

    Raises GraphError for an invalid recipe.
    """
    raw = text.encode() if isinstance(text, str) else text
    if b"<!ENTITY" in raw or b"<!DOCTYPE" in raw:
        raise GraphError("GraphML recipe: document type declarations are not accepted")
    try:
        document = ElementTree.fromstring(raw)
    except ElementTree.ParseError as exc:
        raise GraphError(f"GraphML recipe: not well-formed XML: {exc}") from None
    defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
    kinds: dict[str, _Attributes] = {}
    edges: list[_Edge] = []
    for element in document.iter():
        tag = _tag(element)
        if tag == "key":
            for default in element:
                if _tag(default) == "default":
                    name = element.get("attr.name") or element.get("id") or ""
                    defaults.setdefault(element.get("for", ""), {})[name] = (default.text or "").strip()
        elif tag == "node":
            name = element.get("id", "")
            kinds[name] = _Attributes(element, defaults["node"], f"recipe node {name}")
        elif tag == "edge":
            source, target = element.get("source", ""), element.get("target", "")
            where = f"recipe edge {source} to {target}"
            for end in (source, target):
                if end not in kinds:
                    raise GraphError(f"{where}: there is no recipe node {end!r}")
            edges.append((source, target, _Attributes(element, defaults["edge"], where)))
    return _Maker(kinds, edges).graph(subsystem)


class _Maker:
    """A graph under construction: the vertices of each recipe node, and of each type, in order."""

    def __init__(self, kinds: dict[str, _Attributes], edges: list[_Edge]) -> None:
        self.kinds = kinds
        self.made: dict[str, list[int]] = {name: [] for name in kinds}
        self.by_type: dict[str, list[int]] = {}
        self.whole = Graph()
        self.out: dict[str, list[_Edge]] = {}
        for edge in edges:
            self.out.setdefault(edge[0], []).append(edge)

    def graph(self, subsystem: str) -> Graph:
        roots = [name for name, kind in self.kinds.items() if kind.number("root", 0)]
        subsystems = [self.kinds[name].text("subsystem", DOMINANT) for name in roots]
        for name in (DOMINANT, *subsystems):
            if subsystems.count(name) != 1:
                of = "" if name == DOMINANT else f" of subsystem {name}"
                raise GraphError(f"GraphML recipe: exactly one node{of} must have root=1, not {subsystems.count(name)}")
        if subsystem not in subsystems:
            raise GraphError(f"GraphML recipe: there is no node of subsystem {subsystem} with root=1")
        followed = set(roots)
        for root, of in zip(roots, subsystems, strict=True):
            self._add(self.whole.hierarchy(of), root, -1, 0)
            self._follow(root, followed)
        self.whole.finish()
        if subsystem not in (self.whole.hierarchies or (DOMINANT,)):
            raise GraphError(f"GraphML recipe: nothing is below the root of subsystem {subsystem}")
        return self.whole.hierarchy(subsystem)

    def _follow(self, root: str, followed: set[str]) -> None:
        """Create the vertices below a recipe node. Raises GraphError for an edge to existing vertices."""
        stack = list(reversed(self.out.get(root, ())))
        while stack:
            source, target, edge = stack.pop()
            if target in followed:
                raise GraphError(
                    f"{edge.where}: {target} would be contained twice (a cycle, or two parents); associate it by a "
                    "recipe node of its own"
                )
            followed.add(target)
            tree = self.whole.hierarchy(edge.text("e_subsystem", DOMINANT))
            method = edge.text("gen_method", "MULTIPLY")
            if method == "MULTIPLY":
                self._multiply(tree, source, target, edge)
            elif method in ("ASSOCIATE_IN", "ASSOCIATE_BY_PATH_IN"):
                self._associate(tree, source, target, edge, method == "ASSOCIATE_BY_PATH_IN")
            else:
                raise GraphError(
                    f"{edge.where}: generation method {method} is not known; use MULTIPLY, ASSOCIATE_IN or "
                    "ASSOCIATE_BY_PATH_IN"
                )
            stack.extend(reversed(self.out.get(target, ())))

    def _multiply(self, tree: Graph, source: str, target: str, edge: _Attributes) -> None:
        scale = edge.number("multi_scale", 1)
        scope = edge.number("id_scope", 0)
        start = edge.number("id_start", 0)
        stride = edge.number("id_stride", 1)
        sources = self.made[source]
        if len(tree) + scale * len(sources) > MAX_VERTICES:
            raise GraphError(f"{edge.where}: would make more than {MAX_VERTICES} vertices")
        counts: dict[int, int] = {}
        for at in sources:
            # Numbers restart below each vertex that is `scope` levels above the parent.
            owner = _above(tree, at, scope)
            count = counts.get(owner, 0)
            for i in range(scale):
                self._add(tree, target, at, start + (count + i) * stride)
            counts[owner] = count + scale

    def _associate(self, tree: Graph, source: str, target: str, edge: _Attributes, by_path: bool) -> None:
        """Place existing vertices of a type below those of `source`, too.

        These are all of them or, with `by_path`, those whose path agrees up to some level.
        """
        of = edge.text("as_tgt_subsystem", DOMINANT)
        if of != DOMINANT and of not in self.whole.hierarchies:
            raise GraphError(f"{edge.where}: nothing is in subsystem {of} yet that could be associated")
        known = self.whole.hierarchy(of)
        others = list(self.by_type.get(self.kinds[target].text("type"), ()))
        groups: dict[int, list[int]] = {}
        if by_path:
            up = edge.number("as_tgt_uplvl", 1)
            for v in others:
                groups.setdefault(_above(known, v, up), []).append(v)
        associated: dict[int, None] = {}
        for at in self.made[source]:
            mine = others
            if by_path:
                if known.parent[at] < 0 and not known.children[at]:
                    raise GraphError(f"{edge.where}: {source} is not in {of}, so that it has no path there")
                mine = groups.get(_above(known, at, edge.number("as_src_uplvl", 1)), [])
            for v in mine:
                is_placed = tree.parent[v] >= 0
                tree.place(v, at)
                if is_placed:
                    # A vertex that is associated several times has the last path.
                    tree.set_path(v, f"{tree.path(at)}/{tree.name(v)}")
            associated.update(dict.fromkeys(mine))
        self.made[target].extend(associated)

    def _add(self, tree: Graph, name: str, parent: int, number: int) -> None:
        kind = self.kinds[name]
        type = kind.text("type")
        if not type:
            raise GraphError(f"{kind.where}: has no type")
        of_type = self.by_type.setdefault(type, [])
        v = tree.add(
            type,
            parent,
            basename=kind.text("basename", type) or type,
            id=number,
            size=kind.number("size", 1),
            rank=len(of_type) if type == "node" else -1,
            unit=kind.text("unit"),
        )
        of_type.append(v)
        self.made[name].append(v)


def _above(tree: Graph, v: int, levels: int) -> int:
    for _ in range(levels):
        if tree.parent[v] < 0:
            break
        v = tree.parent[v]
    return v
