"""Labels of a request reach the JGF of what was taken for it, as Fluxion writes them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.formats import jgf
from headrace.sched.graph.formats.writers import graph_object, short_graph_object
from headrace.sched.graph.labels import labels_of


def graph() -> Graph:
    made = Graph()
    root = made.add("cluster", id=0)
    for n in range(3):
        node = made.add("node", root, id=n, rank=n)
        for s in range(2):
            socket = made.add("socket", node, id=s, rank=n)
            for c in range(2):
                made.add("core", socket, id=2 * s + c, rank=n)
        made.add("storage", node, id=0, rank=n, size=100)
    made.add("ssd", root, id=7, size=1000)
    return made.finish()


def part(kind: str, count: int, *below: Any, label: str = "") -> dict[str, Any]:
    inside = {"with": list(below)} if below else {}
    return {"type": kind, "count": count, **({"label": label} if label else {}), **inside}


CORES = part("slot", 2, part("core", 1, label="mine"), label="task")


@pytest.mark.parametrize(
    ("resources", "labels"),
    [
        ([CORES], {"core mine": 2}),
        ([part("slot", 2, part("core", 1), label="task")], {}),
        (
            [part("node", 2, part("socket", 1, CORES, label="half"), part("storage", 10, label="local"))],
            {"core mine": 4, "socket half": 2, "storage local": 2},
        ),
        (
            [
                part("node", 1, part("socket", 1, part("core", 1)), part("storage", 10, label="local")),
                part("ssd", 100, label="shared"),
            ],
            {"storage local": 1, "ssd shared": 1},
        ),
        ([part("slot", 1, part("node", 1, label="host"), label="t")], {"node host": 1}),
    ],
)
def test_what_serves_a_labelled_resource_has_its_label(resources: list[Any], labels: dict[str, int]) -> None:
    scheduler = Scheduler(graph(), "low")
    request = parse_jobspec({"resources": resources})
    allocation = scheduler.allocate(1, request, 0).allocation
    assert allocation is not None
    allocation.selection.labels = labels_of(allocation.selection, request)
    for write in (graph_object, short_graph_object):
        vertices = [one["metadata"] for one in write(scheduler.graph, allocation)["graph"]["nodes"]]
        found = Counter(f"{one['type']} {one['ephemeral']['label']}" for one in vertices if "ephemeral" in one)
        assert found == labels
    # What is written is read back.
    assert jgf.part(json.dumps(graph_object(scheduler.graph, allocation))).vertices
