"""How many vertices are visited: a cluster of two racks with three nodes of four cores and two disks each."""

from __future__ import annotations

import pytest

from headrace.sched.graph.formats.writers import simple
from headrace.sched.graph.model import Graph
from headrace.sched.graph.request import JobRequest, parse_resources
from headrace.sched.graph.scheduler import Scheduler
from headrace.sched.graph.visits import Visits, count, report

# A rack with what is in it.
RACK = 1 + 3 * (1 + 4 + 2)


def cluster(policy: str, filters: tuple[str, ...] = ("core",)) -> Scheduler:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for r in range(2):
        rack = graph.add("rack", root, id=r)
        for n in range(3):
            node = graph.add("node", rack, id=3 * r + n, rank=3 * r + n)
            for kind, number in (("core", 4), ("disk", 2)):
                for i in range(number):
                    graph.add(kind, node, id=i, rank=3 * r + n)
    return Scheduler(graph.finish(), policy, filters)


def job(cores: int, disks: int = 0, duration: int = 10) -> JobRequest:
    inside = [{"type": kind, "count": number} for kind, number in (("core", cores), ("disk", disks)) if number]
    slot = {"type": "slot", "count": 1, "label": "a", "with": inside}
    return JobRequest(parse_resources([{"type": "node", "count": 1, "with": [slot]}]), duration)


def visited(scheduler: Scheduler, request: JobRequest, later: bool = False, idle: bool = False) -> Visits:
    return count(scheduler, request, 0, later, idle)


def test_a_policy_that_scores_comes_to_every_vertex_and_those_that_nobody_asked_for_do_not_serve() -> None:
    assert visited(cluster("high"), job(4)) == Visits(1 + 2 * RACK, 1 + 2 * RACK - 12)
    assert visited(cluster("low"), job(4, 2)) == Visits(1 + 2 * RACK, 1 + 2 * RACK)


def test_what_has_too_little_left_is_come_to_and_not_entered() -> None:
    scheduler = cluster("high")
    for jobid in range(1, 3):
        assert scheduler.allocate(jobid, job(4), 0).allocation is not None
    assert visited(scheduler, job(4)) == Visits(1 + 2 * RACK - 2 * 6, 1 + 2 * (RACK - 6) - 2 * 5)
    assert scheduler.allocate(3, job(4), 0).allocation is not None
    # Now the whole rack.
    assert visited(scheduler, job(4)) == Visits(1 + 1 + RACK, 1 + RACK - 6)


@pytest.mark.parametrize(("filters", "passed_over"), [(("core",), 0), (("disk",), 6), (("core", "disk"), 6)])
def test_only_types_that_are_counted_spare_a_visit(filters: tuple[str, ...], passed_over: int) -> None:
    scheduler = cluster("high", filters)
    assert scheduler.allocate(1, job(1, 2), 0).allocation is not None
    assert visited(scheduler, job(1, 1)).before == 1 + 2 * RACK - passed_over


def test_the_first_find_ends_the_search() -> None:
    # The disks of the node were added last, so they are met before its cores.
    assert visited(cluster("first"), job(2)) == Visits(3 + 2 + 2, 3 + 2)


def test_a_reservation_counts_the_search_that_found_nothing_and_the_one_that_did() -> None:
    scheduler = cluster("high")
    for jobid in range(1, 7):
        assert scheduler.allocate(jobid, job(4), 0).allocation is not None
    assert visited(scheduler, job(4)) == Visits(1, 0)
    assert visited(scheduler, job(4), later=True) == Visits(1 + 1 + 2 * RACK, 1 + 2 * RACK - 12)
    assert visited(scheduler, job(4), idle=True) == Visits(1 + 2 * RACK, 1 + 2 * RACK - 12)
    for operation, before in (("allocate", 1), ("allocate_orelse_reserve", 46), ("satisfiability", 45)):
        assert report(scheduler, operation, job(4), 0).startswith(f"INFO: PREORDER VISIT COUNT={before}\n")


def test_counting_changes_nothing() -> None:
    scheduler, other = cluster("first"), cluster("first")
    for jobid in range(1, 9):
        visited(scheduler, job(3), later=True)
        counted, plain = (each.reserve(jobid, job(3), 0).allocation for each in (scheduler, other))
        assert counted is not None and plain is not None
        assert (counted.start, simple(scheduler.graph, counted)) == (plain.start, simple(other.graph, plain))
