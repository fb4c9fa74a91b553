"""Selections from documents: JGF or R that names part of a graph becomes a selection of that graph.

This restores running jobs after a restart, enters allocations decided elsewhere, and releases part of a job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.sched.graph.constraints import HOSTS
from headrace.sched.graph.formats import jgf, rv1
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.selection import Selection, from_vertices, select

FORMATS = ("jgf", "jgf_shorthand", "rv1exec")


def read(graph: Graph, form: str, text: str) -> Selection:
    """The vertices of `graph` that a document names, selected in the document's hierarchy.

    Their exclusivity is that of the document. In shorthand, all vertices below exclusive ones are included.

    Raises GraphError for a vertex that the graph lacks, or for a document without vertices.
    """
    if form not in FORMATS:
        raise GraphError(f"format {form!r}: must be one of {', '.join(FORMATS)}")
    if form == "rv1exec":
        selection = _from_rv1(graph, text)
    else:
        tree, taken = _named(graph, text)
        reached_from = _reached_from(tree, taken)
        selection = (
            from_vertices(tree, taken, reached_from) if form == "jgf" else _with_all_below(tree, taken, reached_from)
        )
    if not selection.marks:
        raise GraphError(f"{form}: names no vertices")
    return selection


def freed(graph: Graph, form: str, text: str) -> Selection:
    """The resources that a job must release.

    For JGF, these are the vertices that it names, exclusive or not. For R, only the ranks are read, and each of these
    nodes is released with all its contents, even those that R cannot list (such as sockets).

    Raises GraphError for a vertex that the graph lacks.
    """
    if form != "rv1exec":
        named = read(graph, form, text)
        picks = [Pick(v, graph.size[v], True, mark.whole, ()) for v, mark in named.marks.items() if not mark.path]
        return select(named.graph, picks, reached_from=named.reached_from)
    ranks = {entry.rank for entry in rv1.parse(_decoded(text)).entries}
    nodes = {graph.rank[v]: v for v in graph.vertices() if graph.type[v] in HOSTS and graph.has(v)}
    for rank in sorted(ranks):
        if rank not in nodes:
            raise GraphError(f"R: rank {rank}: no such node in the graph")
    return select(graph, [Pick(nodes[rank], 1, True, True, ()) for rank in ranks])


def _reached_from(tree: Graph, taken: list[tuple[int, int, bool]]) -> dict[int, int]:
    """For vertices with several parents, the first named parent, if it is not the first parent."""
    if not tree.more_parents:
        return {}
    named = {v for v, _, _ in taken}
    chosen = {v: next((up for up in tree.parents(v) if up in named), tree.parent[v]) for v in tree.more_parents}
    return {v: up for v, up in chosen.items() if up != tree.parent[v]}


def _with_all_below(graph: Graph, taken: list[tuple[int, int, bool]], reached_from: dict[int, int]) -> Selection:
    whole = {v for v, _, exclusive in taken if exclusive}
    return select(
        graph,
        [
            Pick(v, needs, exclusive, exclusive, ())
            for v, needs, exclusive in taken
            if whole.isdisjoint(graph.ancestors(v))
        ],
        reached_from=reached_from,
    )


def _named(graph: Graph, text: str) -> tuple[Graph, list[tuple[int, int, bool]]]:
    """The hierarchy of a document, and the vertices that it names as (vertex, units, exclusive)."""
    taken = []
    seen: set[int] = set()
    part = jgf.part(text, graph.subsystem)
    tree = graph.hierarchies.get(part.subsystem, graph)
    for vertex in part.vertices:
        matches = [v for v in graph.find_path(vertex.path) if graph.type[v] == vertex.type and tree.has(v)]
        if vertex.rank >= 0:
            matches = [v for v in matches if graph.rank[v] == vertex.rank]
        if not matches:
            of_rank = f" of rank {vertex.rank}" if vertex.rank >= 0 else ""
            raise GraphError(f"{vertex.path}: no such {vertex.type}{of_rank} in the graph")
        v = matches[0]
        if not 1 <= vertex.size <= graph.size[v]:
            raise GraphError(f"{vertex.path}: size {vertex.size} is not between 1 and what there is, {graph.size[v]}")
        if v in seen:
            raise GraphError(f"{vertex.path}: named twice")
        seen.add(v)
        taken.append((v, vertex.size, vertex.exclusive))
    return tree, taken


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as exc:
        raise GraphError(f"R: {exc}") from None


def _from_rv1(graph: Graph, text: str) -> Selection:
    nodes = {(graph.rank[v], graph.name(v)): v for v, kind in enumerate(graph.type) if kind in HOSTS}
    taken = []
    seen: set[int] = set()
    full: dict[int, int] = {}
    for entry in rv1.parse(_decoded(text)).entries:
        node = nodes.get((entry.rank, entry.host))
        if node is None:
            raise GraphError(f"rank {entry.rank}, host {entry.host}: no such node in the graph")
        inside = {(graph.type[c], graph.id[c]): c for c in graph.preorder(node)[1:]}
        for kind, ids in entry.children.items():
            for i in ids:
                v = inside.get((kind, i))
                if v is None:
                    raise GraphError(f"couldn't find vertex in graph for {kind}{i}")
                if v in seen:
                    raise GraphError(f"rank {entry.rank}: {kind}{i} named twice")
                seen.add(v)
                taken.append((v, graph.size[v], True))
                full[node] = full.get(node, 0) + 1
    for node, count in full.items():
        if count == len(graph.preorder(node)) - 1:
            taken.append((node, graph.size[node], True))
    return from_vertices(graph, taken)
