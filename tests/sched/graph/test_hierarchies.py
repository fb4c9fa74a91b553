"""Over any graph of several hierarchies and any history: nothing is held twice, and what is counted above it is right.

Vertices have parents in containment, some of them several, and in power; jobs are matched in either.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.model import GraphError
from headrace.sched.graph.selection import from_vertices
from headrace.sched.graph.usage import Allocation

POLICIES = ["first", "low", "high", "hinodex"]


def slot(*inside: tuple[str, int]) -> dict[str, Any]:
    return {"type": "slot", "count": 1, "label": "t", "with": [{"type": kind, "count": n} for kind, n in inside]}


SHAPES: list[dict[str, Any]] = [
    slot(("core", 1)),
    slot(("node", 1)),
    {"type": "rack", "count": 1, "with": [{"type": "unit", "count": 1, "with": [{"type": "disk", "count": 7}]}]},
    {"type": "store", "count": 1, "with": [{"type": "unit", "count": 1, "with": [{"type": "disk", "count": 7}]}]},
    {"type": "unit", "count": 1, "exclusive": True},
    {"type": "rack", "count": 1, "exclusive": True},
    {"type": "pdu", "count": 1, "with": [{"type": "node", "count": 1, "exclusive": True}]},
    {"type": "pdu", "count": 1, "exclusive": True},
    {"type": "disk", "count": 12},
]
STEPS = st.one_of(
    st.tuples(st.just("allocate"), st.integers(0, len(SHAPES) - 1), st.sampled_from(["containment", "power"])),
    st.tuples(st.just("allocate"), st.integers(0, len(SHAPES) - 1), st.just("containment")),
    st.tuples(st.just("cancel"), st.integers(0, 99), st.just("")),
    st.tuples(st.just("release"), st.integers(0, 99), st.just("")),
    st.tuples(st.just("status"), st.integers(0, 99), st.just("")),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Racks of nodes and storage units, which may belong to stores, too; power distribution units feed some of both."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    racks = [graph.add("rack", root, id=r) for r in range(draw(st.integers(1, 3)))]
    stores = [graph.add("store", root, id=s) for s in range(draw(st.integers(0, 2)))]
    nodes, units, disks = [], [], []
    for r, rack in enumerate(racks):
        for n in range(draw(st.integers(0, 2))):
            node = graph.add("node", rack, id=3 * r + n, rank=3 * r + n)
            nodes.append(node)
            for c in range(2):
                graph.add("core", node, id=c)
        for u in range(draw(st.integers(0, 2))):
            unit = graph.add("unit", rack, id=3 * r + u)
            units.append(unit)
            disks += [graph.add("disk", unit, id=d, size=10) for d in range(2)]
    for v in [*units, *disks]:
        for store in stores:
            if draw(st.booleans()):
                graph.place(v, store)
    power = graph.hierarchy("power")
    panel = power.add("panel", id=0)
    pdus = [power.add("pdu", panel, id=p) for p in range(2)]
    for v in [*nodes, *units]:
        for pdu in pdus:
            if draw(st.booleans()):
                power.place(v, pdu)
    return graph.finish()


def below(tree: Graph, v: int) -> set[int]:
    """`v` and all below it in a hierarchy."""
    found = {v}
    for child in tree.children[v]:
        found |= below(tree, child)
    return found


def held(job: Allocation) -> dict[int, int]:
    """The units that a job keeps from others."""
    tree = job.selection.graph
    found: dict[int, int] = {}
    for v, needs, exclusive, _, _ in job.selection.items:
        if exclusive:
            found.update({u: tree.size[u] for u in below(tree, v)})
        elif tree.size[v] > 1 and not tree.children[v]:
            found.setdefault(v, needs)
    return found


def check(graph: Graph, scheduler: Scheduler) -> None:
    jobs = list(scheduler.jobs.values())
    in_use: dict[int, int] = defaultdict(int)
    for job in jobs:
        for v, amount in held(job).items():
            in_use[v] += amount
    assert all(amount <= graph.size[v] for v, amount in in_use.items())
    for job in jobs:
        own = {item.vertex for item in job.selection.items if item.exclusive}
        for other in jobs:
            if other is not job:
                assert own.isdisjoint(item.vertex for item in other.selection.items)
    for tree in graph.hierarchies.values():
        counted = {
            (v, kind): planner.at(0)
            for v, planners in scheduler.aggregates[tree.subsystem].items()
            for kind, planner in planners.items()
            if planner.at(0)
        }
        wanted: dict[tuple[int, str], int] = defaultdict(int)
        for v in graph.vertices():
            for u in below(tree, v) - {v}:
                if in_use[u]:
                    wanted[v, graph.type[u]] += in_use[u]
            sums: dict[str, int] = defaultdict(int)
            for u in below(tree, v) if tree.has(v) else ():
                sums[graph.type[u]] += graph.size[u]
            assert tree.totals[v] == sums
        assert counted == wanted


@settings(deadline=None, max_examples=60)
@given(graphs(), st.sampled_from(POLICIES), st.lists(STEPS, max_size=14))
def test_nothing_is_held_twice_and_every_hierarchy_counts_what_is_held(
    graph: Graph, policy: str, steps: list[tuple[str, int, str]]
) -> None:
    scheduler = Scheduler(graph, policy, ("core", "disk"))
    for jobid, (step, number, subsystem) in enumerate(steps):
        jobs = sorted(scheduler.jobs)
        if step == "allocate":
            scheduler.allocate(jobid, parse_jobspec({"resources": [SHAPES[number]]}), 0, subsystem=subsystem)
        elif step == "status":
            v = number % len(graph)
            scheduler.set_status(v, not graph.up[v])
        elif jobs:
            job = scheduler.jobs[jobs[number % len(jobs)]]
            if step == "cancel":
                scheduler.cancel(job.jobid)
            else:
                items = [item for item in job.selection.items if item.exclusive]
                part = items[number % len(items)] if items else None
                if part is not None:
                    tree = job.selection.graph
                    scheduler.release(job.jobid, from_vertices(tree, [(part.vertex, part.needs, True)]))
        check(graph, scheduler)
    for jobid in list(scheduler.jobs):
        scheduler.cancel(jobid)
    check(graph, scheduler)
    assert not scheduler.shared
    assert all(planner.at(0) == 0 for planner in scheduler.plans.values())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_edges_make_a_hierarchy_without_cycles_or_are_refused(edges: list[tuple[int, int]]) -> None:
    graph = Graph()
    for i in range(7):
        graph.add("vertex", id=i)
    try:
        for parent, child in edges:
            graph.place(child, parent)
        graph.finish()
    except GraphError:
        return
    assert len(graph.preorder(graph.root)) == 7
    assert all(v not in graph.ancestors(v) for v in range(7))
