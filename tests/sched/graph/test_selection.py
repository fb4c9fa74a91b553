"""Selections: what was picked, with all that it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import Graph
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.selection import Run, Selection, from_vertices, select

NODES, SOCKETS, CORES = 3, 2, 3


def cluster() -> Graph:
    """A cluster of nodes of sockets of cores."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(NODES):
        node = graph.add("node", root, id=n, rank=n)
        for s in range(SOCKETS):
            socket = graph.add("socket", node, id=s)
            for c in range(CORES):
                graph.add("core", socket, id=s * CORES + c)
    return graph.finish()


GRAPH = cluster()
ALL_CORES = [v for v in GRAPH.vertices() if GRAPH.type[v] == "core"]
some_cores = st.sets(st.sampled_from(ALL_CORES), min_size=1).map(sorted)


def of_type(kind: str) -> list[int]:
    return [v for v in GRAPH.vertices() if GRAPH.type[v] == kind]


def vertices(selection: Selection) -> set[int]:
    return {item.vertex for item in selection.items}


def pick(v: int, whole: bool = False, inner: tuple[Pick, ...] = ()) -> Pick:
    return Pick(v, GRAPH.size[v], whole or not GRAPH.children[v], whole, inner)


def as_runs(cores: list[int]) -> dict[int, Run]:
    """The cores of each socket as a run."""
    runs: dict[int, Run] = {}
    for h in dict.fromkeys(GRAPH.parent[v] for v in cores):
        own = [v for v in cores if GRAPH.parent[v] == h]
        places = sum(1 << GRAPH.position[v] for v in own)
        runs[h] = Run(own, places, {"core": sum(1 << GRAPH.id[v] for v in own)})
    return runs


@given(some_cores, st.randoms(use_true_random=False))
def test_picks_come_with_the_vertices_above_them_in_the_order_of_the_graph(cores: list[int], rng: object) -> None:
    thrown = list(cores)
    rng.shuffle(thrown)  # type: ignore[attr-defined]
    selection = select(GRAPH, [pick(v) for v in thrown])
    above = {up for v in cores for up in GRAPH.ancestors(v)}
    assert vertices(selection) == above | set(cores)
    assert {item.vertex for item in selection.items if item.path} == above
    assert all(item.exclusive == (item.vertex in cores) for item in selection.items)
    # Children come before their parents, and siblings in the graph's order.
    order = [item.vertex for item in selection.items]
    place = {v: n for n, v in enumerate(order)}
    assert all(place[v] < place[GRAPH.parent[v]] for v in order if GRAPH.parent[v] >= 0)
    assert [v for v in order if v in cores] == cores
    assert selection.depths == [GRAPH.depth(v) for v in order]
    for v in GRAPH.vertices():
        assert selection.covers(v) == (v in above | set(cores))


@given(some_cores)
def test_runs_are_the_same_selection_as_the_picks_one_by_one(cores: list[int]) -> None:
    one_by_one = select(GRAPH, [pick(v, whole=True) for v in cores])
    runs = select(GRAPH, [], runs=as_runs(cores))
    assert runs.items == one_by_one.items
    assert (runs.marks, runs.below, runs.order()) == (one_by_one.marks, one_by_one.below, one_by_one.order())
    assert {item.vertex for item in runs.inner_order()} == vertices(one_by_one) - set(cores)


@given(some_cores)
def test_a_policy_that_gives_nodes_whole_gives_all_in_them(cores: list[int]) -> None:
    selection = select(GRAPH, [pick(v) for v in cores], whole=frozenset({"node"}))
    nodes = {up for v in cores for up in GRAPH.ancestors(v) if GRAPH.type[up] == "node"}
    assert vertices(selection) == {GRAPH.root, *(u for node in nodes for u in GRAPH.preorder(node))}
    assert {mark.vertex for mark in selection.marks.values() if mark.whole} == nodes
    assert all(item.exclusive for item in selection.items if item.vertex != GRAPH.root)


def test_a_whole_pick_stands_for_what_is_below_until_it_is_shortened() -> None:
    node, socket = of_type("node")[1], of_type("socket")[0]
    selection = select(GRAPH, [pick(node, whole=True), pick(socket, whole=True)])
    assert vertices(selection) == {GRAPH.root, GRAPH.parent[socket], *GRAPH.preorder(node), *GRAPH.preorder(socket)}
    assert selection.marks.keys() == {GRAPH.root, GRAPH.parent[socket], node, socket}
    short = selection.shortened()
    assert vertices(short) == selection.marks.keys()
    assert not any(mark.whole for mark in short.marks.values())


def test_contents_of_whole_vertices_may_be_left_out_by_type() -> None:
    node = of_type("node")[0]
    selection = select(GRAPH, [pick(node, whole=True)])
    assert selection.without_inside(frozenset({"node"})) is selection
    assert vertices(selection.without_inside(frozenset())) == {GRAPH.root, node}


def test_picks_inside_picks_are_selected_with_them() -> None:
    socket = of_type("socket")[2]
    cores = GRAPH.children[socket][1:]
    selection = select(GRAPH, [pick(socket, inner=tuple(pick(v) for v in cores))])
    assert vertices(selection) == {*cores, socket, *GRAPH.ancestors(socket)}
    assert not selection.marks[socket].path


@given(some_cores)
def test_the_items_of_a_selection_make_it_again(cores: list[int]) -> None:
    selection = select(GRAPH, [pick(v) for v in cores])
    again = from_vertices(GRAPH, [(item.vertex, item.needs, item.exclusive) for item in selection.items])
    assert [item[:3] for item in again.items] == [item[:3] for item in selection.items]


def test_a_vertex_with_two_parents_is_reached_as_the_match_did() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    racks = [graph.add("rack", root, id=n) for n in range(2)]
    disk = graph.add("ssd", racks[0], id=0)
    graph.place(disk, racks[1])
    graph.finish()
    disk_alone = [Pick(disk, 1, True, False, ())]
    assert vertices(select(graph, disk_alone)) == {root, racks[0], disk}
    other = select(graph, disk_alone, reached_from={disk: racks[1]})
    assert (vertices(other), other.parent(disk)) == ({root, racks[1], disk}, racks[1])
    both = select(graph, [Pick(rack, 1, True, True, ()) for rack in racks])
    assert [item.vertex for item in both.items].count(disk) == 1
    assert both.covers(disk)
