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
    ("policy", "expected"),
    [
        # Node 1 has two cores in use, node 3 has one; the others are idle.
        ("packed", ["1", "1", "3", "3", "3", "0"]),
        ("spread", ["0", "2", "4", "5", "0", "2"]),
    ],
)
def test_the_use_of_nodes_decides_before_their_ids(policy: str, expected: list[str]) -> None:
    scheduler = Scheduler(cluster(), policy)
    for jobid, (node, cores) in enumerate((("node1", 2), ("node3", 1))):
        system = {"constraints": {"hostlist": [node]}}
        spec = {"resources": [slot(cores, "core")], "attributes": {"system": system}}
        assert scheduler.allocate(jobid, parse_jobspec(spec), 0).allocation is not None
    found = [taken(scheduler, slot(1, "core"), jobid=jobid) for jobid in range(2, 8)]
    assert [path[5] for paths in found for path in paths] == expected


def test_packed_leaves_idle_nodes_whole_for_jobs_of_several_slots() -> None:
    scheduler = Scheduler(cluster(), "packed")
    assert taken(scheduler, slot(1, "core"), jobid=1) == {"/node0/core0"}
    found = taken(scheduler, slot(5, "core"), jobid=2)
    assert found == {"/node0/core1", "/node0/core2", "/node0/core3", "/node1/core0", "/node1/core1"}
    whole = {"type": "node", "count": 4, "exclusive": True}
    assert {path[:6] for path in taken(scheduler, whole, jobid=3)} == {"/node2", "/node3", "/node4", "/node5"}


def test_a_node_of_other_size_is_compared_by_its_share_in_use() -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n, cores in enumerate((8, 2)):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(cores):
            graph.add("core", node, id=c)
    scheduler = Scheduler(graph.finish(), "spread")
    found = [taken(scheduler, slot(1, "core"), jobid=jobid) for jobid in range(6)]
    # The small node is half full with one core, the large one with four.
    assert [path[5] for paths in found for path in paths] == ["0", "1", "0", "0", "0", "0"]


@pytest.mark.parametrize(("policy", "expected"), [("packed", "0001"), ("spread", "0120")])
def test_pods_are_compared_by_their_cpu(policy: str, expected: str) -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(3):
        node = graph.add("node", root, id=n, rank=n)
        graph.add("cpu", node, id=0, size=3000, unit="m")
    scheduler = Scheduler(graph.finish(), policy)
    pod = {"type": "slot", "count": 1, "with": [{"type": "cpu", "count": 1000, "exclusive": False}]}
    request = parse_jobspec({"resources": [pod]})
    found = ""
    for jobid in range(4):
        allocation = scheduler.allocate(jobid, request, 0).allocation
        assert allocation is not None
        found += "".join(str(graph.id[v]) for v in allocation.selection.marks if graph.type[v] == "node")
    assert found == expected


@pytest.mark.parametrize("policy", ["packed", "spread"])
def test_use_counts_when_a_later_job_begins(policy: str) -> None:
    scheduler = Scheduler(cluster(nodes=2), policy)
    request = parse_jobspec({"resources": [slot(1, "core")], "attributes": {"system": {"duration": 10}}})
    first = scheduler.allocate(1, request, 0).allocation
    assert first is not None
    for at, node in ((5, "node0" if policy == "packed" else "node1"), (20, "node0")):
        selection = scheduler.match_at(request, at).selection
        assert selection is not None
        assert [scheduler.graph.name(v) for v in selection.marks if scheduler.graph.type[v] == "node"] == [node]


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
