"""Find expressions select what they say."""

from __future__ import annotations

import pytest

from headrace.graph import Graph, Scheduler, find, parse_jobspec


def used() -> Scheduler:
    """Two nodes of two cores: job 1 holds a core of node 0, job 2 node 1, job 3 is to have both later."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n, properties={"fast": ""} if n else None)
        for c in range(2):
            graph.add("core", node, id=c)
    scheduler = Scheduler(graph.finish(), "low")
    slot = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}
    time = {"attributes": {"system": {"duration": 10}}}
    scheduler.allocate(1, parse_jobspec({"resources": [slot], **time}), 0)
    for jobid, held in ((2, 1), (3, 2)):
        scheduler.reserve(
            jobid, parse_jobspec({"resources": [{"type": "node", "count": held, "exclusive": True}], **time}), 0
        )
    return scheduler


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sched-now=allocated", {"core0", "node1", "core0'", "core1'"}),
        ("jobid-alloc=1", {"cluster0", "node0", "core0"}),
        ("property=fast", {"node1"}),
        ("names=node0", {"node0"}),
        ("names=node0 or names=node1", {"node0", "node1"}),
        ("status=up and not (names=cluster0 or property=fast)", {"node0", "core0", "core1", "core0'", "core1'"}),
        ("sched-future=reserved and names=node0", {"node0"}),
        ("jobid-reserved=1", set()),
    ],
)
def test_expression_selects(expression: str, expected: set[str]) -> None:
    scheduler = used()
    predicate = find.parse(expression)
    graph = scheduler.graph
    names = {
        graph.name(v) + ("'" if "node1/" in graph.path(v) else "")
        for v in range(len(graph))
        if predicate(scheduler, v, 0)
    }
    assert names == expected


@pytest.mark.parametrize("text", ["", "and", "status=sideways", "(status=up", "status=up)", "jobid-alloc=x", "not"])
def test_bad_expression_is_refused(text: str) -> None:
    with pytest.raises(find.ExpressionError):
        find.parse(text)
