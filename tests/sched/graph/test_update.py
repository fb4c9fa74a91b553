"""What is read back must be there, once, and no larger than it is; a mistake changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec, update
from headrace.sched.graph.formats.writers import jgf, jgf_shorthand, rv1_nosched
from headrace.sched.graph.model import GraphError
from headrace.sched.graph.selection import from_vertices
from headrace.sched.graph.usage import SpanConflictError


def cluster() -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(2):
            graph.add("core", node, id=c, rank=n)
        graph.add("memory", node, id=0, size=8, rank=n)
    return graph.finish()


def vertex(path: str, **more: Any) -> dict[str, Any]:
    kind = path.rsplit("/", 1)[-1].rstrip("0123456789")
    return {"id": "1", "metadata": {"type": kind, "paths": {"containment": path}, "exclusive": True, **more}}


@pytest.mark.parametrize(("form", "writer"), [("jgf", jgf), ("rv1exec", rv1_nosched)])
def test_what_was_written_is_the_same_selection_again(form: str, writer: Any) -> None:
    slot = {"type": "slot", "count": 2, "label": "t", "with": [{"type": "core", "count": 1}]}
    request = parse_jobspec({"resources": [{"type": "node", "count": 1, "with": [slot]}]})
    first = Scheduler(cluster(), "low").allocate(1, request, 0).allocation
    assert first is not None
    graph = cluster()
    again = update.read(graph, form, writer(graph, first))
    cores = {v for v, item in first.selection.marks.items() if item.exclusive and graph.type[v] == "core"}
    assert {v for v, item in again.marks.items() if item.exclusive and graph.type[v] == "core"} == cores


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        ([vertex("/cluster0/node7")], "no such node in the graph"),
        ([vertex("/cluster0/node1", rank=0)], "no such node of rank 0 in the graph"),
        ([vertex("/cluster0/node0/core0", size=2)], "size 2 is not between 1 and what there is, 1"),
        ([vertex("/cluster0/node0/memory0", size=9)], "size 9"),
        ([vertex("/cluster0/node0/memory0", size=-1)], "size -1"),
        ([vertex("/cluster0/node0/memory0", size=0)], "size 0"),
        ([vertex("/cluster0/node0/core0")] * 2, "named twice"),
        ([{"id": "1", "metadata": {"type": "core"}}], "no containment path"),
        ([], "names no vertices"),
    ],
)
def test_jgf_of_what_is_not_there_is_refused(vertices: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        update.read(cluster(), "jgf", json.dumps({"graph": {"nodes": vertices}}))


@pytest.mark.parametrize(
    ("lite", "hosts", "message"),
    [
        ([("0", "7")], ["node0"], "core7"),
        ([("5", "0")], ["node0"], "rank 5, host node0"),
        ([("0", "0")], ["other"], "host other"),
        ([("0", "0"), ("0", "0")], ["node0"], "rank 0: core0 named twice"),
    ],
)
def test_r_of_what_is_not_there_is_refused(lite: list[tuple[str, str]], hosts: list[str], message: str) -> None:
    entries = [{"rank": rank, "children": {"core": cores}} for rank, cores in lite]
    r = {"version": 1, "execution": {"R_lite": entries, "nodelist": hosts, "starttime": 0, "expiration": 0}}
    with pytest.raises(GraphError, match=message):
        update.read(cluster(), "rv1exec", json.dumps(r))


@pytest.mark.parametrize(
    ("jobid", "taken", "start", "end", "message"),
    [
        (1, [(2, 1, True)], 0, 10, "job 1: holds resources already"),
        (2, [(2, 1, True)], 9, 9, "between 9 and 9"),
        (2, [(2, 1, True)], 9, 3, "between 9 and 3"),
        (2, [(3, 1, True)], 5, 9, "core1: not free"),
        (2, [(4, 99, False)], 5, 9, "memory0: not free"),
    ],
)
def test_entering_what_cannot_be_held_changes_nothing(
    jobid: int, taken: list[tuple[int, int, bool]], start: int, end: int, message: str
) -> None:
    graph = cluster()
    scheduler = Scheduler(graph, "low")
    scheduler.add(1, from_vertices(graph, [(3, 1, True)]), 0, 10, False)
    with pytest.raises((ValueError, SpanConflictError), match=message):
        scheduler.add(jobid, from_vertices(graph, taken), start, end, False)
    assert list(scheduler.jobs) == [1]
    scheduler.cancel(1)
    assert all(planner.idle for planner in (*scheduler.plans.values(), *scheduler.shared.values()))


def test_an_exclusive_vertex_in_shorthand_stands_for_all_below_it() -> None:
    node = {"type": "node", "count": 2, "exclusive": True}
    first = Scheduler(cluster(), "low").allocate(1, parse_jobspec({"resources": [node]}), 0).allocation
    assert first is not None
    graph = cluster()
    text = jgf_shorthand(graph, first)
    assert "core" not in text
    assert [item.vertex for item in update.read(graph, "jgf", text).items] == [1, 5, 0]
    everything = [item[:3] for item in first.selection.items]
    assert [item[:3] for item in update.read(graph, "jgf_shorthand", text).items] == everything
    # What is named all the same is there once.
    both = json.loads(text)
    both["graph"]["nodes"].append(vertex("/cluster0/node0/core1"))
    assert [item[:3] for item in update.read(graph, "jgf_shorthand", json.dumps(both)).items] == everything
    scheduler = Scheduler(graph, "low")
    scheduler.add(1, update.read(graph, "jgf_shorthand", text), 0, 10, False)
    scheduler.release(1, update.read(graph, "jgf_shorthand", text))
    assert not scheduler.jobs


def test_r_gives_back_all_that_a_job_has_of_the_nodes_it_names() -> None:
    graph = Graph()
    rack = graph.add("rack", graph.add("cluster", id=0), id=0)
    for n in range(3):
        node = graph.add("node", rack, id=n, rank=n)
        for s in range(2):
            graph.add("core", graph.add("socket", node, id=s, rank=n), id=s, rank=n)
    graph.add("ssd", rack, id=0, size=5)
    scheduler = Scheduler(graph.finish(), "low")
    slot = {"type": "slot", "count": 2, "label": "t", "with": [{"type": "node", "count": 1}]}
    ssd = {"type": "ssd", "count": 5, "exclusive": True}
    given = scheduler.allocate(1, parse_jobspec({"resources": [slot, ssd]}), 0).allocation
    assert given is not None
    r = json.loads(rv1_nosched(graph, given))
    r["execution"]["R_lite"] = [{"rank": "1", "children": {"core": "0"}}]
    r["execution"]["nodelist"] = ["node1"]
    scheduler.release(1, update.freed(graph, "rv1exec", json.dumps(r)))
    left = {graph.path(v) for v, mark in scheduler.jobs[1].selection.marks.items() if mark.exclusive}
    assert left >= {"/cluster0/rack0/node0", "/cluster0/rack0/ssd0"}
    assert not any("node1" in path for path in left)
    # What R has no words for stays with the job.
    scheduler.release(1, update.freed(graph, "rv1exec", json.dumps(r).replace('"1"', '"0"').replace("node1", "node0")))
    assert {graph.name(v) for v, mark in scheduler.jobs[1].selection.marks.items() if mark.exclusive} == {"ssd0"}
