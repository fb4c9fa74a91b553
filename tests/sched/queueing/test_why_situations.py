"""A table of situations, each with the sentence that its user reads, on the graph of an instance."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.pending import UNLIMITED
from headrace.sched.queueing.queue import Queue
from headrace.sched.queueing.reasons import Explainer
from headrace.sched.queueing.why import no_match, while_down

NOW = 1_700_000_000
HOUR = 3600


def system() -> Scheduler:
    """Two racks of two nodes, each with four cores and a pool of 8 GiB; the first node has a GPU."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(4):
        if n % 2 == 0:
            rack = graph.add("rack", root, id=n // 2)
        node = graph.add("node", rack, id=n, rank=n)
        for core in range(4):
            graph.add("core", node, id=core)
        graph.add("memory", node, id=0, size=8192, unit="MiB")
        if n == 0:
            graph.add("gpu", node, id=0)
    return Scheduler(graph.finish(), "low", ("core", "node"))


def slots(count: int, ranks: str = "", seconds: int = HOUR, **needs: int) -> dict[str, Any]:
    """A jobspec of slots on the nodes `ranks` ("": any)."""
    inside = [{"type": kind, "count": n} for kind, n in needs.items()]
    slot = {"type": "slot", "count": count, "label": "task", "with": inside}
    constraints = {"constraints": {"ranks": [ranks]}} if ranks else {}
    return {"version": 1, "resources": [slot], "attributes": {"system": {"duration": seconds, **constraints}}}


def nodes(count: int, ranks: str = "", **needs: int) -> dict[str, Any]:
    """A jobspec of whole nodes, each with a slot."""
    spec = slots(1, ranks, **needs)
    return {**spec, "resources": [{"type": "node", "count": count, "exclusive": True, "with": spec["resources"]}]}


def within(kind: str, count: int, **needs: int) -> dict[str, Any]:
    """A jobspec of slots in one vertex of a kind."""
    spec = slots(count, **needs)
    return {**spec, "resources": [{"type": kind, "count": 1, "with": spec["resources"]}]}


NEVER = [
    (slots(1, memory=9216), "a slot needs memory 9Gi, the largest node has 8Gi"),
    (slots(1, ranks="1", gpu=1), "a slot needs gpu 1, no eligible node has any"),
    (slots(1, fpga=1), "a slot needs fpga 1, no node has any"),
    (slots(1, ranks="1-3", memory=9000), "a slot needs memory 9000Mi, the largest eligible node has 8Gi"),
    (slots(5, memory=8192), "need 40Gi memory, the whole system has 32Gi"),
    (slots(5, memory=6144), "need 5 slots of memory 6Gi, the nodes have room for 4"),
    (slots(3, ranks="0-1", memory=8192), "need 3 slots of memory 8Gi, the nodes have room for 2"),
    (slots(2, gpu=1, memory=1024), "need 2 gpu, the whole system has 1"),
    (within("rack", 3, memory=8192), "3 slots of memory 8Gi are not there in one rack (the most is 2, in rack0)"),
    (within("room", 1, core=1), "need 1 room, the whole system has 0"),
    (slots(1, core=5), "need 1 slot(s) of 5 core(s), only 0 such slot(s) available (total cores: 16)"),
    (nodes(5, core=1), "need 5 exclusive node(s), only 4 eligible"),
    (
        slots(1, ranks="9", core=1),
        "need 1 slot(s) of 1 core(s), only 0 such slot(s) available (total cores: 0); no node has rank 9",
    ),
]


@pytest.mark.parametrize(("jobspec", "says"), NEVER, ids=[says for _, says in NEVER])
def test_what_can_never_run_names_what_no_node_has(jobspec: dict[str, Any], says: str) -> None:
    scheduler = system()
    assert no_match(scheduler, jobspec, parse_jobspec(jobspec), NOW, True) == f"unsatisfiable request: {says}"


# Nodes that are down, and a jobspec that has no room meanwhile.
DOWN = [
    ("3", nodes(4, core=1), "1 eligible node(s) are down, drained or cordoned (node3): it needs 4 nodes of 1 core, the "
     "other nodes have room for 3"),
    ("0123", slots(1, core=1), "all eligible nodes are down, drained or cordoned (node0, node1, node2 and 1 more)"),
]  # fmt: skip


@pytest.mark.parametrize(("down", "jobspec", "says"), DOWN)
def test_what_has_no_room_while_nodes_are_down_names_them(down: str, jobspec: dict[str, Any], says: str) -> None:
    scheduler = system()
    for v in scheduler.graph.nodes():
        scheduler.set_status(v, str(scheduler.graph.rank[v]) not in down)
    request = parse_jobspec(jobspec)
    assert while_down(scheduler, request, scheduler.satisfiable(request).failure) == f"no room while {says}"


# A policy, jobs that run or are before the job, and the job.
WAITS = [
    ("fcfs", [slots(4, core=4)], slots(1, core=1), "insufficient resources: core x1 short (1 wanted, 0 free)"),
    (
        "fcfs",
        [slots(4, core=3)],
        slots(1, core=2),
        "insufficient resources: slot of 2 core x1 short (1 wanted, 0 free)",
    ),
    ("fcfs", [slots(1, gpu=1)], slots(1, gpu=1), "insufficient resources: gpu x1 short (1 wanted, 0 free)"),
    (
        "fcfs",
        [slots(1, ranks="1", core=4)],
        slots(1, ranks="1", core=1),
        "insufficient resources: core x1 short (1 wanted, 0 free on 1 eligible node(s))",
    ),
    ("easy", [slots(4, core=1)], nodes(1, core=1), "insufficient resources: idle node x1 short (1 wanted, 0 free)"),
    (
        "easy",
        [slots(1, ranks="0", memory=8192), slots(1, ranks="2", memory=8192)],
        within("rack", 2, memory=8192),
        "insufficient resources: 2 slots of memory 8Gi are not free in one rack (the most is 1, in rack0)",
    ),
    (
        "easy",
        [slots(3, memory=7168)],
        slots(2, memory=2048),
        "insufficient resources: slot x1 short (2 wanted, 1 free)",
    ),
    (
        "fcfs",
        [slots(4, core=4), slots(1, core=1)],
        slots(1, core=1),
        "insufficient resources: core x1 short (1 wanted, 0 free); behind 1 job",
    ),
    ("fcfs", [slots(3, core=4), nodes(4, core=1)], slots(1, core=1), "behind 1 job"),
    (
        "easy",
        [slots(3, core=4), nodes(4, core=1)],
        slots(1, core=1, seconds=2 * HOUR),
        "resources are free but promised to jobs before it; behind 1 job",
    ),
    (
        "easy",
        [slots(1, ranks="0", gpu=1)],
        nodes(4, core=1),
        "insufficient resources: idle node x1 short (4 wanted, 3 free)",
    ),
]


@pytest.mark.parametrize(("policy", "before", "jobspec", "says"), WAITS)
def test_a_job_that_waits_is_told_what_is_short(
    policy: str, before: list[dict[str, Any]], jobspec: dict[str, Any], says: str
) -> None:
    assert reason(policy, before, jobspec) == says


def reason(policy: str, before: list[dict[str, Any]], jobspec: dict[str, Any]) -> str:
    queue = Queue(system(), policy)
    for jobid, spec in enumerate([*before, jobspec], 1):
        request = parse_jobspec(spec)
        queue.submit(jobid, request if request.duration else request.lasting(UNLIMITED), arrival=float(jobid))
    while queue.schedule(NOW) or queue.unfinished:
        pass
    return str(Explainer().explain(queue, len(before) + 1, NOW, object())["reason_pending"])
