"""Find expressions select what they say."""

from __future__ import annotations

import json

import pytest

from headrace.sched.graph import Graph, Scheduler, find, parse_jobspec
from headrace.sched.graph.formats.writers import WRITERS


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
        ("names=node[0-1]", {"node0", "node1"}),
        ("sched-now=ALLOCATED and jobid-tag=0x1", {"core0"}),
        ("jobid-span=f2 and agfilter=t", {"cluster0", "node0", "core0"}),
        ("agfilter=false", set()),
        ("status=down", {"node1", "core0'", "core1'"}),
        ("status=up and not (names=cluster0 or property=fast)", {"node0", "core0", "core1", "core0'", "core1'"}),
        ("sched-future=reserved and names=node0", {"node0"}),
        ("jobid-reserved=1", set()),
    ],
)
def test_expression_selects(expression: str, expected: set[str]) -> None:
    scheduler = used()
    if "down" in expression:
        scheduler.set_status(next(v for v in scheduler.graph.nodes() if scheduler.graph.rank[v] == 1), False)
    predicate, facts = find.parse(expression), find.Facts(scheduler)
    graph = scheduler.graph
    names = {
        graph.name(v) + ("'" if "node1/" in graph.path(v) else "") for v in range(len(graph)) if predicate(facts, v)
    }
    assert names == expected


def test_what_leads_to_what_is_found_is_written_as_exclusive_as_it_is() -> None:
    text = find.listing(used(), "sched-now=allocated and names=core0 and jobid-alloc=1", WRITERS["simple"], 0)
    assert text == "      ---------core0[1:x]\n      ------node0[1:x]\n      ---cluster0[1:x]\n"
    r = json.loads(find.listing(used(), "jobid-alloc=1 and names=core0", WRITERS["rv1_nosched"], 0))
    assert r["execution"]["R_lite"] == [{"rank": "0", "children": {"core": "0"}}]
    assert find.listing(used(), "names=rack7", WRITERS["simple"], 0) == ""


@pytest.mark.parametrize(("more", "used_below"), [("", [1, 2, 3]), (" and jobid-span=2", [2, 2]), (" jobid-tag=9", [])])
def test_amounts_below_are_told_on_request(more: str, used_below: list[int]) -> None:
    found = find.listing(used(), "agfilter=true" + more, WRITERS["jgf"], 0)
    nodes = json.loads(found)["graph"]["nodes"] if found else []
    totals = {"node": 2, "cluster": 4}
    told = [node["metadata"]["agfilter"] for node in nodes]
    assert [amounts["core"] for amounts in told] == [
        f"used:{count}, total:{totals[node['metadata']['type']]}" for count, node in zip(used_below, nodes, strict=True)
    ]
    # A vertex does not count its own type.
    assert ["node" in amounts for amounts in told] == [node["metadata"]["type"] != "node" for node in nodes]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "and",
            "status=sideways",
            "(status=up",
            "status=up)",
            "jobid-alloc=x",
            "not",
            "names=a[",
            "agfilter=maybe",
        ),
        *("(" * 5000 + "status=up" + ")" * 5000, " and ".join(["status=up"] * 5000), "not " * 5000 + "status=up"),
    ],
)
def test_bad_expression_is_refused(text: str) -> None:
    with pytest.raises(find.ExpressionError):
        find.parse(text)
