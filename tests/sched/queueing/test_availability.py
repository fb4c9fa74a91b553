"""The availability profile leaves out only what the graph would refuse, whatever was entered and taken out before."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.availability import AvailabilityProfile
from headrace.sched.queueing.queue import Planned, Queue, Started

_END = 200


def cluster(sockets: int = 2) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(3):
        node = graph.add("node", root, id=n, rank=n)
        for s in range(sockets):
            at = graph.add("socket", node, id=s) if sockets > 1 else node
            for c in range(4):
                graph.add("core", at, id=4 * s + c)
            graph.add("gpu", at, id=s)
        graph.add("memory", node, id=0, size=8)
        for d in range(2):
            graph.add("disk", node, id=d, size=4)
    return graph.finish()


def units(count: int, **inside: int) -> dict[str, Any]:
    """Slots of quantities of pools."""
    found = slot(count, **inside)
    return {**found, "with": [{**part, "exclusive": False} for part in found["with"]]}


def slot(count: int, **inside: int) -> dict[str, Any]:
    return {"type": "slot", "label": "t", "count": count, "with": [{"type": t, "count": n} for t, n in inside.items()]}


def request(resource: dict[str, Any], duration: int, constraint: Any = None) -> Any:
    system = {"duration": duration, **({"constraints": constraint} if constraint else {})}
    return parse_jobspec({"resources": [resource], "attributes": {"system": system}})


SHAPES = [
    slot(1, core=1),
    slot(1, core=3),
    slot(2, core=2),
    slot(1, core=2, gpu=1),
    slot(5, core=1),
    {"type": "node", "count": 1, "exclusive": True},
    {"type": "node", "count": 2, "exclusive": True},
    {"type": "node", "count": 2, "with": [slot(1, core=2)]},
    {"type": "slot", "label": "t", "count": 1, "with": [{"type": "node", "count": 1}]},
    {"type": "socket", "count": 1, "exclusive": True},
    units(1, memory=3),
    units(5, memory=2),
    units(1, disk=3),
    slot(1, memory=2),
    {"type": "node", "count": 2, "with": [units(2, memory=3)]},
    {"type": "node", "count": 1, "with": [{"type": "memory", "count": 2}]},
]

steps = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.integers(1, 40), st.booleans(), st.integers(0, 100)), min_size=4, max_size=24
)


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from(["first", "low", "lonode", "lonodex"]), st.sampled_from([1, 2]))
def test_every_moment_at_which_a_request_fits_is_in_an_opening(
    plan: list[tuple[Any, int, bool, int]], policy: str, sockets: int
) -> None:
    scheduler = Scheduler(cluster(sockets), policy)
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    for jobid, (shape, duration, keep, ask) in enumerate(plan):
        wanted = request(shape, duration)
        asked = profile.need(wanted.resources, None)
        fits = [t for t in range(0, 130, 3) if scheduler.match_at(wanted, t)[0] is not None]
        if asked is not None:
            opened = list(profile.windows(asked, duration, [(0, _END)], 2**62))
            assert all(any(a <= t < b for a, b, _ in opened) for t in fits), (shape, fits, opened)
            for t in fits:
                # What is said not to serve is not chosen.
                [may] = [may for a, b, may in opened if a <= t < b]
                free, left = (scheduler.match_at(wanted, t, among)[0] for among in (None, may))
                assert free is not None
                assert left is not None
                assert left.marks == free.marks
        if fits:
            at = fits[ask % len(fits)]
            selection, end, _ = scheduler.match_at(wanted, at)
            assert selection is not None
            profile.add(jobid, scheduler.add(jobid, selection, at, end, at > 0))
        if not keep:
            gone = next(iter(scheduler.jobs), None)
            if gone is not None:
                profile.remove(gone)
                scheduler.cancel(gone)


@settings(max_examples=100, deadline=None)
@given(steps, st.sampled_from(["low", "lonode"]), st.integers(0, 60), st.integers(1, 40), st.integers(1, 2**6 - 1))
def test_no_place_stays_free_for_longer_than_its_reach(
    plan: list[tuple[Any, int, bool, int]], policy: str, begin: int, length: int, of: int
) -> None:
    """Whatever opening at least one of the places has within a span ends before the reach says."""
    scheduler = Scheduler(cluster(), policy)
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    for jobid, (shape, duration, _, at) in enumerate(plan):
        wanted = request(shape, duration)
        asked = profile.need(wanted.resources, None)
        if asked is not None:
            one = asked._replace(wanted=1, of=of)
            longest, latest = profile.longest_window(one, 0, begin, begin + 20)
            free = [t for t in range(_END) if profile.fits(one._replace(among=one.among & of), t, t + 1)]
            for t in range(begin + 20):
                if profile.fits(one._replace(among=one.among & of), t, t + length) and t + length > begin:
                    assert length <= longest
                    assert t + length <= latest
            if not any(begin <= t < begin + 20 for t in free):
                assert (longest, latest) == (0, 0)
        selection, end, _ = scheduler.match_at(wanted, at)
        if selection is not None:
            profile.add(jobid, scheduler.add(jobid, selection, at, end, at > 0))


def test_a_full_machine_opens_when_enough_has_ended_in_one_place() -> None:
    scheduler = Scheduler(cluster(), "lonode")
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    asked, whole = (profile.need(request(shape, 10).resources, None) for shape in (SHAPES[1], SHAPES[5]))
    assert asked is not None
    assert whole is not None
    # Two jobs a socket, two sockets a node; the last socket has but two cores left.
    for jobid, end in enumerate([20, 21, 40, 22, 23, 24, 60, 25, 26, 27, 50]):
        assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 0
        allocation = scheduler.allocate(jobid, request(slot(1, core=2), end), 0).allocation
        assert allocation is not None
        profile.add(jobid, allocation)
    assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 21
    assert next(profile.windows(whole, 10, [(0, _END)], 2**62)).begin == 40
    profile.remove(2)
    assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 21
    assert next(profile.windows(whole, 10, [(0, _END)], 2**62)).begin == 22
    profile.remove(3)
    assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 0


def test_cores_that_come_back_open_nothing_where_the_gpu_is_in_use() -> None:
    scheduler = Scheduler(cluster(), "lonode")
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    asked = profile.need(request(SHAPES[3], 10).resources, None)
    assert asked is not None
    for jobid in range(12):
        shape = slot(1, core=1, gpu=1) if jobid % 2 == 0 else slot(1, core=3)
        allocation = scheduler.allocate(jobid, request(shape, 30), 0).allocation
        assert allocation is not None
        profile.add(jobid, allocation)
    profile.remove(1)
    assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 30
    profile.remove(0)
    assert next(profile.windows(asked, 10, [(0, _END)], 2**62)).begin == 0


def test_only_nodes_that_a_constraint_allows_count() -> None:
    scheduler = Scheduler(cluster(), "low")
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    allocation = scheduler.allocate(1, request(SHAPES[5], 50), 0).allocation
    assert allocation is not None
    profile.add(1, allocation)
    node = next(v for v, mark in allocation.selection.marks.items() if mark.exclusive)
    here = profile.need(request(SHAPES[0], 5).resources, frozenset([node]))
    assert here is not None
    assert next(profile.windows(here, 5, [(0, _END)], 2**62)).begin == 50


def test_a_search_that_is_cut_short_says_how_far_it_got() -> None:
    scheduler = Scheduler(cluster(), "low")
    profile = AvailabilityProfile(scheduler.graph, scheduler.policy.whole)
    for jobid in range(30):
        found = scheduler.reserve(jobid, request({"type": "node", "count": 3, "exclusive": True}, 5), 0).allocation
        assert found is not None
        profile.add(jobid, found)
    for jobid in range(0, 30, 2):
        profile.remove(jobid)
        scheduler.cancel(jobid)
    asked = profile.need(request(SHAPES[0], 6).resources, None)
    assert asked is not None
    [(start, end, _)] = profile.windows(asked, 6, [(0, _END)], profile.work + 200)
    assert start == end
    assert 0 < start < 150
    assert next(profile.windows(asked, 6, [(start, _END)], 2**62)).begin == 150


@pytest.mark.parametrize("odd", [{"type": "core", "count": 2}, slot(1, disk=4), units(1, disk=2), slot(1, socket=1)])
def test_what_is_not_counted_is_left_to_the_graph(odd: dict[str, Any]) -> None:
    profile = AvailabilityProfile(cluster(), frozenset())
    assert profile.need(request(odd, 5).resources, None) is None


@pytest.mark.parametrize("policy", ["hybrid", "conservative"])
@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(SHAPES), st.integers(1, 30), st.integers(1, 4), st.integers(0, 20)), max_size=25
    )
)
def test_with_and_without_the_profile_the_same_is_decided(policy: str, jobs: list[tuple[Any, int, int, int]]) -> None:
    def run() -> list[tuple[int, int, int]]:
        queue = Queue(Scheduler(cluster(), "low"), policy, budget=None)
        happened = []
        ends: list[tuple[int, int]] = []
        for now in range(600):
            for end, jobid in sorted(ends):
                if end == now:
                    queue.finish(jobid)
            for jobid, (shape, duration, _, arrival) in enumerate(jobs):
                if arrival == now:
                    queue.submit(jobid, request(shape, duration))
            for d in queue.schedule(now):
                happened.append((now, d.jobid, d.start if isinstance(d, Planned) else -1))
                if isinstance(d, Started):
                    ends.append((now + max(1, jobs[d.jobid][1] * jobs[d.jobid][2] // 4), d.jobid))
        return happened

    decided = run()
    with patch.object(AvailabilityProfile, "need", return_value=None):
        assert run() == decided


def test_nodes_that_came_later_are_given_too_even_in_the_place_of_others() -> None:
    def node(n: int) -> Graph:
        graph = Graph()
        at = graph.add("node", graph.add("cluster", id=0), id=n, rank=n)
        for s in range(2):
            socket = graph.add("socket", at, id=s)
            for c in range(4):
                graph.add("core", socket, id=4 * s + c)
            graph.add("gpu", socket, id=s)
        return graph.finish()

    queue = Queue(Scheduler(cluster(), "low"), "conservative")
    for jobid in range(8):
        queue.submit(jobid, request({"type": "node", "count": 1, "exclusive": True}, 100))
    assert sum(isinstance(d, Started) for d in queue.schedule(0)) == 3
    queue.scheduler.grow(node(7))
    queue.touch()
    assert sum(isinstance(d, Started) for d in queue.schedule(1)) == 1
    queue.drop_plans()
    for jobid in queue.scheduler.shrink(0b10, take=True).ended:
        queue.running.discard(jobid)
    queue.scheduler.grow(node(8))
    queue.touch()
    assert sum(isinstance(d, Started) for d in queue.schedule(2)) == 1
    assert sorted(queue.planned) == [5, 6, 7]


def test_a_pool_counts_by_the_units_that_it_has_now() -> None:
    queue = Queue(Scheduler(cluster(), "low"), "conservative")
    for jobid in range(8):
        queue.submit(jobid, request(units(2, memory=3), 100))
    assert sum(isinstance(d, Started) for d in queue.schedule(0)) == 3
    pool = queue.scheduler.graph.find_path("/cluster0/node1/memory0")[0]
    queue.drop_plans_of(queue.scheduler.set_size(pool, 20))
    queue.touch()
    assert sum(isinstance(d, Started) for d in queue.schedule(1)) == 2
    queue.drop_plans_of(queue.scheduler.set_size(pool, 6))
    for jobid in list(queue.running):
        queue.finish(jobid)
    assert sum(isinstance(d, Started) for d in queue.schedule(2)) == 3
