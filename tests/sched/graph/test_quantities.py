"""Slots that take a quantity of pools: the rest of a pool stays free for other slots and jobs, at every moment."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, GraphError, Scheduler, parse_jobspec
from headrace.sched.graph.policies import POLICIES
from headrace.sched.graph.selection import from_vertices

WHOLE = [name for name, policy in POLICIES.items() if policy.whole]
SHARING = [name for name in POLICIES if name not in WHOLE]
CPU, MEMORY = 8000, 64


def cluster(nodes: int = 4, pods: int = 10, gpus: int = 1) -> Graph:
    """Nodes of four kinds of pools, as Kubernetes counts its nodes; the last has no GPU."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        graph.add("cpu", node, id=0, size=CPU)
        graph.add("memory", node, id=0, size=MEMORY, unit="GiB")
        graph.add("pod", node, id=0, size=pods)
        if n < nodes - 1:
            graph.add("gpu", node, id=0, size=gpus)
    return graph.finish()


def slots(count: int | dict[str, int], exclusive: bool = False, **inside: int) -> dict[str, Any]:
    parts = [{"type": kind, "count": units, "exclusive": exclusive} for kind, units in inside.items()]
    return {"type": "slot", "count": count, "label": "pod", "with": parts}


def job(*resources: dict[str, Any], duration: int = 0) -> Any:
    return parse_jobspec({"resources": list(resources), "attributes": {"system": {"duration": duration}}})


def took(scheduler: Scheduler, jobid: int, *resources: dict[str, Any], at: int = 0, duration: int = 0) -> Any:
    """The units that a job is given, by path below the cluster; None if it is given nothing."""
    graph = scheduler.graph
    allocation = scheduler.allocate(jobid, job(*resources, duration=duration), at).allocation
    if allocation is None:
        return None
    items = [item for item in allocation.selection.items if graph.type[item.vertex] not in ("cluster", "rack")]
    return {
        graph.path(item.vertex).split("/", 2)[2]: item.needs
        for item in items
        if item.exclusive or not graph.children[item.vertex]
    }


@pytest.mark.parametrize("policy", SHARING)
def test_slots_and_jobs_share_a_pool_until_its_units_are_gone(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1), policy)
    assert took(scheduler, 1, slots(2, cpu=2000, memory=10)) == {"node0/cpu0": 4000, "node0/memory0": 20}
    assert took(scheduler, 2, slots(3, cpu=2000)) is None
    assert took(scheduler, 3, slots(1, cpu=4001)) is None
    assert took(scheduler, 4, slots(1, cpu=4000, memory=44)) == {"node0/cpu0": 4000, "node0/memory0": 44}
    assert took(scheduler, 5, slots(1, cpu=1)) is None
    scheduler.cancel(1)
    assert took(scheduler, 6, slots(4, cpu=1000, memory=5)) == {"node0/cpu0": 4000, "node0/memory0": 20}


@pytest.mark.parametrize("policy", SHARING)
def test_pools_of_one_unit_are_counted_too(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=3), policy)
    given = [took(scheduler, n, slots(1, cpu=100, gpu=1)) for n in range(3)]
    assert {path for found in given[:2] for path in found} == {
        f"node{n}/{p}0" for n in range(2) for p in ("cpu", "gpu")
    }
    assert given[2] is None
    # The whole pool is in use, also for a slot that would have it exclusively.
    assert took(scheduler, 4, slots(1, True, gpu=1)) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_slots_are_exclusive_by_default_and_then_take_pools_whole(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy)
    given = {"type": "slot", "count": 1, "label": "pod", "with": [{"type": "cpu", "count": 1}]}
    found = took(scheduler, 1, given)
    assert [units for path, units in found.items() if "cpu" in path] == [CPU]
    assert took(scheduler, 2, {**given, "count": 2}) is None


@pytest.mark.parametrize("policy", SHARING)
def test_who_wants_a_pool_or_a_node_alone_waits_for_those_that_share_it(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1), policy)
    assert took(scheduler, 1, slots(1, memory=1), duration=10)
    assert took(scheduler, 2, slots(1, True, memory=1)) is None
    assert took(scheduler, 3, slots(1, True, cpu=1)) == {"node0/cpu0": CPU}
    scheduler.cancel(3)
    node = {"type": "node", "count": 1, "exclusive": True}
    assert took(scheduler, 4, node) is None
    promise = scheduler.reserve(5, job(node, duration=10), 0).allocation
    assert promise is not None and promise.start == 10
    # Until the promised node is taken, there is room for what ends by then.
    assert took(scheduler, 6, slots(1, memory=1), duration=11) is None
    assert took(scheduler, 7, slots(1, memory=1), duration=10)


@pytest.mark.parametrize("policy", SHARING)
def test_a_later_start_is_found_by_the_units_in_use_at_each_moment(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1), policy, ["cpu", "memory"])
    assert took(scheduler, 1, slots(1, cpu=5000), duration=10)
    assert took(scheduler, 2, slots(1, cpu=3000), duration=20)
    starts = [
        scheduler.reserve(jobid, job(slots(1, cpu=cpu), duration=10), 0).allocation.start
        for jobid, cpu in ((3, 5000), (4, 3000), (5, 1), (6, 8000))
    ]
    assert starts == [10, 20, 20, 30]


@pytest.mark.parametrize("policy", SHARING)
def test_units_of_a_lifted_reservation_are_free_among_those_of_others(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1), policy)
    assert took(scheduler, 1, slots(1, cpu=5000), duration=10)
    for jobid, cpu, start in ((2, CPU, 10), (3, 1000, 30)):
        selection, end, _ = scheduler.match_at(job(slots(1, cpu=cpu), duration=10), start)
        assert selection is not None
        scheduler.add(jobid, selection, start, end, True)
    long = job(slots(1, cpu=7000), duration=25)
    assert scheduler.match_at(long, 10).selection is None
    scheduler.lift(2)
    assert scheduler.match_at(long, 10).selection is not None
    scheduler.restore()
    assert scheduler.match_at(long, 10).selection is None


def test_a_slot_may_take_units_of_several_pools() -> None:
    graph = Graph()
    node = graph.add("node", graph.add("cluster", id=0), id=0, rank=0)
    for m in range(3):
        graph.add("memory", node, id=m, size=10)
    scheduler = Scheduler(graph.finish(), "low")
    # Slots within one pool have the better scores.
    assert took(scheduler, 1, slots(4, memory=4)) == {"node0/memory0": 8, "node0/memory1": 8}
    assert took(scheduler, 2, slots(1, memory=12)) == {"node0/memory0": 2, "node0/memory1": 2, "node0/memory2": 8}
    scheduler.cancel(1)
    scheduler.cancel(2)
    assert took(scheduler, 3, slots(7, memory=4)) == {"node0/memory0": 10, "node0/memory1": 10, "node0/memory2": 8}


@pytest.mark.parametrize("policy", SHARING)
def test_a_slot_may_take_cores_and_units(policy: str) -> None:
    graph = Graph()
    node = graph.add("node", graph.add("cluster", id=0), id=0, rank=0)
    for c in range(6):
        graph.add("core", node, id=c)
    graph.add("memory", node, id=0, size=10)
    scheduler = Scheduler(graph.finish(), policy)
    mixed = slots(2, memory=3)
    mixed["with"].append({"type": "core", "count": 1})
    found = took(scheduler, 1, mixed)
    assert (found.pop("node0/memory0"), len(found)) == (6, 2)
    assert took(scheduler, 2, mixed) is None
    assert took(scheduler, 3, {**mixed, "count": 1})["node0/memory0"] == 3


@pytest.mark.parametrize("policy", WHOLE)
def test_policies_that_give_nodes_whole_give_pools_with_them(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2, gpus=2), policy)
    found = took(scheduler, 1, slots(4, cpu=2000))
    assert sorted(units for path, units in found.items() if "cpu" in path) == [CPU]
    assert len([path for path in found if "/" not in path]) == 1
    assert took(scheduler, 2, slots(5, cpu=2000)) is None
    assert took(scheduler, 3, slots(3, cpu=2000)) is not None


def test_as_many_slots_as_fit_are_counted_without_making_them_one_by_one() -> None:
    graph = Graph()
    node = graph.add("node", graph.add("cluster", id=0), id=0, rank=0)
    graph.add("memory", node, id=0, size=2**40)
    scheduler = Scheduler(graph.finish(), "low")
    assert took(scheduler, 1, slots({"min": 3}, memory=5)) == {"node0/memory0": 2**40 // 5 * 5}


def test_a_pool_may_begin_empty_and_be_filled() -> None:
    graph = Graph()
    pool = graph.add("memory", graph.add("node", graph.add("cluster", id=0), id=0, rank=0), id=0, size=0)
    scheduler = Scheduler(graph.finish(), "lonode")
    assert took(scheduler, 1, slots(1, memory=5)) is None
    scheduler.set_size(pool, 5)
    assert took(scheduler, 2, slots(1, memory=5)) == {"node0/memory0": 5}


def hold(scheduler: Scheduler, jobid: int, end: int = 100, **units: int) -> list[int]:
    """A job holds so many units of the pools of node 0 until `end`, whether they are free or not."""
    graph = scheduler.graph
    pools = [(graph.find_path(f"/cluster0/node0/{kind}0")[0], amount, True) for kind, amount in units.items()]
    return scheduler.hold(jobid, from_vertices(graph, pools), 0, end)


@pytest.mark.parametrize("policy", SHARING)
def test_a_pool_that_grows_has_more_room_at_once(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1), policy)
    graph = scheduler.graph
    assert took(scheduler, 1, slots(1, cpu=CPU))
    assert took(scheduler, 2, slots(1, cpu=1)) is None
    generation = scheduler.generation
    (cpu,) = graph.find_path("/cluster0/node0/cpu0")
    assert scheduler.set_size(cpu, CPU + 500) == []
    assert (graph.totals[graph.root]["cpu"], scheduler.free(graph.root, "cpu", 0)) == (CPU + 500, 500)
    assert scheduler.generation == generation + 1
    assert took(scheduler, 3, slots(1, cpu=501)) is None
    assert took(scheduler, 4, slots(1, cpu=500)) == {"node0/cpu0": 500}


@pytest.mark.parametrize("policy", SHARING)
def test_a_pool_of_one_unit_grows_around_the_job_that_has_it(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2, gpus=1), policy)
    assert took(scheduler, 1, slots(1, gpu=1)) == {"node0/gpu0": 1}
    (gpu,) = scheduler.graph.find_path("/cluster0/node0/gpu0")
    scheduler.set_size(gpu, 3)
    assert took(scheduler, 2, slots(3, gpu=1)) is None
    assert took(scheduler, 3, slots(2, gpu=1)) == {"node0/gpu0": 2}
    scheduler.cancel(1)
    assert took(scheduler, 4, slots(1, gpu=1)) == {"node0/gpu0": 1}


@pytest.mark.parametrize("policy", SHARING)
def test_a_pool_that_shrinks_below_what_is_used_gives_nothing_until_less_is_used(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy, ["cpu", "node"])
    graph = scheduler.graph
    for jobid, duration in ((1, 10), (2, 20), (3, 30)):
        # Both nodes, so that it does not matter which the policy prefers.
        wanted = {"type": "node", "count": 2, "with": [slots(1, cpu=2000)]}
        assert took(scheduler, jobid, wanted, duration=duration)
    (cpu,) = graph.find_path("/cluster0/node0/cpu0")
    assert scheduler.set_size(cpu, 3000) == []
    # The other node has its 2,000 free units all the same: what is too much here is not short there.
    assert took(scheduler, 4, slots(2, cpu=1000), duration=5) == {"node1/cpu0": 2000}
    assert took(scheduler, 5, slots(1, cpu=1), duration=5) is None
    starts = [scheduler.reserve(jobid, job(wanted, duration=5), 0).allocation.start for jobid in (6, 7)]
    assert starts == [30, 35]
    one = scheduler.reserve(8, job(slots(1, cpu=1000), duration=60), 0).allocation
    assert one.start == 5 and graph.rank[graph.parent[max(one.selection.inner)]] == 1
    for jobid in list(scheduler.jobs):
        scheduler.cancel(jobid)
    assert scheduler.free(graph.root, "cpu", 0) == 3000 + CPU
    assert took(scheduler, 9, slots(4, cpu=1000)) is not None


@pytest.mark.parametrize("policy", SHARING)
def test_what_a_job_holds_in_fact_counts_even_if_it_was_not_free(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy, ["cpu", "node"])
    assert hold(scheduler, 1, cpu=CPU - 1000, pod=1) == []
    assert hold(scheduler, 2, end=50, cpu=5000, pod=1) == []
    assert took(scheduler, 3, slots(1, cpu=CPU), duration=10) == {"node1/cpu0": CPU}
    assert took(scheduler, 4, slots(1, cpu=1), duration=10) is None
    assert scheduler.reserve(5, job(slots(1, cpu=1000), duration=100), 0).allocation.start == 10
    scheduler.cancel(1)
    assert took(scheduler, 6, slots(1, cpu=3000), duration=10) == {"node0/cpu0": 3000}


@pytest.mark.parametrize("policy", SHARING)
def test_reservations_that_cannot_be_kept_are_named_and_others_not(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=1, pods=10), policy)
    (cpu,), (node,) = (scheduler.graph.find_path(f"/cluster0/node0{path}") for path in ("/cpu0", ""))
    assert took(scheduler, 1, slots(1, cpu=CPU), duration=10)
    wanted = {2: slots(1, cpu=5000), 3: slots(1, cpu=2000), 4: slots(1, memory=1), 5: slots(1, cpu=CPU)}
    starts = [scheduler.reserve(n, job(of, duration=10), 0).allocation.start for n, of in wanted.items() if n != 4]
    assert starts == [10, 10, 20]
    assert took(scheduler, 4, wanted[4], duration=10)
    alone = job({"type": "node", "count": 1, "exclusive": True}, duration=10)
    assert scheduler.reserve(6, alone, 0).allocation.start == 30
    assert scheduler.set_size(cpu, 7500) == [5]
    assert scheduler.set_size(cpu, 6500) == [2, 3, 5]
    scheduler.set_size(cpu, CPU)
    assert hold(scheduler, 7, end=15, memory=1) == []
    assert hold(scheduler, 8, end=31, pod=1) == [6]
    assert node in scheduler.jobs[6].selection.inner


def test_a_pool_in_a_node_that_a_job_has_whole_changes_with_what_the_job_has() -> None:
    scheduler = Scheduler(cluster(nodes=2), "lonode")
    graph = scheduler.graph
    assert took(scheduler, 1, {"type": "node", "count": 1, "exclusive": True})
    (cpu,) = graph.find_path("/cluster0/node0/cpu0")
    scheduler.set_size(cpu, 3 * CPU)
    assert scheduler.free(graph.root, "cpu", 0) == CPU
    scheduler.cancel(1)
    assert scheduler.free(graph.root, "cpu", 0) == 4 * CPU
    assert took(scheduler, 2, slots(1, cpu=3 * CPU)) == {"node0/cpu0": 3 * CPU}


def test_only_what_has_no_contents_changes_its_size() -> None:
    scheduler = Scheduler(cluster(nodes=1), "low")
    with pytest.raises(GraphError, match="/cluster0/node0: has contents"):
        scheduler.set_size(scheduler.graph.nodes()[0], 2)
    with pytest.raises(GraphError, match="/cluster0/node0/cpu0: size -1 is not between 0 and"):
        scheduler.set_size(scheduler.graph.find_path("/cluster0/node0/cpu0")[0], -1)


@pytest.mark.parametrize("policy", SHARING)
def test_nodes_come_and_go_beside_jobs_that_have_parts_of_others(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy)
    assert took(scheduler, 1, {"type": "node", "count": 2, "with": [slots(1, cpu=5000)]})
    assert scheduler.grow(cluster(nodes=3))
    assert took(scheduler, 2, slots(1, cpu=5000)) == {"node2/cpu0": 5000}
    assert took(scheduler, 3, slots(1, cpu=5000)) is None
    loss = scheduler.shrink(0b101, take=True)
    assert (loss.reduced, loss.ended) == ([1], [2])
    assert scheduler.free(scheduler.graph.root, "cpu", 0) == CPU - 5000
    assert took(scheduler, 4, slots(1, cpu=3001)) is None
    assert took(scheduler, 5, slots(1, cpu=3000)) == {"node1/cpu0": 3000}


@pytest.mark.parametrize("policy", SHARING)
def test_a_job_gives_back_the_units_of_one_node(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy)
    assert took(scheduler, 1, {"type": "node", "count": 2, "with": [slots(2, cpu=3000)]})
    (cpu,) = scheduler.graph.find_path("/cluster0/node1/cpu0")
    scheduler.release(1, from_vertices(scheduler.graph, [(cpu, 6000, True)]))
    assert took(scheduler, 2, slots(1, cpu=CPU)) == {"node1/cpu0": CPU}
    assert took(scheduler, 3, slots(1, cpu=2000)) == {"node0/cpu0": 2000}
    scheduler.cancel(1)
    assert took(scheduler, 4, slots(2, cpu=3000)) == {"node0/cpu0": 6000}


@pytest.mark.parametrize("policy", SHARING)
def test_nodes_are_relabelled(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy)
    wanted = parse_jobspec(
        {"resources": [slots(1, cpu=1)], "attributes": {"system": {"constraints": {"properties": ["ssd"]}}}}
    )
    one, other = scheduler.graph.nodes()
    ranks = []
    scheduler.set_property(one, "ssd", "")
    for jobid, (v, properties) in enumerate(
        [(one, {"ssd": "", "zone": "a"}), (one, {"zone": "a"}), (other, {"ssd": ""})]
    ):
        scheduler.set_properties(v, properties)
        found = scheduler.allocate(jobid, wanted, 0).allocation
        ranks.append(found and [scheduler.graph.rank[u] for u in (one, other) if u in found.selection.inner])
    assert ranks == [[0], None, [1]]


SIZES = st.tuples(st.just("size"), st.integers(0, 99), st.integers(0, 20))
HOLDS = st.tuples(st.just("hold"), st.integers(0, 99), st.integers(1, 20))
JOBS = st.tuples(st.just("job"), st.integers(1, 9), st.integers(1, 20))
ENDS = st.tuples(st.just("end"), st.integers(0, 99), st.just(0))


@pytest.mark.parametrize("policy", ["first", "lonode", "low"])
@settings(max_examples=100, deadline=None)
@given(history=st.lists(st.one_of(SIZES, HOLDS, JOBS, JOBS, ENDS), min_size=5, max_size=30))
def test_counts_stay_true_whatever_becomes_of_pools(policy: str, history: list[tuple[str, int, int]]) -> None:
    scheduler = Scheduler(cluster(nodes=3, gpus=3), policy)
    graph = scheduler.graph
    pools = [v for v in graph.vertices() if graph.type[v] == "memory"]
    for jobid, (what, a, b) in enumerate(history):
        if what == "size":
            scheduler.set_size(pools[a % 3], b)
        elif what == "hold":
            scheduler.hold(jobid, from_vertices(graph, [(pools[a % 3], b, True)]), 0, 1 + a % 7)
        elif what == "end" and scheduler.jobs:
            scheduler.cancel(list(scheduler.jobs)[a % len(scheduler.jobs)])
        elif what == "job":
            scheduler.allocate(jobid, job(slots(a, memory=b), duration=a), 0)
        for at in range(10):
            used = {v: 0 for v in pools}
            for held in scheduler.jobs.values():
                for v in pools:
                    used[v] += held.selection.inner[v].needs if v in held.selection.inner and held.end > at else 0
            assert [scheduler.plans[v].at(at) if v in scheduler.plans else 0 for v in pools] == list(used.values())
            free = [max(graph.size[v] - used[v], 0) for v in pools]
            assert [scheduler.free(graph.parent[v], "memory", at) for v in pools] == free
            assert scheduler.free(graph.root, "memory", at) == sum(free)
    for jobid in list(scheduler.jobs):
        scheduler.cancel(jobid)
    assert not any(planner.times for counts in scheduler.busy.values() for planner in counts.values())


def fits(free: dict[str, int], inside: dict[str, int]) -> int:
    return min(free.get(kind, 0) // units for kind, units in inside.items())


SHAPES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pod", "gpu"]), st.sampled_from([1, 2, 7, 60, 1500]), min_size=1, max_size=3
)


@pytest.mark.parametrize("policy", SHARING)
@settings(max_examples=60, deadline=None)
@given(asked=st.lists(st.tuples(SHAPES, st.integers(1, 9), st.booleans()), min_size=5, max_size=25), seed=st.integers())
def test_what_is_given_is_what_arithmetic_says(
    policy: str, asked: list[tuple[dict[str, int], int, bool]], seed: int
) -> None:
    rng = random.Random(seed)
    scheduler = Scheduler(cluster(gpus=3), policy)
    graph = scheduler.graph
    pools = {v: (graph.name(graph.parent[v]), graph.type[v]) for v in graph.vertices() if graph.size[v] > 1}
    free: dict[str, dict[str, int]] = {}
    for v, (node, kind) in pools.items():
        free.setdefault(node, {})[kind] = graph.size[v]
    for jobid, (inside, count, by_node) in enumerate(asked):
        if scheduler.jobs and rng.random() < 0.3:
            gone = rng.choice(list(scheduler.jobs.values()))
            for mark in gone.selection.items:
                if mark.vertex in pools:
                    node, kind = pools[mark.vertex]
                    free[node][kind] += mark.needs
            scheduler.cancel(gone.jobid)
        wanted = slots(count, **inside)
        room = {node: fits(units, inside) for node, units in free.items()}
        # Whether the job is for `count` slots anywhere, or for two nodes with `count` slots each.
        resources = {"type": "node", "count": 2, "with": [wanted]} if by_node else wanted
        expected = sum(fit >= count for fit in room.values()) >= 2 if by_node else sum(room.values()) >= count
        found = took(scheduler, jobid, resources)
        assert (found is not None) == expected
        for path, units in (found or {}).items():
            node, kind = path.split("/")
            kind = kind.rstrip("0123456789")
            assert units % inside[kind] == 0
            free[node][kind] -= units
            assert free[node][kind] >= 0
        if found:
            used = list(dict.fromkeys(path.split("/")[0] for path in found))
            given_slots = {node: found[f"{node}/{next(iter(inside))}0"] // inside[next(iter(inside))] for node in used}
            assert all(found[f"{n}/{k}0"] == given_slots[n] * units for n in used for k, units in inside.items())
            assert sum(given_slots.values()) == count * (2 if by_node else 1)
            if policy in ("lonode", "hinode"):
                # A node is filled before the next is touched.
                best = sorted(room, reverse=policy == "hinode")
                able = [node for node in best if room[node] >= (count if by_node else 1)]
                assert sorted(used) == sorted(able[: len(used)])
                order = [node for node in able if node in used]
                assert by_node or all(given_slots[a] == room[a] for a, _ in pairwise(order))
