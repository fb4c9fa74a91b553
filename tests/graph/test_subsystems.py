"""Other hierarchies than containment: read, walked and matched as a graph of their own."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.graph import GraphError, Scheduler, grug, jgf, parse_jobspec, resource_query, update
from headrace.graph.subsystems import SETS, walked
from headrace.graph.writers import jgf as write_jgf


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (recipe_edge("capacity", "rack", **FED, gen_method="GUESS"), "GUESS is not known"),
        (recipe_edge("panel", "capacity", **FED), "twice"),
        (recipe_edge("panel", "core", **BY_PATH), "no path there"),
        (recipe_edge("node_power", "core", **FED, gen_method="ASSOCIATE_IN"), "already contained"),
        (recipe_edge("panel", "core", **FED, gen_method="ASSOCIATE_IN", as_tgt_subsystem="ibnet"), "what ibnet has"),
        (recipe_node("other", "panel", "power", root=1), "exactly one node"),
    ],
)
def test_a_recipe_that_makes_no_tree_is_refused(more: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        grug.read(recipe(more), "power")


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


def test_a_document_is_read_as_either_tree_and_what_has_no_place_in_it_is_left_out() -> None:
    contained, fed = jgf.read(json.dumps(document())), jgf.read(json.dumps(document()), "power")
    assert [contained.path(v) for v in contained.vertices()] == ["/cluster0", "/cluster0/node0", "/cluster0/node1"]
    assert [fed.path(v) for v in fed.vertices()] == ["/panel0/node0", "/panel0/node1", "/panel0"]


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
    assert json.loads(written)["graph"]["edges"][0]["metadata"] == {"subsystem": "power", "relation": "supplies_to"}
    paths = {
        node["metadata"]["type"]: list(node["metadata"]["paths"]) for node in json.loads(written)["graph"]["nodes"]
    }
    both = ["containment", "power"]
    assert paths == {"powerpanel": ["power"], "pdu": both, "node": both, "power": ["power"]}
    again = jgf.read(written, "power")
    assert again.totals[again.root] == {"powerpanel": 1, "pdu": 1, "node": 2, "power": 40}


def test_what_is_in_both_trees_is_the_same_vertex_with_both_paths_in_either() -> None:
    contained, fed = grug.read(recipe()), grug.read(recipe(), "power")
    shared = {fed.uniq[v]: v for v in fed.elsewhere}
    assert shared.keys() == {contained.uniq[v] for v in contained.elsewhere}
    for v in contained.elsewhere:
        other = shared[contained.uniq[v]]
        assert contained.elsewhere[v] == {"power": fed.path(other)}
        assert fed.elsewhere[other] == {"containment": contained.path(v)}
    assert len({*contained.uniq, *fed.uniq}) == len(contained) + len(fed) - len(shared)


def test_what_a_job_was_given_in_one_tree_is_taken_in_the_other() -> None:
    nodes = {"type": "slot", "count": 2, "label": "t", "with": [{"type": "node", "count": 1}]}
    given = Scheduler(grug.read(recipe()), "high").allocate(1, parse_jobspec({"resources": [nodes]}), 0).allocation
    assert given is not None
    fed = grug.read(recipe(), "power")
    taken = update.read(fed, "jgf", write_jgf(grug.read(recipe()), given))
    held = [fed.elsewhere[v]["containment"] for v, mark in taken.marks.items() if mark.exclusive]
    graph = given.selection.graph
    assert sorted(held) == sorted(graph.path(v) for v in given.selection.marks if graph.type[v] == "node")
    # A document read again has them all.
    again = jgf.read(write_jgf(graph, given))
    assert {again.path(v): again.elsewhere[v] for v in again.elsewhere} == {
        graph.path(v): graph.elsewhere[v] for v in given.selection.marks if v in graph.elsewhere
    }


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
