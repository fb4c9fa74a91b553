"""What is short for a job that waits, and why another can never run, with numbers, on a graph alone."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.graph import Graph, Scheduler, parse_jobspec
from headrace.queueing.why import PROMISED, refusal, shortage

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
