from __future__ import annotations

import pytest

from headrace.cluster_queue.model import nodes, resources
from headrace.sched.graph import Scheduler, parse_jobspec
from headrace.sched.graph.request import JobRequest


def asked(*what) -> JobRequest:
    return parse_jobspec(resources.jobspec("a", "ns", *what))


def node(name: str = "a", **spec) -> dict:
    status = {
        "allocatable": {"cpu": "3900m", "pods": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def test_nodes_have_pools_of_which_jobs_get_parts():
    scheduler = Scheduler(nodes.empty(), "lonode", nodes.FILTERS)
    for rank, name in enumerate("ab"):
        scheduler.grow(nodes.part_of(node(name), rank))
    found = scheduler.allocate(1, asked(3, {"pod": 1, "cpu": 1900}), 0).allocation
    assert found is not None
    assert nodes.names_in(found.selection) == ["a", "a", "b"]
    assert scheduler.allocate(2, asked(1, {"pod": 1, "cpu": 2001}), 0).allocation is None
    assert scheduler.allocate(2, asked(1, {"pod": 1, "cpu": 2000}), 0).allocation is not None


def test_what_a_node_has_is_rounded_down():
    offered = {
        "cpu": "3900m",
        "memory": "16000001Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "attachable-volumes-x": "3",
    }
    found = nodes.amounts_of({"metadata": {"name": "a"}, "status": {"allocatable": offered}})
    assert found == {"cpu": 3900, "memory": 15625, "pod": 110, "gpu": 8}
    assert nodes.amounts_of({"metadata": {"name": "a"}}) == {"cpu": 0, "memory": 0, "pod": 0}


def test_of_what_is_no_amount_a_node_has_nothing_and_at_most_what_a_graph_counts():
    offered = {"cpu": str(2**63 - 1), "memory": "-1", "pods": "many", "a/b": "1" * 5000, "a/c": None}
    item = {**node(), "status": {"allocatable": offered}}
    assert nodes.amounts_of(item) == {"cpu": 2**62, "memory": 0, "pod": 0, "a~b": 2**62, "a~c": 0}
    assert max(nodes.part_of(item, 1).size) == 2**62


@pytest.mark.parametrize(
    ("spec", "usable"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, True),
    ],
)
def test_pods_start_on_nodes_that_are_ready_and_not_cordoned(spec, usable):
    assert nodes.is_usable(node(**spec)) is usable
    assert not nodes.is_usable({**node(**spec), "status": {}})


def test_labels_taints_and_tests_that_it_passes_are_properties_of_a_node():
    item = node("a", taints=[{"key": "gpu", "value": "x", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}])
    item["metadata"]["labels"] = {"zone": "z", "size": "5"}
    found = nodes.properties_of(item, ["size>4", "size<5", "tolerates:-", "tolerates:b,gpu=x"])
    assert set(found) == {
        *{"zone", "zone=z", "size", "size=5", "gpu=x:NoSchedule", "b=:NoExecute", "size>4", "tolerates:b,gpu=x"}
    }
