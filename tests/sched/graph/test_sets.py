"""Requests of several sets: all of them or none, each with its own constraint, beside whatever is held and reserved."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from headrace.sched.graph import Graph, Scheduler
from headrace.sched.graph.request import JobRequest, parse_resources, together
from headrace.sched.graph.scheduler import Starts
from headrace.sched.graph.selection import Selection
from headrace.sched.queueing.queue import Queue, Refused, Started
from headrace.sched.queueing.why import PROMISED, refusal, shortage

ZONES = 2


def cluster(cores: list[int], policy: str = "lonode", end: int = 2**40) -> Scheduler:
    """Nodes with a pool of cpu each, every second one `fast`, in two zones."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    zones = [graph.add("zone", root, id=i, name=f"z{i}") for i in range(ZONES)]
    for i, size in enumerate(cores):
        properties = {"fast": ""} if i % 2 else {}
        node = graph.add("node", zones[i * ZONES // len(cores)], id=i, rank=i, name=f"n{i}", properties=properties)
        graph.add("cpu", node, id=0, size=size)
        graph.add("pod", node, id=0, size=100)
    graph.end = end
    return Scheduler(graph.finish(), policy, ("cpu", "pod"))


def slots(
    count: int, cpu: int, fast: bool | None = None, duration: int = 0, apart: bool = False, spread: bool = False
) -> JobRequest:
    inside = [{"type": kind, "count": amount, "exclusive": False} for kind, amount in (("cpu", cpu), ("pod", 1))]
    slot = {"type": "slot", "count": 1 if spread else count, "with": inside}
    top = {"type": "node", "count": count, "exclusive": False, "with": [slot]} if spread else slot
    constraint = None if fast is None else {"properties": ["fast" if fast else "^fast"]}
    return JobRequest(parse_resources([top]), duration, constraint, is_apart=apart)


def taken(selection: Selection) -> dict[str, tuple[int, int]]:
    """The units of cpu and the pods that a selection has, by node."""
    found: dict[str, list[int]] = {}
    for v, mark in selection.marks.items():
        if selection.graph.type[v] in ("cpu", "pod"):
            amounts = found.setdefault(selection.graph.name(selection.graph.parent[v]), [0, 0])
            amounts[selection.graph.type[v] == "pod"] += mark.needs
    return {node: (cpu, pods) for node, (cpu, pods) in found.items()}


def test_each_set_has_its_own_amounts_and_nodes_and_they_share_nodes():
    scheduler = cluster([4, 4, 4, 4])
    found = scheduler.allocate(1, together([slots(1, 1), slots(3, 3, fast=True)]), 0).allocation
    assert found is None
    assert not scheduler.jobs
    found = scheduler.allocate(1, together([slots(1, 1), slots(2, 3, fast=True)]), 0).allocation
    assert found is not None
    assert [taken(one) for one in found.selection.sets] == [{"n0": (1, 1)}, {"n1": (3, 1), "n3": (3, 1)}]
    # Both have units of one pool.
    found = scheduler.allocate(2, together([slots(1, 1), slots(1, 2, fast=False)]), 0).allocation
    assert found is not None
    assert taken(found.selection) == {"n0": (3, 2)}
    assert scheduler.free(scheduler.graph.root, "cpu", 0) == 16 - 7 - 3
    scheduler.cancel(1)
    scheduler.cancel(2)
    assert scheduler.free(scheduler.graph.root, "cpu", 0) == 16


def test_a_set_that_could_have_other_nodes_leaves_those_that_another_needs():
    scheduler = cluster([4, 4], "hinode")
    found = scheduler.allocate(1, together([slots(1, 4), slots(1, 2, fast=True)]), 0).allocation
    assert found is not None
    assert [taken(one) for one in found.selection.sets] == [{"n0": (4, 1)}, {"n1": (2, 1)}]


def test_a_set_without_room_is_matched_before_those_that_have_taken_it():
    # The set of two times three has no room last; first, it leaves none for that of four.
    found = cluster([4, 8, 2]).allocate(1, together([slots(2, 2), slots(2, 3), slots(1, 4)]), 0).allocation
    assert found is not None
    assert [taken(one) for one in found.selection.sets] == [
        *({"n1": (2, 1), "n2": (2, 1)}, {"n1": (6, 2)}, {"n0": (4, 1)}),
    ]


@pytest.mark.parametrize("policy", ["lonode", "hinode"])
@pytest.mark.parametrize("number", [2, 3, 4])
def test_nearly_every_order_is_found_that_would_do(policy, number):
    """On nodes of which a request asks for most of what they have."""
    rng = random.Random(number)
    found = missed = 0
    while found < 80:
        cores = [rng.randint(2, 8) for _ in range(5)]
        parts = [
            slots(rng.randint(1, 3), rng.randint(1, 4), rng.choice((None, None, True, False))) for _ in range(number)
        ]
        wanted = sum(part.needs["cpu"] for part in parts)
        if not 0.8 * sum(cores) <= wanted <= sum(cores):
            continue
        scheduler = cluster(cores, policy)
        if scheduler.allocate(1, together(parts), 0).allocation is not None:
            found += 1
        elif any(fit_in_order(cluster(cores, policy), order) for order in permutations(parts)):
            missed += 1
    assert not missed


def fit_in_order(scheduler: Scheduler, parts: tuple[JobRequest, ...]) -> bool:
    """Whether requests find room one after the other."""
    return all(scheduler.allocate(jobid, part, 0).allocation is not None for jobid, part in enumerate(parts, 1))


def test_sets_that_are_apart_have_no_node_in_common():
    scheduler = cluster([4, 4, 4])
    apart = together([slots(1, 1, apart=True), slots(2, 1, apart=True, spread=True)])
    found = scheduler.allocate(1, apart, 0).allocation
    assert found is not None
    assert [set(taken(one)) for one in found.selection.sets] == [{"n0"}, {"n1", "n2"}]
    assert scheduler.allocate(2, together([apart.sets[0], slots(3, 1, apart=True, spread=True)]), 0).allocation is None


def test_all_sets_are_within_one_vertex():
    scheduler = cluster([4, 4, 4, 4])
    assert scheduler.allocate(1, slots(1, 2), 0).allocation is not None
    # The first zone has room for each of them alone.
    found = scheduler.allocate(2, together([slots(1, 4), slots(1, 3)], within="zone"), 0).allocation
    assert found is not None
    assert set(taken(found.selection)) == {"n2", "n3"}
    assert scheduler.allocate(3, together([slots(1, 4), slots(1, 3)], within="zone"), 0).allocation is None
    assert scheduler.satisfiable(together([slots(1, 4), slots(2, 2)], within="zone")).unsatisfiable is False
    assert scheduler.satisfiable(together([slots(1, 4), slots(3, 2)], within="zone")).unsatisfiable is True


def test_what_no_graph_could_serve_is_told_from_what_has_no_room_now():
    scheduler = cluster([4, 4])
    assert scheduler.allocate(1, slots(1, 4), 0).allocation is not None
    waits, never = together([slots(1, 4), slots(1, 2, fast=False)]), together([slots(1, 4), slots(2, 3, fast=True)])
    assert scheduler.satisfiable(waits).unsatisfiable is False
    outcome = scheduler.satisfiable(never)
    assert outcome.unsatisfiable is True
    assert "unsatisfiable request: " in refusal(scheduler, {}, never, outcome.failure)
    assert shortage(scheduler, waits, 0) == (
        "insufficient resources: cpu x2 short (2 wanted, 0 free on 1 eligible node(s))"
    )
    assert shortage(scheduler, together([slots(1, 3), slots(1, 2)]), 0) == (
        "insufficient resources: cpu x1 short (5 wanted, 4 free)"
    )
    assert shortage(scheduler, together([slots(1, 2), slots(1, 2)]), 0) == PROMISED


@pytest.mark.parametrize("policy", ["first", "lonode", "hinode", "low", "high", "locality"])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_hold_and_reserve_no_unit_twice(policy, seed):
    rng = random.Random(seed)
    cores = [rng.randint(2, 6) for _ in range(6)]
    scheduler = cluster(cores, policy)
    now = 0
    for jobid in range(1, 80):
        now += rng.randint(0, 3)
        duration = rng.randint(1, 20)
        parts = [
            slots(rng.randint(1, 3), rng.randint(1, 4), rng.choice((None, None, True, False)), duration)
            for _ in range(rng.randint(1, 3))
        ]
        request = together(parts, rng.choice(("", "", "zone")))
        before = dict(scheduler.jobs)
        found = scheduler.search(request, now, [Starts(now, 2**40)])
        assert dict(scheduler.jobs) == before
        if found.selection is None:
            # An empty graph has no room either, as all jobs end.
            assert scheduler.satisfiable(request).unsatisfiable, (seed, jobid)
        else:
            scheduler.add(jobid, found.selection, found.start, found.end, found.start > now)
            for part, selection in zip(parts, found.selection.sets, strict=True):
                amounts = taken(selection)
                assert sum(pods for _, pods in amounts.values()) == part.resources[0].count.low
                assert sum(cpu for cpu, _ in amounts.values()) == part.needs["cpu"]
                fast = part.constraint and part.constraint["properties"][0]
                assert all(int(node[1:]) % 2 == (fast == "fast") for node in amounts if fast)
        for gone in [one for one, job in scheduler.jobs.items() if job.end <= now]:
            scheduler.cancel(gone)
        no_unit_is_used_twice(scheduler, cores)


def no_unit_is_used_twice(scheduler: Scheduler, cores: list[int]) -> None:
    jobs = list(scheduler.jobs.values())
    for moment in {job.start for job in jobs}:
        used = [0] * len(cores)
        for job in jobs:
            if job.start <= moment < job.end:
                for node, (cpu, _) in taken(job.selection).items():
                    used[int(node[1:])] += cpu
        assert all(one <= size for one, size in zip(used, cores, strict=True)), (moment, used, cores)


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
@pytest.mark.parametrize("seed", range(4))
def test_sets_wait_in_queues_of_all_policies_and_all_come_to_their_turn(policy, seed):
    rng = random.Random(seed)
    cores = [4] * 6
    scheduler = cluster(cores)
    queue = Queue(scheduler, policy)
    running: dict[int, int] = {}
    started: set[int] = set()
    promised: dict[int, int] = {}
    refused: set[int] = set()
    for now in range(1, 1000):
        if now <= 60:
            duration = rng.randint(1, 30)
            parts = [
                slots(rng.randint(1, 3), rng.randint(1, 4), rng.choice((None, True, False)), duration)
                for _ in range(rng.randint(1, 3))
            ]
            queue.submit(now, together(parts) if len(parts) > 1 else parts[0], 0)
        queue.advance(now)
        for done in [one for one, end in running.items() if end <= now]:
            del running[done]
            queue.finish(done)
        for _ in range(8):
            for decision in queue.schedule(now):
                if isinstance(decision, Started):
                    # Jobs here last at most as long as they say, so no promised start is broken.
                    assert now <= promised.get(decision.jobid, now), (policy, decision.jobid)
                    started.add(decision.jobid)
                    running[decision.jobid] = max(now + 1, decision.allocation.end - rng.randint(0, 3))
                elif isinstance(decision, Refused):
                    refused.add(decision.jobid)
                else:
                    promised[decision.jobid] = decision.start
            if not queue.unfinished:
                break
        no_unit_is_used_twice(scheduler, cores)
        if now > 60 and not queue.pending and not running:
            break
    assert started | refused == set(range(1, 61))
    assert len(started) > 40
