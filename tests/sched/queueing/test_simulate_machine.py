"""Machines of simulations: from numbers, documents and trace headers."""

from __future__ import annotations

import json

import pytest

from headrace.sched.graph import GraphError, Scheduler, parse_jobspec
from headrace.sched.graph.formats.export import EXPORTS
from headrace.sched.queueing.simulate_machine import from_header, nodes, read, single, uniform


def test_equal_nodes() -> None:
    graph = uniform(3, 4, 2)
    assert graph.totals[graph.root] == {"cluster": 1, "node": 3, "core": 12, "gpu": 6}


@pytest.mark.parametrize("size", [(0, 1, 0), (1, 0, 0), (1, 1, -1), (10**9, 1, 0)])
def test_a_machine_that_cannot_be_is_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(GraphError, match=r"a machine has|more than"):
        uniform(*size)


def test_documents_are_told_apart_by_their_content() -> None:
    recipe = """<graphml><graph>
      <node id="c"><data key="root">1</data><data key="type">cluster</data></node>
      <node id="n"><data key="type">node</data></node><node id="k"><data key="type">core</data></node>
      <edge source="c" target="n"><data key="multi_scale">2</data></edge>
      <edge source="n" target="k"><data key="multi_scale">4</data></edge></graph></graphml>"""
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}], "nodelist": ["n[0-1]"],
         "starttime": 1000, "expiration": 2000}}  # fmt: skip
    jgf = EXPORTS["jgf"](uniform(2, 4))
    for text in (recipe, json.dumps(r), jgf):
        graph = read(text)
        assert (graph.totals[graph.root]["node"], graph.totals[graph.root]["core"]) == (2, 8)
        assert (graph.start, graph.end) == (0, 2**53)


def test_a_document_of_another_kind_is_refused() -> None:
    with pytest.raises(GraphError, match="neither < nor"):
        read("resources: 3")


@pytest.mark.parametrize(
    ("header", "machine"),
    [
        ({"MaxNodes": "128", "MaxProcs": "1024"}, (128, 8)),
        ({"MaxNodes": "3", "MaxProcs": "8"}, (3, 3)),
        ({"MaxProcs": "64 (some are down)"}, (64, 1)),
        ({"MaxNodes": "16"}, (16, 1)),
        ({"MaxNodes": "many", "MaxProcs": "²"}, None),
        ({}, None),
    ],
)
def test_a_trace_says_what_machine_it_is_from(header: dict[str, str], machine: tuple[int, int] | None) -> None:
    assert from_header(header) == machine


def test_nodes_of_an_allocation_are_those_it_touches_or_has_whole() -> None:
    graph = uniform(4, 2)
    scheduler = Scheduler(graph, "lonode")

    def place(jobid: int, resource: dict[str, object]) -> list[str]:
        allocation = scheduler.allocate(jobid, parse_jobspec({"resources": [resource]}), 0).allocation
        assert allocation is not None
        return [graph.name(v) for v in nodes(graph, allocation.selection)]

    slot = {"type": "slot", "count": 3, "label": "t", "with": [{"type": "core", "count": 1}]}
    assert place(1, slot) == ["node0", "node1"]
    assert place(2, {"type": "node", "count": 2, "exclusive": True}) == ["node2", "node3"]
    whole = Scheduler(uniform(3, 2), "low")
    everything = whole.allocate(
        1, parse_jobspec({"resources": [{"type": "cluster", "count": 1, "exclusive": True}]}), 0
    ).allocation
    assert everything is not None
    assert len(nodes(whole.graph, everything.selection)) == 3


@pytest.mark.parametrize(("cores", "gpus", "known"), [(1, 0, True), (2, 0, False), (1, 1, False)])
def test_a_machine_of_single_processors_is_known_as_one(cores: int, gpus: int, known: bool) -> None:
    assert single(uniform(3, cores, gpus)) == known
