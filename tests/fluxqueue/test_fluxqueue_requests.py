from __future__ import annotations

from headrace.fluxqueue import nodes, requests
from headrace.graph import Scheduler, parse_jobspec
from headrace.graph.request import JobRequest


def asked(*what) -> JobRequest:
    return parse_jobspec(requests.jobspec("a", "ns", *what))


def pod(*cpus: str) -> dict:
    return {"containers": [{"name": str(i), "resources": {"requests": {"cpu": cpu}}} for i, cpu in enumerate(cpus)]}


def test_a_pod_takes_whole_cores_of_the_sum_of_its_containers():
    assert requests.amounts_of(pod("500m", "500m")) == {"pod": 1, "core": 1}
    assert requests.amounts_of(pod("1500m")) == {"pod": 1, "core": 2}
    assert requests.amounts_of({"containers": [{"name": "a"}]}) == {"pod": 1}
    limited = {"containers": [{"name": "a", "resources": {"limits": {"cpu": "3"}}}]}
    assert requests.amounts_of(limited) == {"pod": 1, "core": 3}


def test_a_node_selector_is_a_constraint_on_the_nodes_labels():
    graph = nodes.empty()
    scheduler = Scheduler(graph, "lonode")
    for rank, zone in enumerate("ab"):
        node = {"metadata": {"name": zone, "labels": {"zone": zone}}}
        node["status"] = {"allocatable": {"cpu": "4", "pods": "10"}}
        scheduler.grow(nodes.part_of(node, rank))
    wanted = asked(1, {"pod": 1}, 0, requests.constraint_of({"nodeSelector": {"zone": "b"}}))
    found = scheduler.allocate(1, wanted, 0).allocation
    assert found is not None
    assert nodes.names_in(found.selection) == ["b"]
    assert requests.constraint_of({}) is None
