"""The search for resources: slots are found exactly when there is room, and a failure says what is short."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.matcher import Matcher, Pick, explain

POLICIES = ["first", "low", "high", "lonode", "hinode", "locality"]


def cluster(sizes: list[int]) -> Graph:
    """Nodes with these numbers of cores, directly in them."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n, cores in enumerate(sizes):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(cores):
            graph.add("core", node, id=c, rank=n)
    return graph.finish()


def slots(count: int, cores: int) -> Any:
    inside = [{"type": "core", "count": cores}]
    return parse_jobspec({"resources": [{"type": "slot", "count": count, "label": "s", "with": inside}]})


def search(scheduler: Scheduler, request: Any, at: int = 0) -> tuple[Matcher, list[Pick] | None]:
    matcher = scheduler.matcher(request, at)
    return matcher, matcher.match(request.resources)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    held=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4),
    count=st.integers(1, 6),
    cores=st.integers(1, 4),
    policy=st.sampled_from(POLICIES),
)
def test_slots_are_found_exactly_when_the_nodes_have_room_for_them(
    sizes: list[int], held: list[tuple[int, int]], count: int, cores: int, policy: str
) -> None:
    graph = cluster(sizes)
    scheduler = Scheduler(graph, policy)
    taken: set[int] = set()
    for job, (number, each) in enumerate(held):
        found = scheduler.allocate(job, slots(number, each), 0).allocation
        if found is not None:
            taken |= {item.vertex for item in found.selection.items if graph.type[item.vertex] == "core"}
    cores_left = [v for v in range(len(graph)) if graph.type[v] == "core" and v not in taken]
    free = {v: graph.parent[v] for v in cores_left}
    room = sum(list(free.values()).count(node) // cores for node in set(free.values()))
    matcher, picks = search(scheduler, slots(count, cores))
    assert (picks is not None) == (room >= count)
    if picks is None:
        assert matcher.failure is not None and matcher.failure.available == room
        return
    chosen = [pick.vertex for pick in picks]
    assert len(chosen) == len(set(chosen)) == count * cores
    assert free.keys() >= set(chosen)
    for first in range(0, len(chosen), cores):
        # The picks of one slot follow each other.
        assert len({free[v] for v in chosen[first : first + cores]}) == 1


def test_a_search_changes_nothing() -> None:
    scheduler = Scheduler(cluster([2, 2]), "low")
    _, once = search(scheduler, slots(2, 2))
    _, again = search(scheduler, slots(2, 2))
    assert once is not None and once == again


def test_a_failure_says_what_is_short_and_whether_a_release_can_help() -> None:
    graph = cluster([2, 2])
    scheduler = Scheduler(graph, "low")
    three_nodes = parse_jobspec({"resources": [{"type": "node", "count": 3, "exclusive": True}]})
    matcher, picks = search(scheduler, three_nodes)
    assert picks is None and matcher.failure is not None
    assert "3 node wanted, 2 can be had in the whole graph" in explain(graph, matcher.failure)
    matcher, picks = search(scheduler, slots(1, 3))
    assert picks is None and matcher.failure is not None and matcher.failure.structural
    assert scheduler.allocate(1, slots(4, 1), 0).allocation is not None
    matcher, picks = search(scheduler, slots(1, 1))
    assert picks is None and matcher.failure is not None and not matcher.failure.structural


def test_nodes_that_are_down_or_not_allowed_are_passed_over() -> None:
    graph = cluster([1, 1, 1])
    scheduler = Scheduler(graph, "low")
    first = next(v for v in range(len(graph)) if graph.type[v] == "node" and graph.id[v] == 0)
    graph.up[first] = 0
    one = {"resources": [{"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]}]}
    _, picks = search(scheduler, parse_jobspec(one))
    assert picks is not None and graph.id[graph.parent[picks[0].vertex]] == 1
    only = {**one, "attributes": {"system": {"constraints": {"ranks": ["2"]}}}}
    _, picks = search(scheduler, parse_jobspec(only))
    assert picks is not None and graph.id[graph.parent[picks[0].vertex]] == 2
    none = {**one, "attributes": {"system": {"constraints": {"ranks": ["0"]}}}}
    assert search(scheduler, parse_jobspec(none))[1] is None


def test_resources_that_a_job_will_release_are_found_at_its_end() -> None:
    scheduler = Scheduler(cluster([1]), "low")
    ten = parse_jobspec(
        {
            "resources": [{"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]}],
            "attributes": {"system": {"duration": 10}},
        }
    )
    allocation = scheduler.allocate(1, ten, 0).allocation
    assert allocation is not None and allocation.end == 10
    assert search(scheduler, ten, 9)[1] is None
    assert search(scheduler, ten, 10)[1] is not None
