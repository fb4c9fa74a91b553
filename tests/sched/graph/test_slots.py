"""Where slots are put together, and how many fit: no vertex is divided between two, so that pools count as vertices."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec

POLICIES = ["first", "firstnodex", "high", "hinode", "low", "lonodex", "locality"]


def racks(nodes: int = 3, pools: int = 3, size: int = 10) -> Graph:
    """Two racks: the first has pools of storage, the second as many, and nodes of two cores."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for r in range(2):
        rack = graph.add("rack", root, id=r)
        for n in range(nodes * r):
            node = graph.add("node", rack, id=n, rank=n)
            for c in range(2):
                graph.add("core", node, id=c)
        for p in range(pools):
            graph.add("ssd", rack, id=p, size=size)
    return graph.finish()


def given(scheduler: Scheduler, jobid: int, *resources: dict[str, Any]) -> list[str] | None:
    """The paths below the cluster, and the units, of the nodes and pools that a job is given; None for no job."""
    allocation = scheduler.allocate(jobid, parse_jobspec({"resources": list(resources)}), 0).allocation
    if allocation is None:
        return None
    graph = scheduler.graph
    items = [item for item in allocation.selection.items if graph.type[item.vertex] in ("node", "ssd")]
    return sorted(f"{graph.path(item.vertex)[10:]}:{item.needs}" for item in items)


def slots(count: int, ssd: int, **more: Any) -> dict[str, Any]:
    node = {"type": "node", "count": 1, "with": [{"type": "core", "count": 1}], **more}
    return {"type": "slot", "count": count, "label": "t", "with": [node, {"type": "ssd", "count": ssd}]}


@pytest.mark.parametrize("policy", POLICIES)
def test_each_slot_takes_pools_of_its_own(policy: str) -> None:
    scheduler = Scheduler(racks(), policy)
    found = given(scheduler, 1, slots(2, 1, exclusive=True))
    assert found is not None
    assert [path.rstrip("0123456789:") for path in found] == ["rack1/node"] * 2 + ["rack1/ssd"] * 2
    assert all(path.endswith(":10") for path in found if "ssd" in path)
    assert given(scheduler, 2, slots(2, 1, exclusive=True)) is None
    assert given(scheduler, 3, slots(1, 1, exclusive=True)) is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_slot_may_take_several_pools(policy: str) -> None:
    found = given(Scheduler(racks(pools=4), policy), 1, slots(2, 15, exclusive=True))
    assert found is not None
    assert sum("ssd" in path for path in found) == 4
    assert given(Scheduler(racks(pools=3), policy), 1, slots(2, 15, exclusive=True)) is None


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if not policy.endswith("nodex")])
def test_memory_of_slots_in_a_socket_comes_in_whole_vertices(policy: str) -> None:
    graph = Graph()
    node = graph.add("node", graph.add("cluster", id=0), id=0, rank=0)
    for s in range(2):
        socket = graph.add("socket", node, id=s)
        for c in range(6):
            graph.add("core", socket, id=c + 6 * s)
        for m in range(4):
            graph.add("memory", socket, id=m + 4 * s, size=2)
    scheduler = Scheduler(graph.finish(), policy)
    inner = [{"type": "core", "count": 1}, {"type": "memory", "count": 1}]
    slot = {"type": "slot", "count": 4, "label": "t", "with": inner}
    request = parse_jobspec({"resources": [{"type": "socket", "count": 1, "with": [slot]}]})
    assert [scheduler.allocate(job, request, 0).allocation is not None for job in range(3)] == [True, True, False]


@pytest.mark.parametrize(("policy", "expected"), [("high", "node5"), ("low", "node0"), ("first", "node5")])
def test_a_slot_is_put_together_where_all_its_resources_are(policy: str, expected: str) -> None:
    # There is power at the top as well, but no node.
    graph = Graph()
    panel = graph.add("panel", id=0)
    for p in range(2):
        pdu = graph.add("pdu", panel, id=p)
        for n in range(3):
            graph.add("node", pdu, id=n + 3 * p, rank=n + 3 * p)
        for w in range(3):
            graph.add("power", pdu, id=w, size=10)
    for w in range(20):
        graph.add("power", panel, id=w, size=10)
    scheduler = Scheduler(graph.finish(), policy)
    inner = [{"type": "node", "count": 1}, {"type": "power", "count": 2}]
    slot = {"type": "slot", "count": 1, "label": "t", "with": inner}
    allocation = scheduler.allocate(1, parse_jobspec({"resources": [slot]}), 0).allocation
    assert allocation is not None
    pdu_path = f"/panel0/pdu{int(expected[4]) // 3}"
    names = {graph.path(item.vertex).removeprefix(pdu_path) for item in allocation.selection.items}
    assert names == {f"/{expected}", "/power2" if policy != "low" else "/power0", "", "/panel0"}


def test_a_pool_given_exclusively_is_given_whole() -> None:
    slot = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}
    node = {"type": "node", "count": 1, "with": [slot]}
    scheduler = Scheduler(racks(), "low")
    assert given(scheduler, 1, node, {"type": "ssd", "count": 14, "exclusive": True}) == [
        "rack0/ssd0:10",
        "rack1/node0:1",
        "rack1/ssd0:10",
    ]
