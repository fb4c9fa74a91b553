"""Graphs from R: hosts in rank order, ids and properties where R says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.sched.graph import Scheduler, parse_jobspec
from headrace.sched.graph.formats import rv1
from headrace.sched.graph.formats.writers import rv1_nosched
from headrace.sched.graph.model import GraphError


def r(**execution: Any) -> dict[str, Any]:
    base = {"R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}], "nodelist": ["fluke[7,9]"]}
    return {"version": 1, "execution": {**base, "starttime": 0, "expiration": 0, **execution}}


def test_nodes_contain_their_cores_and_gpus() -> None:
    graph = rv1.from_object(r(properties={"fast": "1"}))
    nodes = [v for v, kind in enumerate(graph.type) if kind == "node"]
    assert [graph.path(v) for v in nodes] == ["/cluster0/fluke7", "/cluster0/fluke9"]
    assert [graph.rank[v] for v in nodes] == [0, 1]
    assert graph.properties == {nodes[1]: {"fast": ""}}
    assert graph.totals[graph.root] == {"cluster": 1, "node": 2, "core": 8, "gpu": 2}


def test_split_rank_is_one_node() -> None:
    lite = [{"rank": "0", "children": {"core": "0-1"}}, {"rank": "0", "children": {"core": "2-3"}}]
    graph = rv1.from_object(r(R_lite=lite, nodelist=["a"]))
    assert graph.totals[graph.root]["node"] == 1
    assert graph.totals[graph.root]["core"] == 4


def test_what_is_written_reads_back_as_the_same_resources() -> None:
    graph = rv1.from_object(r())
    scheduler = Scheduler(graph, "low")
    slot = {"type": "slot", "count": 3, "label": "t", "with": [{"type": "core", "count": 2}]}
    allocation = scheduler.allocate(1, parse_jobspec({"resources": [slot]}), 0).allocation
    assert allocation is not None
    again = rv1.read(rv1_nosched(graph, allocation))
    assert again.totals[again.root] == {"cluster": 1, "node": 2, "core": 6}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"R_lite": None}, "R_lite"),
        ({"R_lite": [{"rank": 0, "children": {}}]}, "idset string"),
        ({"R_lite": [{"rank": "0", "children": {"core": "x"}}]}, "children.core"),
        ({"nodelist": ["a"]}, "1 hosts in nodelist but 2 ranks"),
        ({"nodelist": ["fluke[1-2", "b"]}, "nodelist"),
        ({"expiration": -1}, "expiration"),
        ({"starttime": 9, "expiration": 3}, "before starttime"),
        ({"nodelist": ["a9223372036854775808", "b"]}, "does not fit"),
        ({"nodelist": 5}, "nodelist: must be a list"),
        ({"nodelist": "ab"}, "nodelist: must be a list"),
        ({"properties": ["a"]}, "properties: must be an object"),
        ({"properties": {"a": 3}}, "properties.a"),
        (
            {"R_lite": [{"rank": "0-16000", "children": {"core": "0-10000"}}], "nodelist": ["a[0-16000]"]},
            "are more than",
        ),
        ({"R_lite": [{"rank": "0-99999999999", "children": {}}]}, "rank: idset"),
        (
            {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}, {"rank": "0-1", "children": {"core": "1"}}]},
            "rank 0: core1 appears twice",
        ),
    ],
)
def test_bad_r_is_refused_with_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        rv1.read(json.dumps(r(**change)))
