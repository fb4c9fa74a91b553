"""Jobspecs with cores and subnets in the terms of a cluster's graph."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cluster_queue.crd import TOPOLOGY
from headrace.cluster_queue.model import nodes
from headrace.cluster_queue.services.pools import in_pools
from headrace.sched.graph.request import Count, RequestError, parse_jobspec

ZONE = TOPOLOGY[0]


def asked(resource: Any, topology: tuple[str, ...] = TOPOLOGY, **labels: str) -> Any:
    """The only resource of a jobspec on a graph of one node with these labels."""
    node = {"metadata": {"name": "n", "labels": labels}}
    graph = nodes.part_of(node, 0, topology=topology)
    (found,) = in_pools({"resources": [resource]}, graph, topology)["resources"]
    return found


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, Count(2000)),
        ("2", Count(2000, 2000, "+", 1000)),
        ("1-3", Count(1000, 3000, "+", 1000)),
        ("1-7:2", Count(1000, 7000, "+", 2000)),
        ("1-8:2:*", Count(1000, 8000, "*", 2)),
        ({"min": 1, "max": 3}, Count(1000, 3000, "+", 1000)),
        ({"min": 2}, Count(2000, 2**62, "+", 1000)),
        ({"min": 1, "max": 7, "operator": "+", "operand": 3}, Count(1000, 7000, "+", 3000)),
        ({"min": 1, "max": 8, "operator": "*", "operand": 2}, Count(1000, 8000, "*", 2)),
    ],
)
def test_any_count_of_cores_is_counted_in_thousandths(count: Any, expected: Count) -> None:
    slot = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": count}]}
    (request,) = parse_jobspec({"resources": [asked(slot)]}).resources
    assert [part.type for part in request.with_] == ["cpu", "pod"]
    assert request.with_[0].count == expected


@pytest.mark.parametrize(
    ("count", "why"),
    [
        ("1,3", "count of cores: must be a number or a range here, not the set '1,3'"),
        ("2-16:2:^", "count.operator of cores: must be + or * here, not ^"),
        ({"min": 2, "max": 16, "operator": "^", "operand": 2}, "count.operator of cores: must be + or * here, not ^"),
        ("x", "resources[0].count: "),
        (True, "resources[0].count: must be a positive integer"),
        ({"min": "1"}, "resources[0].count.min: must be a positive integer"),
        ({"min": 0}, "resources[0].count.min: must be a positive integer"),
        ({"min": 1, "operand": 0}, "resources[0].count.operand: must be a positive integer"),
    ],
)
def test_counts_of_cores_that_have_no_thousandths_are_refused_by_name(count: Any, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_jobspec({"resources": [asked({"type": "core", "count": count})]})
    assert str(caught.value).startswith(why)


def test_a_subnet_is_a_zone_by_the_name_that_the_graph_has_for_it() -> None:
    subnet = {"type": "subnet", "count": 1, "with": [{"type": "node", "count": 1}]}
    assert asked(subnet, **{ZONE: "z"}) == {**subnet, "type": "zone"}
    both = (ZONE, "example.com/zone")
    assert asked(subnet, both, **{ZONE: "z"}) == {**subnet, "type": nodes.level_of(ZONE, both)}


@pytest.mark.parametrize("labels", [{}, {"topology.kubernetes.io/rack": "r"}])
@pytest.mark.parametrize("topology", [(), TOPOLOGY, ("topology.kubernetes.io/rack",)])
def test_a_cluster_without_zones_is_one_subnet(topology: tuple[str, ...], labels: dict[str, str]) -> None:
    node = {"type": "node", "count": 1}
    assert asked({"type": "subnet", "count": 1, "with": [node]}, topology, **labels) == node
    two = {"type": "subnet", "count": 2, "with": [node]}
    assert asked(two, topology, **labels) == two


def test_levels_are_no_pools() -> None:
    row = {"type": "row", "count": 1}
    assert asked(row, ("example.com/row",)) == row
    assert asked({"type": "memory", "count": 1}) == {"exclusive": False, "type": "memory", "count": 1}
