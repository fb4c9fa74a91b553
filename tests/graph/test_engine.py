"""Commands that the recorded runs do not show: part of a job given back, jobs listed, mistakes named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.graph import Graph, Scheduler
from headrace.graph.engine import Engine
from headrace.graph.writers import WRITERS

JOBSPEC = """
version: 9999
resources: [{type: slot, count: 2, label: t, with: [{type: node, count: 1}]}]
attributes: {system: {duration: 60}}
"""


class Session:
    """An engine on three nodes of one core, with its files in a folder."""

    def __init__(self, folder: Path) -> None:
        graph = Graph()
        root = graph.add("cluster", id=0)
        for n in range(3):
            node = graph.add("node", root, id=n, rank=n)
            graph.add("core", node, id=0, rank=n)
        self.folder = folder
        self.out: list[str] = []
        (folder / "job.yaml").write_text(JOBSPEC)
        scheduler = Scheduler(graph.finish(), "low")
        self.engine = Engine(scheduler, WRITERS["rlite"], self.out.append, self.out.append, self.text)

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


def test_info_names_state_and_times(session: Session) -> None:
    session.say("match allocate job.yaml", "match allocate_orelse_reserve job.yaml")
    assert session.say("info 1") == "INFO: 1, ALLOCATED, 0, 60\n"
    assert session.say("info 2") == "INFO: 2, RESERVED, 60, 60\n"


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
    ],
)
def test_mistake_is_named_and_changes_nothing(session: Session, command: str) -> None:
    assert session.say(command).startswith("ERROR: ")
    assert not session.engine.scheduler.jobs


def test_quit_ends_and_comments_do_nothing(session: Session) -> None:
    assert session.say("# a comment", "", "unknown") == ""
    assert not session.engine.run("quit")
