"""The whole graph as GraphML, Graphviz or JGF, for people and other tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.sax.saxutils import escape, quoteattr

from headrace.sched.graph.formats.writers import vertex_metadata
from headrace.sched.graph.model import DOMINANT, Graph


def graphml(graph: Graph) -> str:
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(
            f'  <key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>'
            for name, kind in (("type", "string"), ("name", "string"), ("path", "string"), ("size", "long"))
        ),
        '  <graph id="G" edgedefault="directed">',
    ]
    for v in graph.vertices():
        data = {"type": graph.type[v], "name": graph.name(v), "path": _path(graph, v), "size": str(graph.size[v])}
        inner = "".join(f'<data key="{key}">{escape(value)}</data>' for key, value in data.items())
        lines.append(f'    <node id="n{graph.uniq[v]}">{inner}</node>')
    for i, (source, target) in enumerate(_edges(graph)):
        lines.append(f'    <edge id="e{i}" source="n{source}" target="n{target}"/>')
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])


def _path(graph: Graph, v: int) -> str:
    """The path of a vertex in the graph's own hierarchy, or else in another hierarchy that contains it."""
    return next((tree.path(v) for tree in (graph, *graph.others) if tree.has(v)), graph.path(v))


def dot(graph: Graph) -> str:
    lines = ["digraph G {"]
    lines += [f"  {graph.uniq[v]} [label={quoteattr(graph.name(v))}];" for v in graph.vertices()]
    lines += [f"  {source} -> {target};" for source, target in _edges(graph)]
    return "\n".join([*lines, "}", ""])


def jgf(graph: Graph) -> str:
    nodes = []
    for v in graph.vertices():
        meta = vertex_metadata(graph, v)
        if not graph.up[v]:
            meta["status"] = 1
        nodes.append({"id": str(graph.uniq[v]), "metadata": meta})
    edges = []
    for tree in graph.hierarchies.values() or (graph,):
        kind = {} if tree.subsystem == DOMINANT else {"metadata": {"subsystem": tree.subsystem}}
        edges += [{"source": str(source), "target": str(target), **kind} for source, target in _edges_of(tree)]
    return json.dumps({"graph": {"nodes": nodes, "edges": edges}}) + "\n"


def _edges(graph: Graph) -> list[tuple[int, int]]:
    return [edge for tree in graph.hierarchies.values() or (graph,) for edge in _edges_of(tree)]


def _edges_of(tree: Graph) -> list[tuple[int, int]]:
    return [(tree.uniq[parent], tree.uniq[v]) for v in tree.vertices() for parent in tree.parents(v)]


EXPORTS: dict[str, Callable[[Graph], str]] = {"graphml": graphml, "dot": dot, "jgf": jgf}
