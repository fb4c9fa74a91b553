"""Resource recipes in GraphML: a small graph that says how to make a large one.

A recipe node is a kind of vertex; a recipe edge says how many of the target go under each source and how they are
numbered. Edges are followed breadth first, each for all its sources, which gives the vertices their numbers.

A recipe may have a tree for each of several subsystems. Those beside containment have vertices of their own, such as a
power panel, and associate others that containment has, such as the nodes it feeds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from xml.etree import ElementTree

from headrace.graph.model import DOMINANT, MAX_VERTICES, Graph, GraphError


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


# Source and target recipe nodes, and what the edge says.
_Edge = tuple[str, str, _Attributes]


def _tag(element: ElementTree.Element) -> str:
    return re.sub(r"^\{.*\}", "", str(element.tag))


def read(text: str | bytes, subsystem: str = DOMINANT) -> Graph:
    """Make the graph that a GraphML recipe describes, as the tree of a subsystem.

    Raises GraphError saying what is wrong with the recipe.
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
    contained = _contain(kinds, edges, _root(kinds, DOMINANT))
    if subsystem != DOMINANT:
        return _associate(kinds, edges, subsystem, contained)[0]
    for name in sorted({kind.text("subsystem", DOMINANT) for kind in kinds.values()} - {DOMINANT}):
        try:
            other, origin = _associate(kinds, edges, name, contained)
        except GraphError:
            # Nobody asked for it.
            continue
        for u, v in origin.items():
            contained.elsewhere.setdefault(v, {})[name] = other.path(u)
    return contained


def _root(kinds: dict[str, _Attributes], subsystem: str) -> str:
    roots = [
        name for name, kind in kinds.items() if kind.number("root", 0) and kind.text("subsystem", DOMINANT) == subsystem
    ]
    if not roots and subsystem != DOMINANT:
        raise GraphError(f"GraphML recipe: there is no node of subsystem {subsystem} with root=1")
    if len(roots) != 1:
        raise GraphError(f"GraphML recipe: exactly one node must have root=1, not {len(roots)}")
    return roots[0]


def _steps(edges: list[_Edge], subsystem: str, root: str) -> Iterator[_Edge]:
    """The edges of a subsystem's tree, breadth first. Raises GraphError for what is not a tree."""
    out: dict[str, list[_Edge]] = {}
    for edge in edges:
        if edge[2].text("e_subsystem", DOMINANT) == subsystem:
            out.setdefault(edge[0], []).append(edge)
    queue = deque([root])
    followed: set[str] = set()
    while queue:
        for edge in out.get(queue.popleft(), ()):
            target = edge[1]
            if target in followed or target == root:
                raise GraphError(f"{edge[2].where}: {target} would be contained twice (a cycle, or two parents)")
            followed.add(target)
            yield edge
            queue.append(target)


def _contain(kinds: dict[str, _Attributes], edges: list[_Edge], root: str) -> Graph:
    graph = Graph()
    made: dict[str, list[int]] = {name: [] for name in kinds}
    made[root].append(_add(graph, kinds[root], -1, 0))
    for source, target, attributes in _steps(edges, DOMINANT, root):
        method = attributes.text("gen_method", "MULTIPLY")
        if method != "MULTIPLY":
            raise GraphError(
                f"{attributes.where}: generation method {method} is not known in containment; use MULTIPLY"
            )
        _multiply(graph, made[source], kinds[target], attributes, made[target])
    return graph.finish()


def _associate(
    kinds: dict[str, _Attributes], edges: list[_Edge], subsystem: str, contained: Graph
) -> tuple[Graph, dict[int, int]]:
    """The tree of another subsystem, and those of its vertices that are `contained` already, as what they are there."""
    graph = Graph()
    graph.subsystem = subsystem
    root = _root(kinds, subsystem)
    made: dict[str, list[int]] = {name: [] for name in kinds}
    made[root].append(_add(graph, kinds[root], -1, 0))
    # The vertices of this tree that are those of containment, and the reverse.
    origin: dict[int, int] = {}
    place: dict[int, int] = {}
    for source, target, attributes in _steps(edges, subsystem, root):
        method = attributes.text("gen_method", "MULTIPLY")
        if method == "MULTIPLY":
            _multiply(graph, made[source], kinds[target], attributes, made[target])
            continue
        if method not in ("ASSOCIATE_IN", "ASSOCIATE_BY_PATH_IN"):
            raise GraphError(
                f"{attributes.where}: generation method {method} is not known; use MULTIPLY, ASSOCIATE_IN or "
                "ASSOCIATE_BY_PATH_IN"
            )
        known = attributes.text("as_tgt_subsystem", DOMINANT)
        if known != DOMINANT:
            raise GraphError(f"{attributes.where}: only what containment has can be associated, not what {known} has")
        wanted = kinds[target].text("type")
        others = [v for v in contained.preorder(contained.root) if contained.type[v] == wanted]
        groups: dict[int, list[int]] = {}
        if method == "ASSOCIATE_BY_PATH_IN":
            up = attributes.number("as_tgt_uplvl", 1)
            for v in others:
                groups.setdefault(_above(contained, v, up), []).append(v)
        for at in made[source]:
            mine = others
            if method == "ASSOCIATE_BY_PATH_IN":
                if at not in origin:
                    raise GraphError(
                        f"{attributes.where}: {source} is not in containment, so that it has no path there"
                    )
                mine = groups.get(_above(contained, origin[at], attributes.number("as_src_uplvl", 1)), [])
            for v in mine:
                if v in place:
                    graph.place(place[v], at)
                place[v] = graph.add(
                    contained.type[v],
                    at,
                    basename=contained.basename[v],
                    id=contained.id[v],
                    size=contained.size[v],
                    rank=contained.rank[v],
                    unit=contained.unit.get(v, ""),
                )
                origin[place[v]] = v
                made[target].append(place[v])
    following = max(contained.uniq) + 1
    for u in graph.vertices():
        if u in origin:
            graph.uniq[u] = contained.uniq[origin[u]]
            graph.elsewhere[u] = {DOMINANT: contained.path(origin[u])}
        else:
            graph.uniq[u] = following
            following += 1
    return graph.finish(), origin


def _above(graph: Graph, v: int, levels: int) -> int:
    for _ in range(levels):
        v = max(graph.parent[v], graph.root)
    return v


def _multiply(graph: Graph, sources: list[int], kind: _Attributes, edge: _Attributes, made: list[int]) -> None:
    scale = edge.number("multi_scale", 1)
    scope = edge.number("id_scope", 0)
    start = edge.number("id_start", 0)
    stride = edge.number("id_stride", 1)
    if len(graph) + scale * len(sources) > MAX_VERTICES:
        raise GraphError(f"{edge.where}: would make more than {MAX_VERTICES} vertices")
    counts: dict[int, int] = {}
    for source in sources:
        # Numbers are counted within the vertex `scope` levels above the parent.
        owner = source
        for _ in range(scope):
            if graph.parent[owner] < 0:
                break
            owner = graph.parent[owner]
        count = counts.get(owner, 0)
        made.extend(_add(graph, kind, source, start + (count + i) * stride) for i in range(scale))
        counts[owner] = count + scale


def _add(graph: Graph, kind: _Attributes, parent: int, number: int) -> int:
    name = kind.text("type")
    if not name:
        raise GraphError(f"{kind.where}: has no type")
    return graph.add(
        name,
        parent,
        basename=kind.text("basename", name) or name,
        id=number,
        size=kind.number("size", 1),
        rank=number if name == "node" else -1,
        unit=kind.text("unit"),
    )
