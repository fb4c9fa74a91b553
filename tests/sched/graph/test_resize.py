"""Nodes come and go in use: what is kept current is what counting from the start would give."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.sched.graph import Graph, GraphError, Scheduler, parse_jobspec
from headrace.sched.graph.holdings import InUseError
from headrace.sched.graph.resize import grow, remove
from headrace.sched.graph.selection import select

POLICIES = ["first", "low", "high", "lonode", "hinode", "firstnodex", "lonodex"]


def part(ranks: list[int], racks: int = 0, cores: int = 3) -> Graph:
    """A cluster of these ranks, each a node of two sockets; with racks, rank r is in rack r modulo their number."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    above: dict[int, int] = {}
    for rank in ranks:
        if racks and rank % racks not in above:
            above[rank % racks] = graph.add("rack", root, id=rank % racks)
        node = graph.add("node", above[rank % racks] if racks else root, id=rank, rank=rank)
        for s in range(2):
            socket = graph.add("socket", node, id=s, rank=rank)
            for c in range(cores):
                graph.add("core", socket, id=s * cores + c, rank=rank)
            graph.add("gpu", socket, id=s, rank=rank)
    return graph.finish()


def request(rng: random.Random) -> Any:
    inside = [{"type": "core", "count": rng.randint(1, 3)}]
    if rng.random() < 0.4:
        inside.append({"type": "gpu", "count": 1})
    slot: dict[str, Any] = {"type": "slot", "count": rng.choice([1, 1, 2, 5]), "label": "t", "with": inside}
    node = {"type": "node", "count": 1}
    resources = rng.choice(
        [
            slot,
            {"type": "node", "count": rng.choice([1, 2]), "with": [slot]},
            {"type": "slot", "count": rng.choice([1, 2]), "label": "t", "with": [node]},
        ]
    )
    return parse_jobspec({"resources": [resources], "attributes": {"system": {"duration": rng.choice([50, 100])}}})


def ranks_of(graph: Graph) -> list[int]:
    return [graph.rank[v] for v, kind in enumerate(graph.type) if kind == "node"]


def recount(graph: Graph) -> dict[str, dict[str, int]]:
    """What each vertex holds, by path, counted vertex by vertex."""
    found: dict[str, dict[str, int]] = {}
    for v in graph.preorder(graph.root):
        sums: dict[str, int] = {}
        for u in graph.preorder(v):
            sums[graph.type[u]] = sums.get(graph.type[u], 0) + graph.size[u]
        found[graph.path(v)] = sums
    return found


def searched(scheduler: Scheduler, wanted: Any) -> Any:
    picks = scheduler.matcher(wanted, 0).match(wanted.resources)
    return None if picks is None else taken(select(scheduler.graph, picks, scheduler.policy.whole))


def taken(selection: Any) -> list[tuple[int, int, bool]]:
    return [(item.vertex, item.needs, item.exclusive) for item in selection.items]


def again(scheduler: Scheduler) -> Scheduler:
    """A new scheduler with the same jobs."""
    other = Scheduler(scheduler.graph, scheduler.policy, scheduler.filters)
    for jobid, start, end, reserved, selection in scheduler.jobs.values():
        other.add(jobid, selection, start, end, reserved)
    return other


def free_everywhere(scheduler: Scheduler) -> dict[tuple[int, str, int], int]:
    graph = scheduler.graph
    return {
        (v, kind, t): scheduler.free(v, kind, t)
        for v in graph.vertices()
        for kind in graph.totals[v]
        for t in (0, 49, 50, 100, 151)
    }


@pytest.mark.parametrize("racks", [0, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_any_sequence_leaves_what_counting_from_the_start_gives(policy: str, racks: int) -> None:
    matched = 0
    for seed in range(4):
        rng = random.Random(seed)
        scheduler = Scheduler(part([0, 1, 2, 3], racks), policy, ("core", "gpu", "node"))
        graph = scheduler.graph
        for jobid in range(60):
            step = rng.random()
            if step < 0.15:
                new = [rank for rank in range(8) if rank not in ranks_of(graph) and rng.random() < 0.4]
                if new:
                    scheduler.grow(part(new, racks))
            elif step < 0.3:
                scheduler.shrink(sum(1 << rank for rank in ranks_of(graph) if rng.random() < 0.3), take=True)
            elif step < 0.45:
                scheduler.set_status(rng.choice(list(graph.vertices())[1:] or [0]), rng.random() < 0.7)
            elif step < 0.6 and scheduler.jobs:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            elif step < 0.7:
                scheduler.reserve(jobid, request(rng), 0)
            else:
                wanted = request(rng)
                expected = searched(scheduler, wanted)
                got = scheduler.allocate(jobid, wanted, 0).allocation
                assert (None if got is None else taken(got.selection)) == expected
                matched += got is not None
            assert {graph.path(v): graph.totals[v] for v in graph.preorder(graph.root)} == recount(graph)
            assert graph.count == len(graph.preorder(graph.root))
            assert free_everywhere(scheduler) == free_everywhere(again(scheduler))
    assert matched > 15


def test_rows_of_what_left_are_used_again() -> None:
    graph = part([0, 1])
    rows = len(graph)
    for rank in range(2, 12):
        remove(graph, graph.find_path(f"/cluster0/node{rank - 2}"))
        grow(graph, part([rank]))
    assert len(graph) == rows
    assert sorted(ranks_of(graph)) == [10, 11]


def test_nodes_join_the_rack_they_name() -> None:
    graph = part([0, 1], racks=2)
    grow(graph, part([2, 3], racks=2))
    assert [graph.path(v) for v in graph.vertices() if graph.type[v] == "rack"] == [
        "/cluster0/rack0",
        "/cluster0/rack1",
    ]
    assert graph.find_path("/cluster0/rack1/node3") != []


def test_a_rank_that_is_there_cannot_join_elsewhere() -> None:
    graph = part([0, 1])
    before = recount(graph)
    with pytest.raises(GraphError, match="rank 1 is that of /cluster0/node1"):
        grow(graph, part([1], racks=1))
    assert recount(graph) == before
    assert graph.count == len(graph)


def test_what_is_there_already_stays_as_it_is() -> None:
    graph = part([0, 1], racks=1)
    before = recount(graph)
    assert grow(graph, part([1], racks=1)) == []
    assert recount(graph) == before
    added = grow(graph, part([1, 2], racks=1))
    assert {graph.path(v).split("/")[3] for v in added} == {"node2"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_in_use_gains_resources(policy: str) -> None:
    graph = part([0, 1])
    more = part([1], cores=4)
    more.uniq = [900 + v for v in range(len(more))]
    scheduler = Scheduler(graph, policy)
    core = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}
    assert scheduler.allocate(1, parse_jobspec({"resources": [core]}), 0).allocation is not None
    added = scheduler.grow(more)
    # Sockets of three cores have numbers 0-2 and 3-5, those of four 0-3 and 4-7.
    assert sorted((graph.path(v), graph.uniq[v]) for v in added) == [
        ("/cluster0/node1/socket0/core3", 906),
        ("/cluster0/node1/socket1/core6", 911),
        ("/cluster0/node1/socket1/core7", 912),
    ]
    assert {graph.path(v): graph.totals[v] for v in graph.preorder(graph.root)} == recount(graph)
    assert free_everywhere(scheduler) == free_everywhere(again(scheduler))
    scheduler.cancel(1)
    wanted = {"type": "socket", "count": 1, "with": [{**core, "count": 5}]}
    assert scheduler.allocate(2, parse_jobspec({"resources": [wanted]}), 0).allocation is not None
    assert free_everywhere(scheduler) == free_everywhere(again(scheduler))


def test_other_root_cannot_join() -> None:
    other = Graph()
    other.add("zone", id=0)
    with pytest.raises(GraphError, match="begins with a cluster"):
        grow(part([0]), other.finish())


def test_root_cannot_leave() -> None:
    graph = part([0])
    with pytest.raises(GraphError, match="is the root"):
        remove(graph, [graph.root])


def whole_nodes(count: int) -> Any:
    node = {"type": "node", "count": 1}
    slot = {"type": "slot", "count": count, "label": "t", "with": [node]}
    return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": 100}}})


def test_nodes_in_use_stay_unless_they_are_taken() -> None:
    scheduler = Scheduler(part([0, 1, 2]), "low")
    scheduler.allocate(1, whole_nodes(2), 0)
    assert scheduler.users(0b100) == []
    with pytest.raises(InUseError, match="in use by 1 jobs") as caught:
        scheduler.shrink(0b110)
    assert caught.value.jobs == [1]
    assert ranks_of(scheduler.graph) == [0, 1, 2]
    assert scheduler.shrink(0b100) == ([], [])


def test_jobs_lose_the_nodes_that_are_taken_and_promises_are_lost() -> None:
    scheduler = Scheduler(part([0, 1, 2]), "low")
    scheduler.allocate(1, whole_nodes(2), 0)
    scheduler.allocate(2, whole_nodes(1), 0)
    scheduler.reserve(3, whole_nodes(3), 0)
    assert scheduler.shrink(0b101, take=True) == ([1], [2, 3])
    assert list(scheduler.jobs) == [1]
    assert scheduler.free(scheduler.graph.root, "core", 0) == 0
    scheduler.cancel(1)
    assert scheduler.free(scheduler.graph.root, "core", 0) == 6
