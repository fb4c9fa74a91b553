"""Over any history of jobs: nothing is held twice, counts equal a recount, reservations are the earliest possible."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.matcher import explain
from headrace.sched.graph.selection import select
from headrace.sched.graph.usage import SpanConflictError

POLICIES = ["first", "low", "hinode", "lonodex"]


def cluster(nodes: int = 4, cores: int = 3) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        for s in range(2):
            socket = graph.add("socket", node, id=s)
            for c in range(cores):
                graph.add("core", socket, id=s * cores + c)
            graph.add("gpu", socket, id=s)
            graph.add("memory", socket, id=s, size=8)
    return graph.finish()


def spec(rng: random.Random) -> dict[str, Any]:
    core = {"type": "core", "count": rng.randint(1, 3)}
    slot = {"type": "slot", "count": rng.choice([1, 1, 2]), "label": "t", "with": [core]}
    resources: list[dict[str, Any]] = rng.choice(
        [
            [slot],
            [{"type": "node", "count": rng.randint(1, 3), "with": [slot]}],
            [{"type": "node", "count": rng.randint(1, 2), "exclusive": True}],
            [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "socket", "count": 1, "with": [core]}]}],
            [{"type": "slot", "count": 1, "label": "t", "with": [core, {"type": "memory", "count": 8}]}],
            [
                {
                    "type": "node",
                    "count": 1,
                    "with": [{"type": "socket", "count": 1, "with": [{"type": "memory", "count": 3}]}],
                }
            ],
        ]
    )
    system = {"duration": rng.choice([0, 10, 10, 25, 40])}
    return {"version": 1, "resources": resources, "tasks": [], "attributes": {"system": system}}


def assert_consistent(scheduler: Scheduler) -> None:
    """What the planners say equals a recount from the jobs, and nothing is held twice."""
    graph = scheduler.graph
    held: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for job in scheduler.jobs.values():
        for item in job.selection.items:
            leaf_part = graph.size[item.vertex] > 1 and not graph.children[item.vertex]
            units = graph.size[item.vertex] if item.exclusive else item.needs if leaf_part else 0
            if units:
                held[item.vertex].append((job.start, job.end, units))
    for v, spans in held.items():
        for moment in {start for start, _, _ in spans}:
            assert sum(units for start, end, units in spans if start <= moment < end) <= graph.size[v], graph.path(v)
    moments = {job.start for job in scheduler.jobs.values()} | {job.end for job in scheduler.jobs.values()}
    root = graph.root
    for kind in graph.types():
        planner = scheduler.busy.get(root, {}).get(kind)
        for moment in moments:
            count = sum(
                units
                for v, spans in held.items()
                if graph.type[v] == kind and not inside_whole(scheduler, v, moment)
                for start, end, units in spans
                if start <= moment < end
            ) + sum(graph.totals[v].get(kind, 0) for v in tops(scheduler, moment))
            assert (planner.at(moment) if planner else 0) == count, (kind, moment)


def tops(scheduler: Scheduler, moment: int) -> list[int]:
    """The exclusive vertices at a moment that are not below another of the same job."""
    graph = scheduler.graph
    out = []
    for job in scheduler.jobs.values():
        if job.start <= moment < job.end:
            taken = {item.vertex for item in job.selection.items if item.exclusive}
            out += [v for v in taken if graph.parent[v] not in taken]
    return out


def inside_whole(scheduler: Scheduler, v: int, moment: int) -> bool:
    """Whether a vertex is counted with an exclusive vertex, itself or above."""
    found = set(tops(scheduler, moment))
    return v in found or any(up in found for up in scheduler.graph.ancestors(v))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_history_of_jobs_books_anything_twice_or_loses_count(policy: str) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(), policy, ["core", "memory"])
        now = 0
        for jobid in range(60):
            if rng.random() < 0.2:
                now += rng.randint(1, 12)
            if scheduler.jobs and rng.random() < 0.3:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            request = parse_jobspec(spec(rng))
            if rng.random() < 0.5:
                scheduler.allocate(jobid, request, now)
            else:
                scheduler.reserve(jobid, request, now)
            if jobid % 10 == 0:
                assert_consistent(scheduler)
        assert_consistent(scheduler)
        for jobid in list(scheduler.jobs):
            scheduler.cancel(jobid)
        assert all(planner.idle for planner in (*scheduler.plans.values(), *scheduler.shared.values()))
        assert all(planner.idle for counts in scheduler.busy.values() for planner in counts.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_reservation_is_what_a_search_finds_at_the_earliest_moment(policy: str) -> None:
    later = 0
    for seed in range(6):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(), policy, ["core", "memory"])
        now = 0
        for jobid in range(50):
            if rng.random() < 0.2:
                now += rng.randint(1, 12)
            if scheduler.jobs and rng.random() < 0.2:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            request = parse_jobspec(spec(rng))
            expected = None
            for at in [
                now,
                *sorted({job.end for job in scheduler.jobs.values() if now < job.end < scheduler.graph.end}),
            ]:
                picks = scheduler.matcher(request, at).match(request.resources)
                if picks is not None:
                    chosen = select(scheduler.graph, picks, scheduler.policy.whole).items
                    expected = (at, [(i.vertex, i.needs, i.exclusive) for i in chosen])
                    break
            found = scheduler.reserve(jobid, request, now).allocation
            if found is None:
                assert expected is None
            else:
                assert (found.start, [(i.vertex, i.needs, i.exclusive) for i in found.selection.items]) == expected
                later += found.reserved
    assert later > 20


def test_part_of_a_job_can_be_given_back() -> None:
    scheduler = Scheduler(cluster(), "low")
    node = {"type": "node", "count": 1}
    request = parse_jobspec({"resources": [{"type": "slot", "count": 2, "label": "t", "with": [node]}]})
    whole = scheduler.allocate(1, request, 0).allocation
    assert whole is not None
    first = next(v for v, mark in whole.selection.marks.items() if mark.whole)
    part = select(scheduler.graph, [], frozenset())
    part.marks[first] = whole.selection.marks[first]
    part.marks[scheduler.graph.root] = whole.selection.marks[scheduler.graph.root]
    part.below[scheduler.graph.root] = [first]
    scheduler.release(1, part)
    assert scheduler.free(first, "core", 0) == 6
    assert scheduler.busy[scheduler.graph.root]["core"].at(0) == 6


def test_entering_what_is_taken_names_the_vertex_and_changes_nothing() -> None:
    scheduler = Scheduler(cluster(), "low")
    request = parse_jobspec(
        {"resources": [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}]}
    )
    held = scheduler.allocate(1, request, 0).allocation
    assert held is not None
    before = scheduler.busy[scheduler.graph.root]["core"].used[:]
    with pytest.raises(SpanConflictError, match="core0"):
        scheduler.add(2, held.selection, 0, 10, False)
    assert scheduler.busy[scheduler.graph.root]["core"].used == before
    assert 2 not in scheduler.jobs


def test_refusal_says_what_is_short() -> None:
    scheduler = Scheduler(cluster(), "low")
    request = parse_jobspec(
        {"resources": [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 99}]}]}
    )
    outcome = scheduler.allocate(1, request, 0, check_satisfiable=True)
    assert outcome.unsatisfiable
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.wanted, outcome.failure.available) == ("core", 99, 24)
    text = explain(scheduler.graph, outcome.failure)
    assert text.startswith("99 core wanted, 24 can be had in the whole graph")
