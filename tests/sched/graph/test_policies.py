"""Each match policy takes what its name says."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.policies import POLICIES, by_name


def cluster(nodes: int = 6, cores: int = 4) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(cores):
            graph.add("core", node, id=c)
    return graph.finish()


def slot(count: int, kind: str, number: int = 1) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "t", "with": [{"type": kind, "count": number}]}


def taken(scheduler: Scheduler, *resources: dict[str, Any], jobid: int = 1) -> set[str]:
    """The paths of the cores that a job is given."""
    request = parse_jobspec({"resources": list(resources)})
    allocation = scheduler.allocate(jobid, request, 0).allocation
    assert allocation is not None
    graph = scheduler.graph
    return {graph.path(item.vertex)[9:] for item in allocation.selection.items if graph.type[item.vertex] == "core"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("first", {"/node5/core3", "/node5/core2"}),
        ("high", {"/node0/core3", "/node1/core3"}),
        ("low", {"/node0/core0", "/node1/core0"}),
        ("hinode", {"/node5/core3", "/node5/core2"}),
        ("lonode", {"/node0/core0", "/node0/core1"}),
    ],
)
def test_two_cores_come_from_where_the_policy_prefers(policy: str, expected: set[str]) -> None:
    assert taken(Scheduler(cluster(), policy), slot(2, "core")) == expected


@pytest.mark.parametrize(("policy", "node"), [("firstnodex", 5), ("hinodex", 5), ("lonodex", 0)])
def test_node_exclusive_policies_give_nodes_whole(policy: str, node: int) -> None:
    scheduler = Scheduler(cluster(), policy)
    assert taken(scheduler, slot(1, "core")) == {f"/node{node}/core{c}" for c in range(4)}
    assert not any(path.startswith(f"/node{node}/") for path in taken(scheduler, slot(1, "core"), jobid=2))


def test_locality_takes_the_tightest_run_of_nodes() -> None:
    scheduler = Scheduler(cluster(7), "locality")
    for v in scheduler.graph.find_path("/cluster0/node1"):
        scheduler.set_status(v, False)
    # Nodes 0, 2, 3 and 4 would do as the lowest; 2 to 4 are neighbours.
    assert {path[:6] for path in taken(scheduler, slot(3, "node"))} == {"/node2", "/node3", "/node4"}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (["3", "1", "2", "1", "2", "2"], ["13", "2", "45", "0"]),
        (["3", "1", "", "1", "", "2"], ["13", "5", "02", "4"]),
        (["3", "1", "best", "1", "-6", "2"], ["13", "5", "02", "4"]),
        (["3", "1", "8888888", "1", "9999", "2"], ["13", "5", "02", "4"]),
    ],
)
def test_variation_takes_the_best_classes_first_and_what_has_none_last(classes: list[str], expected: list[str]) -> None:
    graph = cluster()
    for n, performance in enumerate(classes):
        graph.properties[graph.find_path(f"/cluster0/node{n}")[0]] = {"perf_class": performance} if performance else {}
    scheduler = Scheduler(graph, "variation")
    given = [
        taken(scheduler, {"type": "node", "count": count, "exclusive": True}, jobid=jobid)
        for jobid, count in enumerate((2, 1, 2, 1))
    ]
    assert ["".join(sorted({path[5] for path in paths})) for paths in given] == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("high=true node_centric=true node_exclusive=true", "hinodex"),
        ("low=true node_centric=true node_exclusive=true", "lonodex"),
        ("high=true node_centric=true node_exclusive=true stop_on_1_matches=true", "firstnodex"),
        ("policy=high set_stop_on_1_matches=true", "first"),
        ("policy=low node_centric=true", "lonode"),
        ("high=true node_centric=false", "high"),
    ],
)
def test_a_policy_may_be_put_together(text: str, name: str) -> None:
    assert by_name(text) is POLICIES[name]


@pytest.mark.parametrize("text", ["high=yes", "policy=first", "low=true high=true", "node_centric", "=true"])
def test_what_puts_together_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        by_name(text)


def test_every_policy_is_found_by_its_name() -> None:
    assert all(by_name(name).name == name for name in POLICIES)
    with pytest.raises(ValueError, match="must be one of first"):
        by_name("fastest")


def racks(count: int = 3, nodes: int = 3) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for r in range(count):
        rack = graph.add("rack", root, id=r)
        for n in range(nodes):
            node = graph.add("node", rack, id=r * nodes + n, rank=r * nodes + n)
            graph.add("core", node, id=0)
    return graph.finish()


def test_first_comes_back_to_a_rack_after_those_nobody_has_used() -> None:
    scheduler = Scheduler(racks(), "first")
    node = {"type": "node", "count": 1, "exclusive": True}
    found = [taken(scheduler, node, jobid=jobid) for jobid in range(4)]
    assert [path for paths in found for path in paths] == [
        "/rack2/node8/core0",
        "/rack1/node5/core0",
        "/rack0/node2/core0",
        "/rack2/node7/core0",
    ]


def test_first_fills_a_node_before_the_next_with_jobs_of_single_cores() -> None:
    scheduler = Scheduler(cluster(), "first")
    found = [taken(scheduler, slot(1, "core"), jobid=jobid) for jobid in range(5)]
    assert [path[:6] for paths in found for path in paths] == ["/node5"] * 4 + ["/node4"]
