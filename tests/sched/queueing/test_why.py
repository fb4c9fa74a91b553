"""What is short for a job that waits, and why another can never run, with numbers, on a graph alone."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.why import PROMISED, no_match, refusal, shortage

NOW = 1_700_000_000


def cluster() -> Scheduler:
    """Two nodes of four cores."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(4):
            graph.add("core", node, id=c)
    return Scheduler(graph.finish(), "low", ("core", "gpu", "node"))


def cores(count: int, per_slot: int = 1, **system: Any) -> dict[str, Any]:
    slot = {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": per_slot}]}
    return {"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {"duration": 60, **system}}}


def exclusive(nodes: int, **system: Any) -> dict[str, Any]:
    node = {"type": "node", "count": nodes, "exclusive": True, "with": cores(1)["resources"]}
    return {**cores(1, **system), "resources": [node]}


ON_THE_FIRST = {"constraints": {"ranks": ["0"]}}


@pytest.mark.parametrize(
    ("jobspec", "says"),
    [
        (cores(6), "insufficient resources: core x1 short (6 wanted, 5 free)"),
        (cores(1, 4), "insufficient resources: slot of 4 core x1 short (1 wanted, 0 free)"),
        (cores(1, 2), PROMISED),
        (
            cores(4, **ON_THE_FIRST),
            "insufficient resources: core x2 short (4 wanted, 2 free on 1 eligible node(s))",
        ),
        (exclusive(1), "insufficient resources: idle node x1 short (1 wanted, 0 free)"),
        (cores(1, constraints={"ranks": ["7"]}), "no node has rank 7"),
    ],
)
def test_what_is_short_is_said_with_numbers(jobspec: dict[str, Any], says: str) -> None:
    scheduler = cluster()
    for job, count, rank in ((1, 2, "0"), (2, 1, "1")):
        request = parse_jobspec(cores(count, constraints={"ranks": [rank]}))
        assert scheduler.allocate(job, request, NOW).allocation is not None
    assert shortage(scheduler, parse_jobspec(jobspec), NOW) == says


def test_nodes_that_are_down_are_counted_out() -> None:
    scheduler = cluster()
    first, second = scheduler.graph.nodes()
    scheduler.set_status(first, False)
    assert shortage(scheduler, parse_jobspec(cores(5)), NOW).endswith(
        "core x1 short (5 wanted, 4 free on 1 eligible node(s))"
    )
    scheduler.set_status(second, False)
    assert shortage(scheduler, parse_jobspec(cores(1)), NOW) == "all eligible nodes are down or drained"


@pytest.mark.parametrize(
    ("jobspec", "says"),
    [
        (cores(9), "need 9 slot(s) of 1 core(s), only 8 such slot(s) available (total cores: 8)"),
        (exclusive(3), "need 3 exclusive node(s), only 2 eligible"),
        (
            exclusive(1, constraints={"properties": ["fast"]}),
            "need 1 exclusive node(s), only 0 eligible; no node has property fast",
        ),
        ({**cores(1), "resources": [{"type": "rack", "count": 2}]}, "need 2 rack, the whole system has 0"),
    ],
)
def test_a_job_that_can_never_run_is_told_what_the_whole_system_lacks(jobspec: dict[str, Any], says: str) -> None:
    scheduler, request = cluster(), parse_jobspec(jobspec)
    outcome = scheduler.satisfiable(request)
    assert outcome.unsatisfiable
    assert refusal(scheduler, jobspec, request, outcome.failure) == f"unsatisfiable request: {says}"


def test_a_request_that_does_not_wait_is_told_whether_it_could_ever_be_met() -> None:
    scheduler = cluster()

    def told(jobspec: dict[str, Any], reserves: bool = False) -> str:
        return no_match(scheduler, jobspec, parse_jobspec(jobspec), NOW, reserves)

    most = scheduler.graph.end - NOW
    too_long = f"unsatisfiable request: attributes.system.duration: must be at most {most} seconds here, not {most + 1}"
    assert told(cores(1, duration=most + 1)) == too_long
    first, second = scheduler.graph.nodes()
    scheduler.set_status(first, False)
    # A node that comes back would serve it.
    down = (
        "no room while 1 eligible node(s) are down, drained or cordoned (node0): it needs 2 nodes of 1 core, the other "
        "nodes have room for 1"
    )
    assert told(exclusive(2)) == down
    assert told(exclusive(3)).startswith("unsatisfiable request: need 3 exclusive node(s), only 2 eligible")
    assert told(cores(9)).startswith("unsatisfiable request: need 9 slot(s)")
    scheduler.set_status(second, False)
    assert told(cores(1)) == "no room while all eligible nodes are down, drained or cordoned (node0, node1)"
    for node in (first, second):
        scheduler.set_status(node, True)
    assert scheduler.allocate(1, parse_jobspec(cores(6, duration=0)), NOW).allocation is not None
    short = "no room now: insufficient resources: core x2 short (4 wanted, 2 free)"
    assert told(cores(4)) == short
    assert told(cores(4), True) == f"{short}; jobs without a known end hold the requested resources"


def test_nothing_is_told_to_be_promised_where_nothing_is() -> None:
    """A slot takes a pool of cores whole, so sums of cores do not tell what is short."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        graph.add("core", graph.add("node", root, id=n, rank=n), id=0, size=4)
    scheduler, jobspec = Scheduler(graph.finish(), "first"), cores(2)
    assert scheduler.allocate(1, parse_jobspec(cores(1)), NOW).allocation is not None
    told = no_match(scheduler, jobspec, parse_jobspec(jobspec), NOW, False)
    assert told == "no room now: insufficient resources: slot x1 short (2 wanted, 1 free)"
    # Beside what is reserved, resources may be free.
    assert scheduler.reserve(2, parse_jobspec(jobspec), NOW).allocation is not None
    beyond = parse_jobspec(cores(1, duration=90))
    assert no_match(scheduler, cores(1), beyond, NOW, False) == f"no room now: {PROMISED}"
