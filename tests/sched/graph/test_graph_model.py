"""The graph: what it refuses, and that its counts and walks are those of the tree that was put in."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import Graph
from headrace.sched.graph.model import MAX_BITS, MAX_DEPTH, MAX_SIZE, GraphError

# The parent of vertex i + 1 is one of the vertices before it: any list of these is a tree.
dice = st.lists(st.integers(0, 10**6), max_size=25)
trees = dice.map(lambda thrown: [0, *(one % (i + 1) for i, one in enumerate(thrown))])
TYPES = ("node", "socket", "memory")


def grown(parents: list[int], sizes: random.Random) -> Graph:
    """A tree by the parents of its vertices 1, 2, …, with random types and sizes; the first is the root."""
    graph = Graph()
    graph.add("cluster", id=0)
    for v, parent in enumerate(parents[1:], 1):
        graph.add(sizes.choice(TYPES), parent, id=v, size=sizes.choice((0, 1, 5)))
    return graph.finish()


def totals(graph: Graph) -> list[dict[str, int]]:
    """What is counted at each vertex; a type of which there is nothing is as good as none."""
    return [{kind: amount for kind, amount in graph.totals[v].items() if amount} for v in graph.vertices()]


def below(graph: Graph, v: int) -> list[int]:
    return [v, *(u for kid in graph.children[v] for u in below(graph, kid))]


@given(parents=trees, seed=st.integers(0, 1000))
def test_walks_paths_and_counts_are_those_of_the_tree(parents: list[int], seed: int) -> None:
    graph = grown(parents, random.Random(seed))
    assert (graph.root, graph.count, list(graph.vertices())) == (0, len(parents), list(range(len(parents))))
    for v in graph.vertices():
        assert graph.preorder(v) == below(graph, v)
        sums: Counter[str] = Counter()
        for u in below(graph, v):
            sums[graph.type[u]] += graph.size[u]
        assert totals(graph)[v] == {kind: amount for kind, amount in sums.items() if amount}
        above = list(graph.ancestors(v))
        assert graph.depth(v) == len(above)
        assert all(v in graph.preorder(u) for u in above)
        assert graph.path(v) == "/" + "/".join(graph.name(u) for u in [*reversed(above), v])
        assert graph.find_path(graph.path(v)) == [v]
        assert graph.children[v] == sorted(graph.children[v], key=graph.position.__getitem__)


@given(parents=trees, seed=st.integers(0, 1000))
def test_removed_rows_are_taken_by_the_next_vertices(parents: list[int], seed: int) -> None:
    graph = grown(parents, random.Random(seed))
    gone = graph.preorder(len(parents) - 1)
    parent = graph.parent[gone[0]]
    if parent < 0:
        return
    graph.adjust(gone[0], -1)
    graph.children[parent].remove(gone[0])
    graph.vacate(gone)
    rows, counts = len(graph), totals(graph)
    graph.recount()
    assert totals(graph) == counts
    again = graph.add("node", parent, id=7, rank=3)
    assert again in gone
    assert (len(graph), graph.name(again), graph.path(again)) == (rows, "node7", f"{graph.path(parent)}/node7")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "node", "size": -1}, "node-1: size -1 is not between 0 and 2^62"),
        ({"type": "node", "size": MAX_SIZE + 1}, "is not between"),
        ({"type": ""}, "vertex: has no type"),
        ({"type": "node", "id": -2}, "ids and ranks must be -1"),
        ({"type": "node", "rank": -2}, "ids and ranks must be -1"),
        ({"type": "node", "id": 2**63}, "fit 63 bits"),
        ({"type": "core"}, "core: has no number; cores and GPUs need one"),
        ({"type": "node", "name": "a/b"}, "'a/b': a name must not contain '/'"),
        ({"type": "gpu", "id": MAX_BITS}, f"must be below {MAX_BITS}"),
        ({"type": "node", "rank": MAX_BITS}, f"must be below {MAX_BITS}"),
    ],
)
def test_vertices_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message.replace("(", r"\(").replace("^", r"\^")):
        Graph().add(**given)


def test_a_graph_has_one_root() -> None:
    with pytest.raises(GraphError, match="the graph has no vertices"):
        Graph().finish()
    graph = Graph()
    graph.add("cluster", id=0)
    graph.add("cluster", id=1)
    with pytest.raises(GraphError, match="cluster1: not contained in cluster0"):
        graph.finish()


def test_a_circle_is_no_tree() -> None:
    graph = Graph()
    one, other = graph.add("rack", id=0), graph.add("rack", id=1)
    graph.place(one, other)
    graph.place(other, one)
    with pytest.raises(GraphError, match="has no root: every vertex is contained in another"):
        graph.finish()


def test_a_circle_below_the_root_is_found() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    one, other = graph.add("rack", root, id=0), graph.add("rack", id=1)
    graph.place(other, one)
    graph.place(one, other)
    with pytest.raises(GraphError, match="is contained in itself"):
        graph.finish()


def test_levels_are_bounded() -> None:
    for levels, refused in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True)):
        graph = Graph()
        v = graph.add("cluster", id=0)
        for level in range(levels):
            v = graph.add("box", v, id=level)
        if refused:
            with pytest.raises(GraphError, match=f"more than {MAX_DEPTH} levels"):
                graph.finish()
        else:
            assert graph.finish().depth(v) == MAX_DEPTH


def test_a_vertex_with_two_parents_counts_once_above_both() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    racks = [graph.add("rack", root, id=n) for n in range(2)]
    disk = graph.add("ssd", racks[0], id=0, size=8)
    graph.place(disk, racks[1])
    with pytest.raises(GraphError, match="ssd0: contained twice in rack1"):
        graph.place(disk, racks[1])
    graph.finish()
    assert not graph.plain
    assert graph.parents(disk) == racks
    assert [graph.totals[v].get("ssd") for v in (root, *racks)] == [8, 8, 8]
    assert graph.preorder(root).count(disk) == 1
    assert list(graph.ancestors(disk)) == [*racks, root]
    assert graph.find_path("/cluster0/rack1/ssd0") == graph.find_path("/cluster0/rack0/ssd0") == [disk]


def test_hierarchies_share_vertices_and_differ_in_what_contains_what() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    nodes = [graph.add("node", root, id=n) for n in range(2)]
    power = graph.hierarchy("power")
    unit = graph.add("pdu", id=0)
    power.place(nodes[1], unit)
    graph.finish()
    assert graph.hierarchy("power") is power
    assert (power.root, power.preorder(unit)) == (unit, [unit, nodes[1]])
    assert [power.has(v) for v in (root, *nodes, unit)] == [False, False, True, True]
    assert graph.find_path("/pdu0/node1") == graph.find_path("/cluster0/node1") == [nodes[1]]


def test_a_hierarchy_without_vertices_is_dropped_and_a_vertex_without_a_hierarchy_refused() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    graph.add("node", root, id=0)
    graph.hierarchy("network")
    assert graph.finish().plain
    power = graph.hierarchy("power")
    unit = graph.add("pdu", id=0)
    power.place(root, unit)
    graph.add("stray", id=0)
    with pytest.raises(GraphError, match="stray0: is in no hierarchy of the graph"):
        graph.finish()


def test_names_and_paths_that_follow_no_rule_are_kept() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    node = graph.add("node", root, id=3, name="login")
    core = graph.add("core", node, id=0)
    graph.finish()
    assert (graph.name(node), graph.path(core)) == ("login", "/cluster0/login/core0")
    graph.set_path(node, "/elsewhere/login")
    assert (graph.path(node), graph.path(core)) == ("/elsewhere/login", "/cluster0/login/core0")


def test_a_copy_has_what_the_vertex_had_but_its_place() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    source = graph.add("node", root, id=4, rank=2, size=3, unit="GB", name="fat", properties={"a": "b"})
    graph.up[source] = 0
    other = Graph()
    v = other.add_copy(graph, source, uniq=99)
    kept = (other.type[v], other.id[v], other.rank[v], other.size[v], other.unit[v], other.name(v), other.properties[v])
    assert kept == ("node", 4, 2, 3, "GB", "fat", {"a": "b"})
    assert (other.up[v], other.uniq[v], other.parent[v]) == (0, 99, -1)
