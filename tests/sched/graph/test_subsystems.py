"""Several hierarchies of the same vertices, and vertices with several parents: read, matched, held and written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sched.graph import GraphError, Scheduler, parse_jobspec, resource_query, update
from headrace.sched.graph.formats import grug, jgf
from headrace.sched.graph.formats.export import jgf as export
from headrace.sched.graph.formats.writers import jgf as write_jgf
from headrace.sched.graph.request import JobRequest
from headrace.sched.graph.resource_query import SETS, walked


def recipe_node(name: str, kind: str, subsystem: str = "containment", **more: object) -> str:
    data = {"type": kind, "basename": kind, "subsystem": subsystem, **more}
    return f'<node id="{name}">' + "".join(f'<data key="{k}">{v}</data>' for k, v in data.items()) + "</node>"


def recipe_edge(source: str, target: str, **data: object) -> str:
    inner = "".join(f'<data key="{k}">{v}</data>' for k, v in data.items())
    return f'<edge source="{source}" target="{target}">{inner}</edge>'


FED: dict[str, object] = {"e_subsystem": "power", "relation": "supplies_to"}
BY_PATH: dict[str, object] = {**FED, "gen_method": "ASSOCIATE_BY_PATH_IN"}


def recipe(*more: str) -> str:
    """Two racks with a power distribution unit and three nodes each; a panel feeds the units, they the nodes."""
    parts = [
        recipe_node("cluster", "cluster", root=1),
        *(recipe_node(name, name) for name in ("rack", "pdu", "node", "core")),
        recipe_edge("cluster", "rack", multi_scale=2),
        recipe_edge("rack", "pdu", id_scope=1),
        recipe_edge("rack", "node", multi_scale=3, id_scope=1),
        recipe_edge("node", "core", multi_scale=2),
        recipe_node("panel", "powerpanel", "power", root=1),
        recipe_node("pdu_power", "pdu", "power"),
        recipe_node("node_power", "node", "power"),
        recipe_node("capacity", "power", "power", size=10, unit="KW"),
        recipe_edge("panel", "pdu_power", **FED, gen_method="ASSOCIATE_IN"),
        recipe_edge("pdu_power", "node_power", **BY_PATH),
        recipe_edge("node_power", "capacity", **FED, multi_scale=2),
        *more,
    ]
    return "<graphml><graph>" + "".join(parts) + "</graph></graphml>"


def test_the_names_of_sets_are_known_in_capitals_or_not() -> None:
    assert {name: walked(name) for name in ("CA", "c+pa", "PA", "V+PFS1BA", "all")} == {
        "CA": "containment",
        "c+pa": "containment",
        "PA": "power",
        "V+PFS1BA": "virtual1",
        "all": "containment",
    }
    with pytest.raises(ValueError, match=r"'C\+XA': must be one of CA, IBA"):
        walked("C+XA")


def test_a_recipe_makes_the_tree_of_each_subsystem() -> None:
    contained, fed = grug.read(recipe()), grug.read(recipe(), "power")
    assert contained.totals[contained.root] == {"cluster": 1, "rack": 2, "pdu": 2, "node": 6, "core": 12}
    assert fed.totals[fed.root] == {"powerpanel": 1, "pdu": 2, "node": 6, "power": 120}
    assert fed.find_path("/powerpanel0/pdu1/node4/power1")
    assert not fed.find_path("/powerpanel0/pdu0/node4")


EXTRA = recipe_node("extra", "core")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (EXTRA + recipe_edge("capacity", "extra", **FED, gen_method="GUESS"), "GUESS is not known"),
        (recipe_edge("panel", "capacity", **FED), "twice"),
        (EXTRA + recipe_edge("panel", "extra", **BY_PATH), "no path there"),
        (
            EXTRA + recipe_edge("panel", "extra", **FED, gen_method="ASSOCIATE_BY_PATH_IN", as_tgt_subsystem="ibnet"),
            "ib",
        ),
        (recipe_node("other", "panel", "power", root=1), "exactly one node"),
        (recipe_node("rack_too", "rack") + recipe_edge("node", "rack_too", gen_method="ASSOCIATE_IN"), "a cycle"),
    ],
)
def test_a_recipe_that_makes_no_hierarchy_is_refused(more: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        grug.read(recipe(more), "power")


def storage() -> str:
    """Two racks with a storage unit of four disks each; both units also belong to the whole system."""
    return "<graphml><graph>" + "".join([
        recipe_node("cluster", "cluster", root=1),
        *(recipe_node(name, name) for name in ("rack", "unit", "system")),
        recipe_node("disk", "disk", size=10),
        recipe_node("unit_too", "unit"),
        recipe_edge("cluster", "rack", multi_scale=2),
        recipe_edge("rack", "unit", id_scope=1),
        recipe_edge("unit", "disk", multi_scale=4, id_scope=1),
        recipe_edge("cluster", "system"),
        recipe_edge("system", "unit_too", gen_method="ASSOCIATE_IN"),
    ]) + "</graph></graphml>"  # fmt: skip


def test_a_vertex_may_have_two_parents_in_one_hierarchy_and_is_counted_once() -> None:
    graph = grug.read(storage())
    units = [v for v, kind in enumerate(graph.type) if kind == "unit"]
    assert [[graph.name(up) for up in graph.parents(v)] for v in units] == [["rack0", "system0"], ["rack1", "system0"]]
    assert graph.totals[graph.root] == {"cluster": 1, "rack": 2, "unit": 2, "disk": 80, "system": 1}
    assert graph.totals[graph.find_path("/cluster0/system0")[0]] == {"system": 1, "unit": 2, "disk": 80}
    # Both paths lead to it, and the last one is its own.
    for path in ("/cluster0/rack1/unit1", "/cluster0/system0/unit1"):
        assert graph.find_path(path) == [units[1]]
    assert graph.path(units[1]) == "/cluster0/system0/unit1"
    assert graph.find_path("/cluster0/rack1/unit1/disk3")


def disks(above: str, count: int, **more: object) -> dict[str, Any]:
    unit = {"type": "unit", "count": 1, "with": [{"type": "disk", "count": count, "exclusive": True}]}
    return {"resources": [{"type": above, "count": 1, "with": [unit], **more}]}


@pytest.mark.parametrize("policy", ["first", "low", "high"])
def test_what_is_taken_through_one_parent_is_taken_through_the_other(policy: str) -> None:
    graph = grug.read(storage())
    scheduler = Scheduler(graph, policy, ("disk",))
    requests = [disks("rack", 20), disks("system", 40), disks("rack", 20), disks("system", 10)]
    given = [scheduler.allocate(job, parse_jobspec(r), 0).allocation for job, r in enumerate(requests)]
    assert [allocation is not None for allocation in given] == [True, True, True, False]
    held = [
        v for allocation in given[:3] if allocation for v, mark in allocation.selection.marks.items() if mark.exclusive
    ]
    assert len(held) == len(set(held)) == 8
    assert given[1] is not None
    assert [graph.name(item.vertex) for item in given[1].selection.items][-2:] == ["system0", "cluster0"]
    # The units of the racks are in use, so that no rack can be had whole.
    whole = parse_jobspec({"resources": [{"type": "rack", "count": 1, "exclusive": True}]})
    scheduler.cancel(0)
    scheduler.cancel(2)
    assert scheduler.allocate(7, whole, 0).allocation is not None
    assert scheduler.allocate(8, whole, 0).allocation is None
    written = write_jgf(graph, given[1])
    again = jgf.read(written)
    assert [again.path(v) for v in again.vertices() if again.type[v] == "unit"] == [
        graph.path(v) for v in given[1].selection.marks if graph.type[v] == "unit"
    ]


def test_what_was_taken_through_a_parent_is_read_back_through_it() -> None:
    graph = grug.read(storage())
    given = Scheduler(graph, "low").allocate(1, parse_jobspec(disks("system", 40)), 0).allocation
    assert given is not None
    found = update.read(graph, "jgf", write_jgf(graph, given))
    assert [item[:3] for item in found.items] == [item[:3] for item in given.selection.items]


def test_a_vertex_that_serves_one_parent_too_little_still_serves_the_other() -> None:
    graph = grug.read(storage())
    scheduler = Scheduler(graph, "low", ("disk",))
    # The rack has no second unit, so its first one is for the system.
    both = {"resources": [{"type": kind, "count": 1, "with": disks("rack", 40)["resources"][0]["with"]}
                          for kind in ("rack", "system")]}  # fmt: skip
    given = scheduler.allocate(1, parse_jobspec(both), 0).allocation
    assert given is not None
    assert sorted(graph.name(v) for v in given.selection.marks if graph.type[v] == "unit") == ["unit0", "unit1"]


def test_a_subsystem_that_is_not_there_is_named() -> None:
    with pytest.raises(GraphError, match="no node of subsystem ibnet"):
        grug.read(recipe(), "ibnet")
    with pytest.raises(GraphError, match="no subsystem ibnet"):
        jgf.read(json.dumps(document()), "ibnet")


def document() -> dict[str, Any]:
    """A cluster of two nodes; a panel outside it feeds the nodes, each of which has a reverse edge too."""
    names = ["cluster0", "node0", "node1", "panel0"]
    nodes = [
        {"id": str(i), "metadata": {"type": name[:-1], "name": name, "paths": {"containment": f"/{name}"}}}
        for i, name in enumerate(names)
    ]
    edges: list[dict[str, Any]] = [{"source": "0", "target": str(n)} for n in (1, 2)]
    for n in (1, 2):
        edges.append({"source": "3", "target": str(n), "metadata": {"name": {"power": "supplies_to"}}})
        edges.append({"source": str(n), "target": "3", "metadata": {"name": {"power": "draws_from"}}})
    return {"graph": {"nodes": nodes, "edges": edges}}


def test_a_document_is_read_with_all_its_hierarchies() -> None:
    contained = jgf.read(json.dumps(document()))
    fed = jgf.read(json.dumps(document()), "power")
    assert contained.hierarchies.keys() == fed.hierarchies.keys() == {"containment", "power"}
    for graph in (contained, fed):
        paths = {name: [tree.path(v) for v in tree.preorder(tree.root)] for name, tree in graph.hierarchies.items()}
        assert paths == {
            "containment": ["/cluster0", "/cluster0/node0", "/cluster0/node1"],
            "power": ["/panel0", "/panel0/node0", "/panel0/node1"],
        }
        assert graph.nodes() == [1, 2]
    # Of what is already decoded, containment alone.
    assert [v for v in jgf.from_object(document()).vertices()] == [0, 1, 2]


def test_jobs_are_matched_along_the_hierarchy_and_written_with_its_paths() -> None:
    graph = grug.read(recipe(), "power")
    scheduler = Scheduler(graph, "first", ("node",))
    inner = {"type": "node", "count": 2, "with": [{"type": "power", "count": 15}]}
    request = parse_jobspec(
        {
            "resources": [
                {"type": "pdu", "count": 1, "with": [{"type": "slot", "count": 1, "label": "t", "with": [inner]}]}
            ]
        }
    )
    given = [scheduler.allocate(job, request, 0).allocation for job in range(3)]
    # Three nodes a unit: the third job would have to take one of each.
    assert [allocation is not None for allocation in given] == [True, True, False]
    assert given[0] is not None
    written = write_jgf(graph, given[0])
    assert json.loads(written)["graph"]["edges"][0]["metadata"] == {"subsystem": "power"}
    paths = {
        node["metadata"]["type"]: list(node["metadata"]["paths"]) for node in json.loads(written)["graph"]["nodes"]
    }
    both = ["containment", "power"]
    assert paths == {"powerpanel": ["power"], "pdu": both, "node": both, "power": ["power"]}
    again = jgf.read(written, "power")
    assert again.totals[again.root] == {"powerpanel": 1, "pdu": 1, "node": 2, "power": 40}


def slots_of_nodes(count: int) -> JobRequest:
    slot = {"type": "slot", "count": count, "label": "t", "with": [{"type": "node", "count": 1}]}
    return parse_jobspec({"resources": [slot]})


def test_what_a_job_is_given_in_one_hierarchy_is_taken_in_the_other() -> None:
    graph = grug.read(recipe())
    scheduler = Scheduler(graph, "high")
    nodes = slots_of_nodes(4)
    given = scheduler.allocate(1, nodes, 0, subsystem="power").allocation
    assert given is not None
    assert given.selection.graph is graph.hierarchies["power"]
    assert scheduler.allocate(2, nodes, 0).allocation is None
    assert scheduler.allocate(3, nodes, 0, subsystem="power").allocation is None
    held = {v for v, mark in given.selection.marks.items() if mark.exclusive}
    two = slots_of_nodes(2)
    rest = scheduler.allocate(4, two, 0).allocation
    assert rest is not None
    assert held.isdisjoint(rest.selection.marks)
    scheduler.cancel(1)
    assert scheduler.allocate(5, nodes, 0).allocation is not None
    with pytest.raises(GraphError, match="no subsystem ibnet"):
        scheduler.allocate(6, nodes, 0, subsystem="ibnet")


def test_what_was_written_in_one_hierarchy_is_entered_by_who_walks_the_other() -> None:
    graph = grug.read(recipe())
    nodes = slots_of_nodes(2)
    given = Scheduler(graph, "high").allocate(1, nodes, 0).allocation
    assert given is not None
    written = write_jgf(graph, given)
    fed = grug.read(recipe(), "power")
    taken = update.read(fed, "jgf", written)
    assert taken.graph is fed.hierarchies["containment"]
    scheduler = Scheduler(fed, "high")
    scheduler.add(1, taken, 0, 10, False)
    other = scheduler.allocate(2, nodes, 0).allocation
    assert other is not None
    assert {v for v in other.selection.marks if fed.type[v] == "node"}.isdisjoint(taken.marks)


def test_what_leaves_one_hierarchy_leaves_all_and_what_comes_joins_all() -> None:
    graph = grug.read(recipe())
    scheduler = Scheduler(graph, "low")
    whole = export(graph)
    power = graph.hierarchies["power"]
    before = [dict(tree.totals[tree.root]) for tree in (graph, power)]
    assert scheduler.allocate(1, slots_of_nodes(6), 0, subsystem="power").allocation is not None
    lost = scheduler.prune(graph.find_path("/cluster0/rack0/node1"), take=True)
    assert lost.reduced == [1]
    assert [tree.totals[tree.root]["node"] for tree in (graph, power)] == [5, 5]
    # Nothing else had its power.
    assert power.totals[power.root]["power"] == before[1]["power"] - 20
    assert not graph.find_path("/powerpanel0/pdu0/node1/power0")
    scheduler.grow(jgf.read(whole))
    assert [dict(tree.totals[tree.root]) for tree in (graph, power)] == before
    assert graph.find_path("/powerpanel0/pdu0/node1") == graph.find_path("/cluster0/rack0/node1") != []
    assert scheduler.allocate(2, slots_of_nodes(1), 0).allocation is not None
    assert scheduler.allocate(3, slots_of_nodes(1), 0, subsystem="power").allocation is None


@pytest.mark.parametrize(
    ("name", "rc"), [*((name, int(walked(name) not in ("containment", "power"))) for name in SETS)]
)
def test_the_command_walks_what_it_is_told_to(
    name: str, rc: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "graph.xml").write_text(recipe())
    argv = ["-L", str(tmp_path / "graph.xml"), "-S", name, "-d"]
    assert resource_query.main(argv, io.StringIO("find status=up\n")) == rc
    shown = capsys.readouterr()
    if rc:
        assert "subsystem" in shown.err
    else:
        assert shown.out.count(":x]\n") == (21 if walked(name) == "power" else 23)
