"""Commands that the recorded runs do not show: part of a job given back, jobs listed, mistakes named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.sched.graph import Graph, Scheduler
from headrace.sched.graph.formats.writers import WRITERS, jgf
from headrace.sched.graph.query_commands import Commands
from headrace.sched.graph.selection import from_vertices
from headrace.sched.graph.usage import Allocation

JOBSPEC = """
version: 9999
resources: [{type: slot, count: 2, label: t, with: [{type: node, count: 1}]}]
attributes: {system: {duration: 60}}
"""


class Session:
    """An engine on three nodes of one core, with its files in a folder."""

    def __init__(self, folder: Path, form: str = "rlite") -> None:
        graph = Graph()
        root = graph.add("cluster", id=0)
        for n in range(3):
            node = graph.add("node", root, id=n, rank=n)
            graph.add("core", node, id=0, rank=n)
        self.folder = folder
        self.out: list[str] = []
        (folder / "job.yaml").write_text(JOBSPEC)
        scheduler = Scheduler(graph.finish(), "low")
        self.engine = Commands(scheduler, WRITERS[form], self.out.append, self.out.append, self.text)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def say(self, *commands: str) -> str:
        """What the engine writes for commands."""
        self.out.clear()
        for command in commands:
            assert self.engine.run(command)
        return "".join(self.out)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_the_format_rlite_is_the_bare_list_of_what_matches_and_of_what_is_found(session: Session) -> None:
    nodes = '[{"rank": "0-1", "children": {"core": "0"}}]\n'
    assert session.say("match allocate job.yaml").startswith(nodes)
    assert session.say("find sched-now=allocated").startswith(nodes)


def test_a_label_of_the_jobspec_is_told_of_the_match_and_of_nothing_that_is_found_later(tmp_path: Path) -> None:
    session = Session(tmp_path, "jgf")
    (tmp_path / "job.yaml").write_text(JOBSPEC.replace("type: node, count: 1", "type: node, count: 1, label: mine"))
    assert session.say("match allocate job.yaml").count('"ephemeral": {"label": "mine"}') == 2
    assert "ephemeral" not in session.say("find sched-now=allocated")


def test_part_of_a_job_is_given_back(session: Session) -> None:
    session.say("match allocate job.yaml")
    assert "No matching resources" in session.say("match allocate job.yaml")
    part = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["node0"], "starttime": 0},
    }
    (session.folder / "part.json").write_text(json.dumps(part))
    session.say("partial-cancel 1 rv1exec part.json")
    assert '"rank": "0,2"' in session.say("match allocate job.yaml")


def document(*paths: str) -> str:
    nodes = [
        {"id": str(i), "metadata": {"type": path.split("/")[-1][:4], "paths": {"containment": path}}}
        for i, path in enumerate(paths)
    ]
    return json.dumps({"graph": {"nodes": nodes, "edges": []}})


def test_what_a_graph_names_is_given_back_if_the_job_holds_it(session: Session) -> None:
    session.say("match allocate job.yaml")
    (session.folder / "part.json").write_text(document("/cluster0/node0"))
    (session.folder / "other.json").write_text(document("/cluster0/node0", "/cluster0/node2"))
    refused = session.say("partial-cancel 1 jgf other.json stats")
    assert refused == ("ERROR: /cluster0/node2: is not held by job 1\nERROR: error encountered while removing job 1\n")
    assert "No matching" in session.say("match allocate job.yaml")
    (session.folder / "node.json").write_text(document("/cluster0/node1"))
    # It is not said to be exclusive, and is given back all the same.
    told = session.say("partial-cancel 1 jgf part.json stats")
    assert [line.split("=")[0] for line in told.splitlines() if "COUNT" in line] == [
        "INFO: PARTIAL CANCEL PREORDER COUNT",
        "INFO: PARTIAL CANCEL POSTORDER COUNT",
    ]
    assert "No matching" not in session.say("match allocate job.yaml")
    # What was given whole, which the other node was, goes back with all that is in it.
    session.say("cancel 3", "partial-cancel 1 jgf node.json")
    assert session.say("info 1").startswith("INFO: 1, CANCELED")
    session.say("match allocate job.yaml")
    assert "INFO: CANCEL POSTORDER COUNT=" in session.say("cancel 4 stats")


@pytest.mark.parametrize(
    ("node", "is_given_back"),
    [("{type: node, count: 1}", False), ("{type: node, count: 1, exclusive: true}", True)],
)
def test_nothing_is_given_back_of_a_document_that_names_what_is_only_inside_of_what_a_slot_asked_for(
    session: Session, node: str, is_given_back: bool
) -> None:
    (session.folder / "job.yaml").write_text(JOBSPEC.replace("{type: node, count: 1}", node))
    session.say("match allocate job.yaml")
    before = session.say("find sched-now=allocated")
    (session.folder / "part.json").write_text(document("/cluster0/node0/core0", "/cluster0/node0"))
    said = session.say("partial-cancel 1 jgf part.json")
    assert ("/cluster0/node0/core0: is not held by job 1" in said) == (not is_given_back)
    assert (session.say("find sched-now=allocated") == before) == (not is_given_back)


def test_a_second_root_is_not_attached(session: Session) -> None:
    (session.folder / "more.json").write_text(document("/other0").replace('"othe"', '"cluster", "name": "other0"'))
    said = session.say("attach more.json")
    assert said == (
        "ERROR: can't attach JGF subgraph \nERROR: /other0: is another root of containment beside /cluster0\n"
    )


def test_jobs_are_known_with_state_start_and_file_after_their_end_too(session: Session) -> None:
    session.say("match allocate job.yaml", "m allocate_orelse_reserve job.yaml", "c 1", "match satisfiability job.yaml")
    session.say("match without_allocating job.yaml", "match allocate job.yaml")
    assert session.say("info 1").startswith("INFO: 1, CANCELED, 0, job.yaml, ")
    listed = [line.rsplit(", ", 1) for line in session.say("list").splitlines()]
    assert [line[0] for line in listed] == [
        "INFO: 1, CANCELED, 0, job.yaml",
        "INFO: 2, RESERVED, 60, job.yaml",
        "INFO: 3, ALLOCATED, 0, job.yaml",
    ]
    assert all(float(seconds) >= 0 for _, seconds in listed)
    assert session.say("stat").splitlines()[0] == "INFO: Num. of Jobs Matched: 3"
    assert session.say("info 4") == "ERROR: jobid doesn't exist: 4\n"


def test_a_match_that_is_not_kept_may_be_extended_until_the_next_job(tmp_path: Path) -> None:
    session = Session(tmp_path, "rv1_nosched")
    (tmp_path / "one.yaml").write_text(JOBSPEC.replace("count: 2", "count: 1").replace("60", "20"))
    (tmp_path / "all.yaml").write_text(JOBSPEC.replace("count: 2", "count: 3"))

    def extended() -> str:
        said = session.say("match without_allocating_extend one.yaml")
        assert "RESOURCES=MATCHED" in said
        return said.split('"nodelist": ')[1].split("}")[0]

    assert extended() == '["node0"], "starttime": 0, "expiration": 3153600000'
    # Two nodes until 60, all of them from then on.
    session.say("match allocate job.yaml", "match allocate_orelse_reserve all.yaml")
    assert extended() == '["node2"], "starttime": 0, "expiration": 60'
    session.say("match allocate one.yaml")
    assert extended() == '["node2"], "starttime": 20, "expiration": 60'
    session.say("c 2")
    assert extended() == '["node2"], "starttime": 20, "expiration": 3153600000'
    assert session.say("list").count("INFO") == 3


def test_several_are_matched_until_one_gets_nothing(session: Session) -> None:
    said = session.say("M allocate job.yaml job.yaml job.yaml")
    assert (said.count("RESOURCES=ALLOCATED"), said.count("No matching")) == (1, 1)
    assert session.say("multi-match allocate job.yaml") == "ERROR: malformed command\n"


def test_a_file_is_shown_and_every_command_has_a_short_name(session: Session) -> None:
    assert session.say("cat job.yaml") == session.say("a job.yaml") == JOBSPEC + "INFO: Jobspec in job.yaml\n"
    assert session.say("a nowhere.yaml") == "ERROR: can't open nowhere.yaml\n"
    assert session.say("p /cluster0/node0 speed=9", "g /cluster0/node0") == "speed=9\n"
    assert session.say("t /cluster0/node0 down", "e /cluster0/node0") == "/cluster0/node0 is down\n"
    assert len(session.say("help").splitlines()) == 18
    assert session.say("help t") == "INFO: set-status (t) -- set-status PATH up|down\n"
    assert session.say("help sideways") == "ERROR: unknown command: sideways\n"


def test_nodes_are_attached_and_removed(session: Session) -> None:
    more = Graph()
    root = more.add("cluster", id=0)
    more.add("core", more.add("node", root, id=7, rank=7), id=0, rank=7)
    whole = Allocation(0, 0, 1, False, from_vertices(more.finish(), [(v, 1, True) for v in more.vertices()]))
    (session.folder / "more.json").write_text(jgf(more, whole))
    assert session.say("attach more.json") == ""
    assert session.say("attach more.json") == ""
    (session.folder / "other.json").write_text(jgf(more, whole).replace("node7", "node8").replace('"id": 7', '"id": 8'))
    assert session.say("attach other.json").startswith("ERROR: can't attach JGF subgraph \nERROR: ")
    assert "No matching" not in session.say("multi-match allocate job.yaml job.yaml")
    assert session.say("remove [0,2] false", "list").count("ALLOCATED") == 2
    assert session.say("c 1", "remove /cluster0/node1/core0 true", "get-status /cluster0/node1/core0") == (
        "Could not find path /cluster0/node1/core0 in resource graph.\n"
    )
    assert session.say("remove /cluster0/node7 true", "info 2").startswith("INFO: 2, CANCELED, 0, ")
    assert session.say("get-status /cluster0/node7") == "Could not find path /cluster0/node7 in resource graph.\n"
    assert session.say("remove /cluster0 true").startswith("ERROR: can't remove subgraph \nERROR: ")
    assert session.say("remove 1 maybe") == "ERROR: invalid path boolean input \n"
    assert session.say("remove x false") == "ERROR: failed to decode ranks.\n"


def test_a_reservation_is_not_given_back_in_part_and_a_whole_job_ends_with_its_last_part(session: Session) -> None:
    session.say("match allocate job.yaml", "match allocate_orelse_reserve job.yaml")
    r = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-1", "children": {"core": "0"}}],
            "nodelist": ["node[0-1]"],
            "starttime": 0,
        },
    }
    (session.folder / "part.json").write_text(json.dumps(r))
    assert session.say("pc 2 rv1exec part.json") == "ERROR: reservations not currently supported by partial cancel\n"
    assert session.say("pc 1 rv1exec part.json", "info 1").startswith("INFO: 1, CANCELED, ")


@pytest.mark.parametrize(
    "command",
    [
        "match allocate",
        "match sideways job.yaml",
        "cancel",
        "cancel x",
        "cancel 9",
        "info 9",
        "find colour=red",
        "update a",
        "update sideways jgf job.yaml 1 0 9",
        "update allocate yaml job.yaml 1 0 9",
        "update allocate jgf nowhere.json 1 0 9",
        "update allocate rv1exec job.yaml 1 -1 9",
        "partial-cancel 1 yaml job.yaml",
        "partial-cancel 9 jgf job.yaml",
        "stat 1",
        "attach nowhere.json",
        "attach job.yaml",
    ],
)
def test_mistake_is_named_and_changes_nothing(session: Session, command: str) -> None:
    assert session.say(command).startswith("ERROR: ")
    assert not session.engine.scheduler.jobs


def test_a_short_text_that_stands_for_a_great_deal_is_refused(session: Session) -> None:
    lines = ["a: &a {type: core, count: 1}"]
    for one, other in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{other}: &{other} {{type: {other}, count: 1, with: [{', '.join(['*' + one] * 10)}]}}")
    (session.folder / "bomb.yaml").write_text("\n".join([*lines, "resources: [*i]"]))
    assert session.say("match allocate bomb.yaml") == (
        "ERROR: bomb.yaml: more than 100000 values, with what aliases stand for\n"
    )


def test_quit_ends_and_comments_do_nothing(session: Session) -> None:
    assert session.say("# a comment", "") == ""
    assert session.say("mach allocate job.yaml") == "ERROR: unknown command: mach (help lists all)\n"
    assert not session.engine.run("quit")


def test_what_a_job_shares_is_not_given_back_and_said_to_be_shared(session: Session) -> None:
    slot = "{type: slot, count: 1, label: task, with: [{type: core, count: 1}]}"
    resources = f"version: 9999\nresources:\n  - {{type: node, count: 1, with: [{slot}]}}\n"
    (session.folder / "job.yaml").write_text(resources + JOBSPEC[JOBSPEC.index("attributes:") :])
    session.say("match allocate job.yaml")
    (session.folder / "part.json").write_text(document("/cluster0/node0"))
    said = session.say("partial-cancel 1 jgf part.json")
    assert said.startswith("ERROR: /cluster0/node0: is shared, not held exclusively, by job 1\n")
