"""Resource recipes in GraphML: a small graph that says how to make a large one.

A recipe node is a kind of vertex; a recipe edge says how many of the target go under each source and how they are
numbered. Edges are followed breadth first, each for all its sources, which gives the vertices their numbers.
"""

from __future__ import annotations

import re
from collections import deque
from xml.etree import ElementTree

from headrace.graph.model import MAX_VERTICES, Graph, GraphError


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


def _tag(element: ElementTree.Element) -> str:
    return re.sub(r"^\{.*\}", "", str(element.tag))


def read(text: str | bytes) -> Graph:
    """Make the graph that a GraphML recipe describes. Raises GraphError saying what is wrong with the recipe."""
    raw = text.encode() if isinstance(text, str) else text
    if b"<!ENTITY" in raw or b"<!DOCTYPE" in raw:
        raise GraphError("GraphML recipe: document type declarations are not accepted")
    try:
        document = ElementTree.fromstring(raw)
    except ElementTree.ParseError as exc:
        raise GraphError(f"GraphML recipe: not well-formed XML: {exc}") from None
    defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
    kinds: dict[str, _Attributes] = {}
    edges: list[tuple[str, str, _Attributes]] = []
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
    roots = [name for name, kind in kinds.items() if kind.number("root", 0)]
    if len(roots) != 1:
        raise GraphError(f"GraphML recipe: exactly one node must have root=1, not {len(roots)}")
    return _build(kinds, edges, roots[0])


def _build(kinds: dict[str, _Attributes], edges: list[tuple[str, str, _Attributes]], root: str) -> Graph:
    graph = Graph()
    made: dict[str, list[int]] = {name: [] for name in kinds}
    made[root].append(_add(graph, kinds[root], -1, 0))
    out: dict[str, list[tuple[str, _Attributes]]] = {}
    for source, target, attributes in edges:
        if attributes.text("e_subsystem", "containment") == "containment":
            out.setdefault(source, []).append((target, attributes))
    queue = deque([root])
    followed: set[str] = set()
    while queue:
        source = queue.popleft()
        for target, attributes in out.get(source, ()):
            method = attributes.text("gen_method", "MULTIPLY")
            if method != "MULTIPLY":
                raise GraphError(
                    f"{attributes.where}: generation method {method} is not known in containment; use MULTIPLY"
                )
            if target in followed or target == root:
                raise GraphError(f"{attributes.where}: {target} would be contained twice (a cycle, or two parents)")
            followed.add(target)
            _multiply(graph, made[source], kinds[target], attributes, made[target])
            queue.append(target)
    return graph.finish()


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
