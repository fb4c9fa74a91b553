"""Exported graphs hold every vertex and edge, and JGF reads back as the same graph."""

from __future__ import annotations

from xml.etree import ElementTree

from headrace.sched.graph import Graph
from headrace.sched.graph.formats import export, jgf


def small() -> Graph:
    graph = Graph()
    root = graph.add("cluster", basename='a"b<', id=0)
    node = graph.add("node", root, id=3, rank=1, properties={"p": "1"})
    graph.add("memory", node, id=0, size=8, unit="GB")
    return graph.finish()


def test_jgf_reads_back_as_the_same_graph() -> None:
    before = small()
    after = jgf.read(export.jgf(before))
    for column in ("type", "basename", "id", "size", "rank", "parent", "uniq", "unit", "properties"):
        assert getattr(after, column) == getattr(before, column), column
    assert after.totals == before.totals


def test_graphml_is_well_formed_and_complete() -> None:
    tree = ElementTree.fromstring(export.graphml(small()))
    tags = [element.tag.rsplit("}", 1)[-1] for element in tree.iter()]
    assert (tags.count("node"), tags.count("edge")) == (3, 2)


def test_dot_has_a_line_for_every_edge() -> None:
    assert export.dot(small()).count("->") == 2
