"""Reading JGF: what is left out follows from the rest, and what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.formats import jgf
from headrace.sched.graph.model import GraphError


def document(nodes: list[dict[str, Any]], edges: list[tuple[str, str]]) -> str:
    return json.dumps({"graph": {"nodes": nodes, "edges": [{"source": s, "target": t} for s, t in edges]}})


def vertex(key: str, kind: str = "node", path: str = "", **more: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"type": kind, **more}
    if path:
        meta["paths"] = {"containment": path}
    return {"id": key, "metadata": meta}


@pytest.mark.parametrize(
    ("given", "name", "basename", "id"),
    [
        ({"type": "node", "name": "fluke82"}, "fluke82", "node", 82),
        ({"type": "node", "name": "fluke"}, "fluke", "node", 7),
        ({"type": "node"}, "node7", "node", 7),
        ({"type": "ssd", "name": "fast3"}, "fast3", "ssd", 7),
        ({"type": "ssd", "uniq_id": 9}, "ssd9", "ssd", 9),
        ({"type": "ssd", "basename": "disk", "id": 4}, "disk4", "disk", 4),
    ],
)
def test_what_a_vertex_leaves_out_follows_from_the_rest(
    given: dict[str, Any], name: str, basename: str, id: int
) -> None:
    nodes = [vertex("0", "cluster", "/c0"), {"id": "7", "metadata": {**given, "paths": {"containment": "/c0/x3"}}}]
    graph = jgf.read(document(nodes, [("0", "7")]))
    assert (graph.name(1), graph.basename[1], graph.id[1]) == (name, basename, id)


@pytest.mark.parametrize(
    ("more", "complete"),
    [
        ({}, True),
        ({"writer": "fluxion:jgf_shorthand"}, False),
        ({"graph": {"metadata": {"version": 1, "complete": False}}}, False),
        ({"graph": {"metadata": {"version": 1, "complete": True}}}, True),
    ],
)
def test_a_document_says_whether_something_is_left_out(more: dict[str, Any], complete: bool) -> None:
    assert jgf.is_complete({"graph": {"nodes": []}, **more}) is complete


def test_given_name_stays_where_it_differs_from_basename_and_id() -> None:
    nodes = [vertex("0", "cluster", "/c0"), vertex("1", "core", "/c0/core0", name="core0", basename="core", id=100)]
    graph = jgf.read(document(nodes, [("0", "1")]))
    assert graph.name(1) == "core0"
    assert graph.id[1] == 100


def test_status_and_properties_are_read() -> None:
    nodes = [vertex("0", "cluster", "/c0"), vertex("1", "ssd", "/c0/ssd0", status=1, properties={"a": "b"}, size=7)]
    graph = jgf.read(document(nodes, [("0", "1")]))
    assert not graph.up[1]
    assert graph.properties[1] == {"a": "b"}
    assert graph.totals[0] == {"cluster": 1, "ssd": 7}


def test_edges_of_other_subsystems_are_kept_apart() -> None:
    nodes = [vertex("0", "cluster", "/c0"), vertex("1", "pdu", "/c0/pdu0"), vertex("2", "node", "/c0/node0")]
    obj = json.loads(document(nodes, [("0", "1"), ("0", "2")]))
    obj["graph"]["edges"].append({"source": "1", "target": "2", "metadata": {"name": {"power": "supplies_to"}}})
    graph = jgf.from_object(obj)
    assert graph.edges == [("power", "supplies_to", 1, 2)]
    assert graph.children[1] == []


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ([], [], "no vertices"),
        ([vertex("0"), vertex("0")], [], "appears twice"),
        ([vertex("0")], [("0", "9")], "no vertex '9'"),
        ([vertex("0"), vertex("1")], [], "not contained"),
        ([vertex("0"), vertex("1")], [("0", "1"), ("1", "0")], "no root"),
        ([vertex("0"), vertex("1"), vertex("2")], [("1", "2"), ("2", "1")], "not contained"),
        ([vertex("0"), vertex("1"), vertex("2")], [("0", "1"), ("1", "2"), ("2", "1")], "a cycle"),
        ([vertex("0", size=-1)], [], "size -1"),
        ([vertex("0", size=2**63)], [], "size"),
        ([vertex("0", rank=2**40)], [], "must be below"),
        ([vertex("0", "core", id=2**40)], [], "must be below"),
        ([{"id": "0", "metadata": {}}], [], "type"),
        ([vertex("0", "node", name="node99999999999999999999")], [], "does not fit"),
        ([vertex("a", "core")], [], "core: has no number"),
        ([vertex("0", "gpu", id=-1)], [], "gpu: has no number"),
        ([vertex("0", id=-2)], [], "must be -1"),
        ([vertex("0", id=2**63)], [], "must be -1"),
        ([vertex("0", rank=-2)], [], "must be -1"),
        ([vertex("0", "", name="x")], [], "x: has no type"),
        ([vertex("0", name="a/b")], [], "must not contain"),
        ([vertex("0"), vertex("1")], [("0", "1"), ("0", "1")], "contained twice"),
        ([vertex(str(i)) for i in range(300)], [(str(i), str(i + 1)) for i in range(299)], "more than 200 levels"),
    ],
)
def test_bad_graph_is_refused_with_the_reason(
    nodes: list[dict[str, Any]], edges: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        jgf.read(document(nodes, edges))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["graph", "nodes", "id"]), inner),
    max_leaves=8,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_hostile_bytes_are_an_error_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(GraphError):
        jgf.read(raw)


def test_a_field_of_the_wrong_kind_is_named_with_its_vertex() -> None:
    nodes = '{"id": "0", "metadata": {"type": "cluster"}}, {"id": "1", "metadata": {"type": "core", "rank": []}}'
    with pytest.raises(GraphError, match=r"graph\.nodes\[1\]: .*\$\.metadata\.rank"):
        jgf.read(f'{{"graph": {{"nodes": [{nodes}], "edges": []}}}}')
