"""Over any history of operations: nothing is held twice, counts equal a recount, and giving back leaves nothing."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.selection import from_vertices
from headrace.sched.graph.usage import Allocation, SpanConflictError

POLICIES = ["first", "low", "hinode", "lonodex", "locality"]


def cluster() -> Graph:
    """Four nodes of two sockets with two cores, a GPU and a pool of eight units of memory each."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(4):
        node = graph.add("node", root, id=n, rank=n)
        for s in range(2):
            socket = graph.add("socket", node, id=s)
            for c in range(2):
                graph.add("core", socket, id=s * 2 + c)
            graph.add("gpu", socket, id=s)
            graph.add("memory", socket, id=s, size=8)
    return graph.finish()


def slot(count: int, *inside: tuple[str, int]) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "t", "with": [{"type": t, "count": n} for t, n in inside]}


SHAPES: list[list[dict[str, Any]]] = [
    [slot(1, ("core", 1))],
    [slot(2, ("core", 2))],
    [slot(1, ("core", 1), ("gpu", 1))],
    [slot(1, ("core", 1), ("memory", 5))],
    [{"type": "slot", "count": 3, "with": [{"type": "memory", "count": 3, "exclusive": False}]}],
    [
        {
            "type": "slot",
            "count": 2,
            "with": [{"type": "core", "count": 1}, {"type": "memory", "count": 5, "exclusive": False}],
        }
    ],
    [slot(1, ("socket", 1))],
    [slot(2, ("node", 1))],
    [{"type": "node", "count": 2, "with": [slot(1, ("core", 2))]}],
    [{"type": "node", "count": 1, "exclusive": True, "with": [slot(1, ("core", 1))]}],
    [{"type": "node", "count": 1, "with": [{"type": "socket", "count": 1, "with": [{"type": "memory", "count": 3}]}]}],
]
OPERATIONS = st.one_of(
    st.tuples(st.just("allocate"), st.integers(0, len(SHAPES) - 1), st.sampled_from([0, 5, 5, 20])),
    st.tuples(st.just("reserve"), st.integers(0, len(SHAPES) - 1), st.sampled_from([5, 10, 20])),
    st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0)),
    st.tuples(st.just("hand over"), st.integers(0, 99), st.just(0)),
    st.tuples(st.just("release"), st.integers(0, 99), st.integers(0, 99)),
    st.tuples(st.just("enter"), st.integers(0, 99), st.integers(0, 30)),
    st.tuples(st.just("status"), st.integers(0, 99), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 9), st.just(0)),
)


class World:
    """A scheduler with a clock, to which operations are done."""

    def __init__(self, policy: str) -> None:
        self.scheduler = Scheduler(cluster(), policy, ["core", "memory"])
        self.now = 0
        self.next = 0

    def _some(self, number: int) -> Allocation | None:
        jobs = list(self.scheduler.jobs.values())
        return jobs[number % len(jobs)] if jobs else None

    def do(self, operation: str, a: int, b: int) -> None:
        scheduler = self.scheduler
        self.next += 1
        if operation in ("allocate", "reserve"):
            system = {"attributes": {"system": {"duration": b}}}
            getattr(scheduler, operation)(self.next, parse_jobspec({"resources": SHAPES[a], **system}), self.now)
        elif operation == "wait":
            self.now += a
        elif operation == "status":
            scheduler.set_status(a % len(scheduler.graph), bool(b))
        elif (job := self._some(a)) is None:
            return
        elif operation == "cancel":
            scheduler.cancel(job.jobid)
        elif operation == "hand over":
            before = snapshot(scheduler)
            assert scheduler.hand_over(job.jobid, self.next) == job._replace(jobid=self.next)
            assert snapshot(scheduler) == before
            assert job.jobid not in scheduler.jobs
        elif operation == "release":
            taken = [i for i in job.selection.items if i.exclusive]
            freed = taken[: b % (len(taken) + 1)]
            part = from_vertices(scheduler.graph, [(i.vertex, i.needs, True) for i in freed])
            scheduler.release(job.jobid, part)
        else:
            # The same vertices at some other time, which may be free or not.
            before = snapshot(scheduler)
            try:
                scheduler.add(self.next, job.selection, self.now + b, self.now + b + 7, b > 0)
            except SpanConflictError:
                assert snapshot(scheduler) == before


def snapshot(scheduler: Scheduler) -> Any:
    """Everything that the planners say."""
    planners: list[Any] = [scheduler.plans, scheduler.shared, *scheduler.busy.values()]
    return [{k: (list(p.times), list(p.used)) for k, p in each.items() if p.times} for each in planners]


def recount(scheduler: Scheduler, moment: int) -> tuple[dict[int, int], dict[int, int], dict[int, dict[str, int]]]:
    """From the jobs alone: units held of each vertex, users that hold nothing countable of it, and what below it."""
    graph = scheduler.graph
    held: dict[int, int] = defaultdict(int)
    users: dict[int, int] = defaultdict(int)
    below: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for job in scheduler.jobs.values():
        if not job.start <= moment < job.end:
            continue
        items = {i.vertex: i for i in job.selection.order()}
        for v, item in items.items():
            above = [u for u in graph.ancestors(v) if u in items]
            pool = graph.size[v] > 1 and not graph.children[v]
            if item.exclusive and graph.children[v]:
                held[v] += graph.size[v]
            elif pool or item.exclusive:
                held[v] += item.needs
            elif not any(
                i.exclusive or (graph.size[u] > 1 and not graph.children[u])
                for u, i in items.items()
                if v in graph.ancestors(u)
            ):
                users[v] += 1
            if any(items[u].exclusive for u in above):
                continue
            amounts = {graph.type[v]: item.needs} if pool else graph.totals[v] if item.exclusive else {}
            for u in above:
                for name, amount in amounts.items():
                    below[u][name] += amount
    return held, users, below


def assert_sound(scheduler: Scheduler) -> None:
    graph = scheduler.graph
    jobs = scheduler.jobs.values()
    for moment in {job.start for job in jobs} | {job.end for job in jobs}:
        held, users, below = recount(scheduler, moment)
        for v in range(len(graph)):
            assert held.get(v, 0) <= graph.size[v], f"{graph.path(v)} is held twice at {moment}"
            plan, shared = scheduler.plans.get(v), scheduler.shared.get(v)
            assert (plan.at(moment) if plan else 0) == held.get(v, 0), (graph.path(v), moment)
            assert (shared.at(moment) if shared else 0) == users.get(v, 0), (graph.path(v), moment)
            counts = scheduler.busy.get(v, {})
            for name in set(counts) | set(below.get(v, {})):
                planner = counts.get(name)
                assert (planner.at(moment) if planner else 0) == below.get(v, {}).get(name, 0), (graph.path(v), name)
    for job in jobs:
        # What is given whole is out of reach for everybody else, whether it has planners of its own or not.
        covered = {i.vertex for i in job.selection.items if i.exclusive and i.needs == graph.size[i.vertex]}
        for other in jobs:
            if other.jobid < job.jobid and other.start < job.end and job.start < other.end:
                assert not covered & {i.vertex for i in other.selection.items if i.exclusive}, (job.jobid, other.jobid)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=100, deadline=None)
@given(operations=st.lists(OPERATIONS, min_size=12, max_size=40))
def test_any_history_books_nothing_twice_keeps_true_counts_and_frees_everything(
    policy: str, operations: list[tuple[str, int, int]]
) -> None:
    world = World(policy)
    scheduler = world.scheduler
    for operation in operations:
        world.do(*operation)
        assert_sound(scheduler)
    for jobid in list(scheduler.jobs):
        scheduler.cancel(jobid)
    assert snapshot(scheduler) == [{} for _ in range(2 + len(scheduler.busy))]
    for v in range(len(scheduler.graph)):
        scheduler.set_status(v, True)
    everything = parse_jobspec({"resources": [slot(4, ("node", 1))]})
    assert scheduler.allocate(0, everything, world.now).allocation is not None
