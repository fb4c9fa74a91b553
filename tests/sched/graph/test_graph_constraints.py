"""Constraints leave the same nodes whether ranks tell the nodes apart or not."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.formats.spec.constraint import ConstraintError
from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.constraints import ConstraintCache


def graph(ranked: bool) -> Graph:
    made = Graph()
    root = made.add("cluster", id=0)
    for n in range(5):
        props = {"fast": ""} if n % 2 else {"slow": "", "big": ""}
        made.add("node", root, id=n, rank=n if ranked else -1, properties=props)
    return made.finish()


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"properties": ["fast"]}, {1, 3}),
        ({"properties": ["^fast", "big"]}, {0, 2, 4}),
        ({"hostlist": ["node[1-2]"]}, {1, 2}),
        ({"and": [{"hostlist": ["node[1-4]"]}, {"not": [{"properties": ["fast"]}]}]}, {2, 4}),
    ],
)
def test_constraint_leaves(constraint: dict[str, Any], expected: set[int], ranked: bool) -> None:
    made = graph(ranked)
    allowed = ConstraintCache(made).allowed(constraint)
    assert allowed is not None
    assert {made.id[v] for v in allowed} == expected


def test_ranks_are_true_ranks() -> None:
    made = graph(True)
    made.rank[2] = 99
    allowed = ConstraintCache(made).allowed({"ranks": ["99"]})
    assert allowed == frozenset({made.find_path("/cluster0/node1")[0]})


def test_a_changed_property_is_seen_after_forgetting() -> None:
    made = graph(True)
    cache = ConstraintCache(made)
    assert cache.allowed({"properties": ["new"]}) == frozenset()
    made.properties[1] = {"new": ""}
    cache.forget()
    assert cache.allowed({"properties": ["new"]}) == frozenset({1})


def test_bad_constraint_is_refused() -> None:
    with pytest.raises(ConstraintError):
        ConstraintCache(graph(True)).allowed({"colour": ["red"]})


@pytest.mark.parametrize("policy", ["first", "low", "hinode"])
@pytest.mark.parametrize(
    ("constraint", "node"),
    [
        ({"hostlist": ["store1"]}, "/cluster0/store1"),
        ({"and": [{"hostlist": ["store1"]}, {"properties": ["fast"]}]}, None),
        ({"and": [{"hostlist": ["store0"]}, {"properties": ["fast"]}]}, "/cluster0/store0"),
        ({"not": [{"hostlist": ["store[0-1]", "node[0-3]"]}]}, "/cluster0/node4"),
    ],
)
def test_hosts_of_storage_are_constrained_as_nodes_are(
    policy: str, constraint: dict[str, Any], node: str | None
) -> None:
    made = graph(True)
    for n in range(2):
        properties = {} if n else {"fast": ""}
        made.add("storage_node", made.root, basename="store", id=n, rank=5 + n, properties=properties)
    for v in list(made.vertices())[1:]:
        made.add("core", v, id=0)
    slot = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}
    request = parse_jobspec({"resources": [slot], "attributes": {"system": {"constraints": constraint}}})
    given = Scheduler(made.finish(), policy).allocate(1, request, 0).allocation
    assert [made.path(item.vertex) for item in given.selection.items[1:2]] == [node] if given else node is None
