"""The index of free resources answers exactly as the search does, after any history of jobs."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec, shapes
from headrace.sched.graph.layout import Layout
from headrace.sched.graph.matcher import Matcher
from headrace.sched.graph.policies import Policy, by_name
from headrace.sched.graph.selection import Selection, from_vertices, select

# All of these have an index. The others are searched, so that there is nothing to compare.
POLICIES = ["first", "low", "high", "lonode", "hinode", "firstnodex", "lonodex", "hinodex", "locality", "variation"]
POLICIES += ["packed", "spread"]


def cluster(
    nodes: int = 5,
    sockets: int = 2,
    cores: int = 4,
    gpus: int = 1,
    racks: int = 0,
    step: int = 1,
    loose: int = 0,
    alike: bool = False,
    pools: bool = False,
) -> Graph:
    """A cluster; with racks, node ids fall from rack to rack, so that neither order is the graph's.

    Ids of cores are `step` apart; `loose` cores are in the node itself, beside its sockets. If `alike`, each socket
    numbers its cores from 0. With `pools`, nodes have pools of different sizes and ids, and one of a single unit.
    """
    graph = Graph()
    root = graph.add("cluster", id=0)
    above = [graph.add("rack", root, id=r) for r in range(racks)] or [root]
    for n in range(nodes):
        number = nodes - 1 - n if racks else n
        node = graph.add("node", above[n * len(above) // nodes], id=number, rank=number)
        holders = [graph.add("socket", node, id=s) for s in range(sockets)] or [node]
        for s, holder in enumerate(holders):
            for c in range(cores):
                graph.add("core", holder, id=((0 if alike else s) * cores + c) * step, rank=n)
            for g in range(gpus):
                graph.add("gpu", holder, id=s * gpus + g, rank=n)
        for c in range(loose):
            graph.add("core", node, id=1000 + c, rank=n)
        if pools:
            graph.add("memory", node, id=0, size=8 + 4 * (n % 2))
            graph.add("disk", node, id=n * 2 % 3, size=3)
            graph.add("license", node, id=0)
    return graph.finish()


def set_class(scheduler: Scheduler, node: int, number: int) -> None:
    """Set the property that the policy goes by; for a policy without one, a property that must not matter."""
    scheduler.set_property(node, scheduler.policy.node_property or "perf_class", str(number))


def spec(rng: random.Random, pools: bool = False) -> dict[str, Any]:
    inside: list[dict[str, Any]] = [{"type": "core", "count": rng.randint(1, 4)}]
    if rng.random() < 0.4:
        inside.append({"type": "gpu", "count": 1})
    if pools and rng.random() < 0.6:
        inside = [
            {"type": kind, "count": rng.randint(1, most), "exclusive": rng.random() < 0.1}
            for kind, most in (("memory", 5), ("disk", 2), ("license", 1))
            if rng.random() < 0.5
        ] or [{"type": "memory", "count": 3, "exclusive": False}]
    slot: dict[str, Any] = {"type": "slot", "count": rng.choice([1, 1, 2, 3, 3, 7]), "label": "t", "with": inside}
    kind = rng.random()
    if kind < 0.4:
        resources = [slot]
    elif kind < 0.82:
        resources = [{"type": "node", "count": rng.choice([1, 1, 2]), "with": [slot]}]
    elif kind < 0.9:
        resources = [
            {"type": "slot", "count": rng.choice([1, 2]), "label": "t", "with": [{"type": "node", "count": 1}]}
        ]
    elif kind < 0.96:
        resources = [{"type": "node", "count": rng.choice([1, 2]), "exclusive": True, "with": [slot]}]
    else:
        resources = [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "socket", "count": 1}]}]
    system: dict[str, Any] = {"duration": 100}
    if rng.random() < 0.2:
        system["constraints"] = {"hostlist": [f"node{rng.randint(0, 4)}", f"node{rng.randint(0, 4)}"]}
    return {"version": 1, "resources": resources, "tasks": [], "attributes": {"system": system}}


def searched(scheduler: Scheduler, request: Any, at: int = 0) -> Any:
    """What a search without the index chooses."""
    matcher: Matcher = scheduler.matcher(request, at)
    picks = matcher.match(request.resources)
    return None if picks is None else taken(select(scheduler.graph, picks, scheduler.policy.whole))


def taken(selection: Selection) -> list[tuple[int, int, bool]]:
    return [(item.vertex, item.needs, item.exclusive) for item in selection.items]


CLUSTERS: dict[str, dict[str, int]] = {
    "no sockets": {"sockets": 0},
    "sockets": {},
    "racks": {"racks": 2},
    "gaps between ids": {"sockets": 3, "step": 3},
    "cores beside sockets": {"loose": 2},
    "equal ids in sockets": {"alike": True},
    "pools": {"sockets": 0, "pools": True},
    "pools beside sockets in racks": {"pools": True, "racks": 2},
}


@pytest.mark.parametrize("made", CLUSTERS)
@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_has_an_index(name: str, made: str) -> None:
    policy = by_name(name)
    # A search that stops tries racks, and nodes in them, in orders that the index does not know.
    expected = not (policy.stops and "racks" in made)
    assert Layout(cluster(**CLUSTERS[made]), policy).usable == expected, (
        f"every request of the policy {name} is searched, so this file compares nothing: take it out of POLICIES"
    )


def combinations() -> list[Policy]:
    """Policies with all combinations of fields, named by them."""
    found = []
    for fields in product((1, 0, -1), (False, True), (0, 10_000), ("", "node", "socket"), (False, True), ("", "class")):
        order, stops, weight, whole, close, node_property = fields
        types = frozenset({whole} - {""})
        found.append(Policy(repr(fields), "", order, stops, weight, types, close, node_property))
    found += [policy._replace(name=f"{policy.name} by use", by_use=1) for policy in found]
    return found


SERVED = [policy for policy in combinations() if Layout(cluster(), policy).usable]


@pytest.mark.parametrize("made", CLUSTERS)
@pytest.mark.parametrize("policy", SERVED, ids=lambda policy: policy.name)
def test_the_index_serves_no_policy_by_which_a_search_chooses_otherwise(policy: Policy, made: str) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(**CLUSTERS[made]), policy)
        for node in scheduler.graph.nodes():
            set_class(scheduler, node, rng.randint(0, 2))
        for jobid in range(60):
            if scheduler.jobs and rng.random() < 0.35:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            request = parse_jobspec(spec(rng, "pools" in made))
            expected = searched(scheduler, request)
            allocation = scheduler.allocate(jobid, request, 0).allocation
            assert (None if allocation is None else taken(allocation.selection)) == expected


@pytest.mark.parametrize("made", CLUSTERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_index_chooses_as_the_search_does(policy: str, made: str) -> None:
    answered = 0
    for seed in range(6):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(**CLUSTERS[made]), policy)
        for jobid in range(120):
            if scheduler.jobs and rng.random() < 0.35:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            if rng.random() < 0.15:
                scheduler.set_status(rng.randrange(1, len(scheduler.graph)), rng.random() < 0.6)
            if rng.random() < 0.05:
                set_class(scheduler, rng.choice(scheduler.graph.nodes()), rng.randint(0, 2))
            request = parse_jobspec(spec(rng, "pools" in made))
            expected = searched(scheduler, request)
            allocation = scheduler.allocate(jobid, request, 0).allocation
            assert (None if allocation is None else taken(allocation.selection)) == expected
            answered += allocation is not None
    assert answered > 60


@pytest.mark.parametrize("made", CLUSTERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_index_sees_reservations_as_the_search_does(policy: str, made: str) -> None:
    answered = 0
    for seed in range(4):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(**CLUSTERS[made]), policy)
        for jobid in range(80):
            if scheduler.jobs and rng.random() < 0.35:
                scheduler.cancel(rng.choice(list(scheduler.jobs)))
            if rng.random() < 0.15:
                scheduler.set_status(rng.randrange(1, len(scheduler.graph)), rng.random() < 0.6)
            request = parse_jobspec(spec(rng, "pools" in made)).lasting(rng.randint(1, 60))
            at = rng.choice([0, 0, rng.randint(1, 90)])
            expected = searched(scheduler, request, at)
            selection, end, _ = scheduler.match_at(request, at)
            assert (None if selection is None else taken(selection)) == expected
            if selection is not None:
                # Starts in the future stay in the future: time does not go by here.
                scheduler.add(jobid, selection, at, end, at > 0)
                answered += at > 0
    assert answered > 20


def pods(nodes: int = 6) -> Graph:
    """Nodes as the cluster's queue has them: cpu and memory are pools; the third node is larger."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        graph.add("cpu", node, id=0, size=40 if n == 2 else 10, unit="m")
        graph.add("memory", node, id=0, size=32)
    return graph.finish()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", ["packed", "spread"])
def test_the_use_of_pools_is_compared_as_the_search_does(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    scheduler = Scheduler(pods(), policy)
    pools = [v for v in scheduler.graph.vertices() if scheduler.graph.type[v] == "cpu"]
    answered = 0
    for jobid in range(150):
        if scheduler.jobs and rng.random() < 0.35:
            scheduler.cancel(rng.choice(list(scheduler.jobs)))
        if rng.random() < 0.1:
            scheduler.set_status(rng.randrange(1, len(scheduler.graph)), rng.random() < 0.6)
        if rng.random() < 0.1:
            for broken in scheduler.set_size(rng.choice(pools), rng.randint(2, 20)):
                scheduler.cancel(broken)
        asked = rng.choice(
            (
                [units(rng.randint(1, 4), cpu=rng.randint(1, 4))],
                [units(1, cpu=rng.randint(1, 3), memory=rng.randint(1, 4))],
                [units(2, memory=3)],
                nodes(rng.randint(1, 2), units(rng.randint(1, 2), cpu=2)),
                [{"type": "node", "count": 1, "exclusive": True}],
            )
        )
        request = parse_jobspec({"resources": asked}).lasting(rng.randint(1, 60))
        at = rng.choice([0, 0, rng.randint(1, 90)])
        promised = [held for held in scheduler.jobs.values() if held.start > at]
        if promised and rng.random() < 0.3:
            scheduler.lift(rng.choice(promised).jobid)
            found = scheduler.match_at(request, at).selection
            assert (None if found is None else taken(found)) == searched(scheduler, request, at)
            scheduler.restore()
        expected = searched(scheduler, request, at)
        selection, end, _ = scheduler.match_at(request, at)
        assert (None if selection is None else taken(selection)) == expected
        if selection is not None:
            scheduler.add(jobid, selection, at, end, at > 0)
            answered += at > 0
    assert answered > 15


@pytest.mark.parametrize("policy", ["lonode", "low", "packed", "spread"])
def test_a_long_log_of_changes_is_dropped_and_the_choice_stays(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_MAX_CHANGES", 5)
    rng = random.Random(1)
    scheduler = Scheduler(cluster(), policy)
    for jobid in range(200):
        if scheduler.jobs and rng.random() < 0.45:
            scheduler.cancel(rng.choice(list(scheduler.jobs)))
        request = parse_jobspec(spec(rng))
        expected = searched(scheduler, request)
        allocation = scheduler.allocate(jobid, request, 0).allocation
        assert (None if allocation is None else taken(allocation.selection)) == expected


@pytest.mark.parametrize("made", CLUSTERS)
@pytest.mark.parametrize("policy", ["first", "low", "lonode", "hinodex", "packed", "spread"])
def test_a_lifted_reservation_is_as_if_it_were_not_there_and_comes_back(policy: str, made: str) -> None:
    for seed in range(3):
        rng = random.Random(seed)
        scheduler = Scheduler(cluster(**CLUSTERS[made]), policy)
        for jobid in range(60):
            request = parse_jobspec(spec(rng, "pools" in made)).lasting(rng.randint(1, 60))
            at = rng.choice([0, rng.randint(1, 90)])
            promised = [held for held in scheduler.jobs.values() if held.start]
            if promised:
                lifted = rng.choice(promised)
                before = searched(scheduler, request, at)
                scheduler.lift(lifted.jobid)
                selection = scheduler.match_at(request, at).selection
                scheduler.restore()
                assert searched(scheduler, request, at) == before
                if lifted.start >= at + request.duration or lifted.end <= at:
                    # It is not in the way, so nothing changes.
                    assert (None if selection is None else taken(selection)) == before
            outcome = scheduler.match_at(request, at)
            if outcome.selection is not None:
                scheduler.add(jobid, outcome.selection, at, outcome.end, at > 0)


def slot(count: int, *inside: tuple[str, int]) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "t", "with": [{"type": t, "count": n} for t, n in inside]}


def nodes(count: int, *inside: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "node", "count": count, "with": list(inside)}]


# What the index is there for.
COMMON: list[list[dict[str, Any]]] = [
    [slot(1, ("core", 1))],
    [slot(5, ("core", 1))],
    [slot(2, ("core", 2), ("gpu", 1))],
    nodes(1, slot(1, ("core", 1))),
    nodes(2, slot(3, ("core", 1))),
    nodes(3, slot(1, ("core", 2), ("gpu", 1))),
    [slot(2, ("node", 1))],
    [{"type": "node", "count": 3, "exclusive": True}],
    [{"type": "node", "count": 2, "exclusive": True, "with": [slot(2, ("core", 2))]}],
]


def socket(count: int, *inside: dict[str, Any], exclusive: bool | None = None) -> dict[str, Any]:
    given = {} if exclusive is None else {"exclusive": exclusive}
    return {"type": "socket", "count": count, "with": list(inside), **given}


def of_sockets(count: int, sockets: dict[str, Any]) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "t", "with": [sockets]}


CORES, GPU = {"type": "core", "count": 2}, {"type": "gpu", "count": 1}
# As COMMON, where a graph has sockets that hold all cores and GPUs.
NESTED: list[list[dict[str, Any]]] = [
    nodes(2, socket(1, slot(1, ("core", 2), ("gpu", 1)))),
    nodes(1, socket(1, slot(2, ("core", 1)))),
    nodes(1, socket(2, slot(3, ("core", 1)))),
    nodes(2, socket(1, slot(1, ("core", 1)), exclusive=True)),
    nodes(2, of_sockets(1, socket(1, CORES, GPU))),
    nodes(1, of_sockets(1, socket(1, CORES, exclusive=True))),
    [{"type": "node", "count": 2, "exclusive": True, "with": [socket(1, slot(2, ("core", 2)))]}],
    [{"type": "node", "count": 1, "exclusive": True, "with": [of_sockets(2, socket(1, CORES, GPU))]}],
]


def units(count: int, **inside: int) -> dict[str, Any]:
    return {
        "type": "slot",
        "count": count,
        "label": "t",
        "with": [{"type": kind, "count": amount, "exclusive": False} for kind, amount in inside.items()],
    }


# As COMMON, where nodes have pools.
POOLED: list[list[dict[str, Any]]] = [
    [units(1, memory=3)],
    [units(5, memory=2, disk=1)],
    [units(3, license=1)],
    nodes(1, units(1, memory=1, license=1)),
    nodes(2, units(2, memory=3)),
    [{"type": "node", "count": 2, "exclusive": True, "with": [units(2, memory=2, disk=1)]}],
]
# What is put together from these, and what is in the way of them in other ways.
OTHERS: list[list[dict[str, Any]]] = [
    nodes(1, of_sockets(1, socket(2, CORES))),
    nodes(1, of_sockets(2, socket(1, CORES, exclusive=True))),
    nodes(1, socket(2, slot(1, ("core", 1)), exclusive=True)),
    nodes(2, {"type": "socket", "count": 1}),
    [of_sockets(2, socket(1, CORES))],
    [socket(1, slot(1, ("core", 3)))],
    [{"type": "socket", "count": 1, "with": [{"type": "core", "count": 1, "exclusive": True}]}],
    nodes(1, {"type": "memory", "count": 3}),
    nodes(1, {"type": "license", "count": 1}),
    [slot(1, ("memory", 1))],
    [slot(2, ("license", 1))],
    [{"type": "slot", "count": 2, "label": "t", "with": [CORES, *units(1, memory=2)["with"]]}],
    [units(1, core=2)],
    [{**units(1, memory=2), "count": {"min": 2, "max": 4}}],
]
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("match"), st.integers(0, 99), st.integers(1, 60), st.sampled_from([0, 0, 0, 30, 70])),
        st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0), st.just(0)),
        st.tuples(st.just("status"), st.integers(1, 999), st.booleans(), st.just(0)),
        st.tuples(st.just("class"), st.integers(0, 99), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("size"), st.integers(0, 99), st.integers(0, 14), st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 99), st.integers(1, 20), st.sampled_from([0, 0, 30])),
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(made=st.sampled_from(sorted(CLUSTERS)), history=HISTORIES)
def test_any_history_leads_both_to_the_same_choice(
    policy: str, made: str, history: list[tuple[str, int, int, int]]
) -> None:
    scheduler = Scheduler(cluster(**CLUSTERS[made]), policy)
    graph = scheduler.graph
    for jobid, (what, a, b, at) in enumerate(history):
        if what == "status":
            scheduler.set_status(a % len(graph), bool(b))
        elif what == "class":
            set_class(scheduler, graph.nodes()[a % len(graph.nodes())], b)
        elif what in ("size", "hold"):
            pools = [v for v in graph.vertices() if graph.type[v] in ("memory", "disk", "license")]
            if pools:
                v = pools[a % len(pools)]
                held = from_vertices(graph, [(v, b, True)])
                broken = scheduler.set_size(v, b) if what == "size" else scheduler.hold(jobid, held, 0, at + 10)
                for other in broken:
                    scheduler.cancel(other)
        elif what == "cancel" and scheduler.jobs:
            scheduler.cancel(list(scheduler.jobs)[a % len(scheduler.jobs)])
        elif what == "match":
            asked = COMMON + NESTED + POOLED + OTHERS
            resources = asked[a % len(asked)]
            request = parse_jobspec({"resources": resources, "attributes": {"system": {"duration": b}}})
            expected = searched(scheduler, request, at)
            selection, end, _ = scheduler.match_at(request, at)
            assert (None if selection is None else taken(selection)) == expected
            if selection is not None:
                # What is chosen is free, so it can be added with a check.
                scheduler.add(jobid, selection, at, end, at > 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("pools", [False, True])
def test_common_requests_are_answered_without_a_search(
    policy: str, pools: bool, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(self: Matcher, requests: Any) -> None:
        raise AssertionError(f"a search for {requests[0].type}")

    scheduler = Scheduler(cluster(nodes=80, pools=pools), policy)
    set_class(scheduler, scheduler.graph.nodes()[7], 1)
    if busy:
        for jobid in range(100, 103):
            assert scheduler.allocate(jobid, parse_jobspec({"resources": [slot(9, ("core", 1))]}), 0).allocation
    monkeypatch.setattr(Matcher, "match", search)
    for jobid, resources in enumerate(COMMON + NESTED + (POOLED if pools else [])):
        outcome = scheduler.allocate(jobid, parse_jobspec({"resources": resources}), 0)
        assert outcome.allocation is not None
        if resources in POOLED:
            assert scheduler.reserve(1000 + jobid, parse_jobspec({"resources": resources}), 0).allocation is not None
