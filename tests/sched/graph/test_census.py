"""What nodes have is counted as asking them one by one would count it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, census, parse_jobspec

KINDS = ("core", "gpu")


def machine() -> Graph:
    """Six nodes of two sizes."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(6):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(2 if n % 2 else 4):
            graph.add("core", node, id=c, rank=n)
        graph.add("gpu", node, id=0, rank=n)
    return graph.finish()


def request(nodes: int, cores: int, whole: bool, duration: int) -> Any:
    inner = {"type": "core", "count": cores}
    slot = {"type": "slot", "count": 1, "label": "t", "with": [inner]}
    node = {"type": "node", "count": nodes, "exclusive": whole, "with": [slot]}
    return parse_jobspec({"resources": [node], "attributes": {"system": {"duration": duration}}})


jobs = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.sampled_from([5, 10, 20]), st.booleans()),
    max_size=8,
)


@given(jobs=jobs, now=st.sampled_from([0, 5, 10, 25]))
def test_counts_are_those_of_the_nodes(jobs: list[tuple[int, int, bool, int, bool]], now: int) -> None:
    scheduler = Scheduler(machine(), "first", ("core", "gpu", "node"))
    graph = scheduler.graph
    for jobid, (nodes, cores, whole, duration, later) in enumerate(jobs):
        (scheduler.reserve if later else scheduler.allocate)(jobid, request(nodes, cores, whole, duration), 0)
    nodes_ = graph.nodes()
    one_by_one = Counter(tuple(scheduler.free(v, kind, now) for kind in KINDS) for v in nodes_)
    assert census.free(scheduler, nodes_, KINDS, now) == one_by_one
    used = {
        node
        for job in scheduler.jobs.values()
        if job.start <= now < job.end
        for node in nodes_
        if job.selection.covers(node)
    }
    assert census.idle(scheduler, nodes_, now) == len(nodes_) - len(used)


def test_held_is_grouped_by_what_nodes_have() -> None:
    graph = machine()
    found = census.held(graph, graph.nodes())
    assert sorted((amounts["core"], amounts["gpu"], count) for amounts, count in found) == [(2, 1, 3), (4, 1, 3)]
