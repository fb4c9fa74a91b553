"""The cores and GPUs below a vertex are told by id, whatever lies between."""

from __future__ import annotations

from headrace.sched.graph import Graph, Scheduler
from headrace.sched.graph.inside import execution_ids


def cluster() -> Graph:
    """Two nodes of two sockets; cores are numbered across sockets with a gap, and a GPU hangs at the node itself."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n)
        for s in range(2):
            socket = graph.add("socket", node, id=s)
            for c in (0, 1, 5):
                graph.add("core", socket, id=s * 8 + c)
        graph.add("gpu", node, id=3)
    return graph.finish()


def test_ids_are_those_of_everything_below() -> None:
    graph = cluster()
    node = graph.kinds(graph.root)["node"][0]
    assert execution_ids(graph, node) == {"core": 0b10001100100011, "gpu": 0b1000}
    assert execution_ids(graph, graph.kinds(node)["socket"][1]) == {"core": 0b10001100000000}


def test_a_single_core_is_its_own_id() -> None:
    graph = cluster()
    core = next(v for v, kind in enumerate(graph.type) if kind == "core" and graph.id[v] == 5)
    assert execution_ids(graph, core) == {"core": 1 << 5}


def test_prepare_works_them_out_once_for_equal_nodes() -> None:
    graph = cluster()
    Scheduler(graph, "low").prepare()
    first, second = graph.kinds(graph.root)["node"]
    assert graph.inside[first] is graph.inside[second]
