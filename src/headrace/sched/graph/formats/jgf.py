"""Graphs in the JSON Graph Format, as in R's scheduling key (RFC 20, RFC 40).

The reader uses typed records and one pass over the vertices, because the graph of a large system is a hundred megabytes
of JSON. Fields that a vertex omits have defaults: its name is basename and id, its basename is its type, and its id is
its number among the vertices, or for a node the number at the end of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.sched.graph.model import DOMINANT, Graph, GraphError

# Fluxion's value of the key `writer` for a graph without the vertices below exclusive ones.
SHORTHAND = "fluxion:jgf_shorthand"
_DIGITS = re.compile(r"(\d+)$")
# Relations that lead down from a vertex. In unlisted hierarchies, every relation except "in" leads down.
_DOWN = {"ibnet": "connected_down", "power": "supplies_to"}


class _Metadata(msgspec.Struct, gc=False):
    type: str
    basename: str | None = None
    name: str | None = None
    id: int | None = None
    uniq_id: int | None = None
    rank: int = -1
    status: int = 0
    unit: str = ""
    size: int = 1
    properties: dict[str, str] | list[str] | None = None
    paths: dict[str, str] | None = None
    exclusive: bool = False


class _Node(msgspec.Struct, gc=False):
    id: str | int
    metadata: _Metadata


class _EdgeMetadata(msgspec.Struct, gc=False):
    subsystem: str | None = None
    name: dict[str, str] | None = None
    relation: str | None = None


class _Edge(msgspec.Struct, gc=False):
    source: str | int
    target: str | int
    metadata: _EdgeMetadata | None = None


class _Body(msgspec.Struct, gc=False):
    nodes: list[_Node]
    edges: list[_Edge] = []


class _Document(msgspec.Struct, gc=False):
    graph: _Body


class _RawBody(msgspec.Struct, gc=False):
    nodes: list[msgspec.Raw]
    edges: list[msgspec.Raw] = []


class _RawDocument(msgspec.Struct, gc=False):
    """A document whose vertices are decoded one by one, so that they are never in memory all at once."""

    graph: _RawBody


_Item = TypeVar("_Item")
_decode = msgspec.json.Decoder(_RawDocument, strict=False).decode
_decode_node = msgspec.json.Decoder(_Node, strict=False).decode
_decode_edge = msgspec.json.Decoder(_Edge, strict=False).decode


def _each(items: list[msgspec.Raw], decode: Callable[[msgspec.Raw], _Item], where: str) -> Iterator[_Item]:
    for i, item in enumerate(items):
        try:
            yield decode(item)
        except msgspec.MsgspecError as exc:
            raise GraphError(f"JGF: graph.{where}[{i}]: {exc}") from None


def read(text: str | bytes, subsystem: str = DOMINANT) -> Graph:
    """The graph of a JGF document (an object with `graph`), as the tree of a subsystem.

    It includes all hierarchies of the document. Raises GraphError with the place of the error.
    """
    try:
        body = _decode(text).graph
        graph = _graph(_each(body.nodes, _decode_node, "nodes"), _each(body.edges, _decode_edge, "edges"), True)
        if subsystem not in (graph.hierarchies or (DOMINANT,)):
            raise GraphError(f"the graph has no subsystem {subsystem}")
        return graph.hierarchy(subsystem)
    except msgspec.MsgspecError as exc:
        raise GraphError(f"JGF: {exc}") from None
    except UnicodeDecodeError as exc:
        raise GraphError(f"JGF: not UTF-8: {exc}") from None
    except RecursionError:
        raise GraphError("JGF: nested too deeply") from None


def from_object(obj: Any) -> Graph:
    """The containment hierarchy of an already decoded JGF object. Raises GraphError."""
    try:
        body = msgspec.convert(obj, _Document, strict=False).graph
    except msgspec.MsgspecError as exc:
        raise GraphError(f"JGF: {exc}") from None
    return _graph(body.nodes, body.edges, False)


def is_complete(obj: Mapping[str, Any]) -> bool:
    """Whether a decoded JGF object claims to be complete; a shorthand may omit vertices and then says so."""
    graph = obj.get("graph")
    metadata = graph.get("metadata") if isinstance(graph, Mapping) else None
    # Headrace once marked incomplete documents in the graph's metadata instead of by the writer's name.
    left_out = isinstance(metadata, Mapping) and metadata.get("complete") is False
    return obj.get("writer") != SHORTHAND and not left_out


class Vertex(msgspec.Struct):
    """A vertex that a JGF document names: its path, and the document's values for its use."""

    path: str
    type: str
    uniq: int
    rank: int
    size: int
    exclusive: bool


class Part(NamedTuple):
    """The part of a graph in a JGF document: the subsystem of its edges, and its vertices in order."""

    subsystem: str
    vertices: list[Vertex]


def part(text: str | bytes, known: str = DOMINANT) -> Part:
    """The part of a graph that a JGF document describes, in the `known` hierarchy if it has no edges.

    Vertices without a path in that hierarchy are left out if they have one elsewhere. Raises GraphError.
    """
    try:
        body = _decode(text).graph
        nodes = list(_each(body.nodes, _decode_node, "nodes"))
        edge = next(_each(body.edges[:1], _decode_edge, "edges"), None)
    except msgspec.MsgspecError as exc:
        raise GraphError(f"JGF: {exc}") from None
    subsystem = known if edge is None else _edge_kind(edge)[0]
    found = []
    for node in nodes:
        meta = node.metadata
        path = (meta.paths or {}).get(subsystem)
        if path is None and meta.paths and subsystem != DOMINANT:
            continue
        if path is None:
            raise GraphError(f"JGF vertex {node.id}: has no {subsystem} path")
        found.append(Vertex(path, meta.type, _uniq(node), meta.rank, meta.size, meta.exclusive))
    return Part(subsystem, found)


def _uniq(node: _Node) -> int:
    if node.metadata.uniq_id is not None:
        return node.metadata.uniq_id
    try:
        return int(node.id)
    except ValueError:
        return -1


def _number(meta: _Metadata, uniq: int, key: str) -> int:
    """The id of a vertex without one: the number at the end of a node's name, else the vertex number."""
    digits = _DIGITS.search(meta.name) if meta.name and meta.type == "node" else None
    number = int(digits.group(1)) if digits else uniq
    if number >= 2**63:
        raise GraphError(f"JGF vertex {key}: the number in its name {meta.name!r} does not fit 63 bits")
    return number


def _add(graph: Graph, node: _Node, key: str) -> int:
    """Add a vertex; returns its number in the graph. Raises GraphError."""
    meta = node.metadata
    uniq = _uniq(node)
    name, basename, number = meta.name, meta.basename, meta.id
    if number is None:
        number = _number(meta, uniq, key)
    if basename is None:
        basename = meta.type
    props = meta.properties
    if isinstance(props, list):
        props = dict.fromkeys(props, "")
    try:
        v = graph.add(
            meta.type,
            basename=meta.type if basename == meta.type else basename,
            id=number,
            size=meta.size,
            rank=meta.rank,
            unit=meta.unit,
            name=name,
            uniq=uniq if uniq >= 0 else None,
            properties=props,
        )
    except GraphError as exc:
        raise GraphError(f"JGF vertex {key}: {exc}") from None
    if meta.status:
        graph.up[v] = 0
    if meta.paths:
        path = meta.paths.get(DOMINANT)
        if path is None or len(meta.paths) > 1:
            graph.elsewhere[v] = {name: path for name, path in meta.paths.items() if name != DOMINANT}
        if path is not None and not path.endswith(name or f"/{basename}{number}"):
            graph.paths[v] = path
    return v


def _graph(nodes: Iterable[_Node], edges: Iterable[_Edge], whole: bool) -> Graph:
    """The graph of vertices and edges, with all hierarchies (`whole`) or only containment."""
    graph = Graph()
    index: dict[str, int] = {}
    for node in nodes:
        key = str(node.id)
        if key in index:
            raise GraphError(f"JGF vertex {key}: appears twice")
        index[key] = _add(graph, node, key)
    elsewhere: set[int] = set()
    for edge in edges:
        try:
            source, target = index[str(edge.source)], index[str(edge.target)]
        except KeyError as exc:
            raise GraphError(f"JGF edge {edge.source} to {edge.target}: there is no vertex {exc}") from None
        subsystem, relation = _edge_kind(edge)
        if subsystem == DOMINANT:
            if _leads_down(subsystem, relation):
                graph.place(target, source)
        elif whole and _leads_down(subsystem, relation):
            graph.hierarchy(subsystem).place(target, source)
        else:
            graph.edges.append((subsystem, relation, source, target))
            elsewhere.update((source, target))
    if not whole and elsewhere:
        # Vertices that only exist in other hierarchies, such as a power panel, are left out.
        outside = [v for v in elsewhere if graph.parent[v] < 0 and not graph.children[v]]
        graph = _without(graph, outside) if outside and len(outside) < len(graph) else graph
    graph.finish()
    if graph.hierarchies or graph.more_parents:
        _set_paths(graph)
    return graph


def _set_paths(graph: Graph) -> None:
    """Store the paths of a document that differ from the names or do not lead through first parents."""
    for v in list(graph.elsewhere):
        given = graph.elsewhere[v]
        for subsystem in [name for name in given if name in graph.hierarchies]:
            tree, path = graph.hierarchies[subsystem], given.pop(subsystem)
            if not path.endswith(f"/{graph.name(v)}") or (v in tree.more_parents and path != tree.path(v)):
                tree.set_path(v, path)
        if not given:
            del graph.elsewhere[v]


def _edge_kind(edge: _Edge) -> tuple[str, str]:
    meta = edge.metadata
    if meta is None:
        return DOMINANT, ""
    if meta.name:
        return next(iter(meta.name.items()))
    return meta.subsystem or DOMINANT, meta.relation or ""


def _leads_down(subsystem: str, relation: str) -> bool:
    """Whether an edge of a hierarchy leads down from a vertex.

    An edge without a relation leads down. An edge that leads up repeats a relation that another edge states from above.
    """
    return relation in ("", "contains", _DOWN[subsystem]) if subsystem in _DOWN else relation != "in"


def _without(graph: Graph, outside: Iterable[int]) -> Graph:
    """A copy of an unfinished graph without the vertices `outside` its hierarchy."""
    gone = set(outside)
    kept = Graph()
    kept.subsystem = graph.subsystem
    place: dict[int, int] = {}
    for v in graph.vertices():
        if v in gone:
            continue
        place[v] = kept.add_copy(graph, v, graph.uniq[v])
    for v, at in place.items():
        for child in graph.children[v]:
            kept.place(place[child], at)
    kept.edges = [
        (subsystem, relation, place[source], place[target])
        for subsystem, relation, source, target in graph.edges
        if source in place and target in place
    ]
    return kept
