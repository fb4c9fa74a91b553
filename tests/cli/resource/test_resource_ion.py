"""Questions to the graph scheduler, and its answers in the form that scripts know."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.resource import graph

STATS = {
    **{"V": 12, "E": 11, "by_rank": {"[0]": 12}, "load-time": 0.5, "graph-uptime": 7},
    "match": {"succeeded": {"njobs": 3}, "failed": {"njobs": 1}},
}


def ask(answers: Any, method: str, answer: Any, *argv: str) -> Any:
    """What the scheduler was asked by a command line."""
    broker = answers(graph, {f"sched-fluxion-resource.{method}": answer})
    assert graph.main(list(argv), "ion-resource") == 0
    ((_, body),) = broker.asked
    return body


def test_what_matches_is_shown_below_the_criteria(answers: Any, capsys: Any) -> None:
    assert ask(answers, "find", {"R": {"x": 1}}, "find", "status=up") == {"criteria": "status=up"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["CRITERIA", "'status=up'"] and json.loads(lines[-1]) == {"x": 1}
    asked = ask(answers, "find", {"R": None}, "find", "--format=jgf", "status=up")
    assert asked == {"criteria": "status=up", "format": "jgf"}


def test_a_job_is_shown_with_its_time(answers: Any, capsys: Any) -> None:
    found = {"jobid": 1234, "status": "ALLOCATED", "at": 86400, "overhead": 0.25}
    assert ask(answers, "info", found, "info", "fNH") == {"jobid": 1234}
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["JOBID", "STATUS", "AT"]
    assert row.split() == ["1234", "ALLOCATED", "1970-01-02T00:00:00", "0.25"]


def test_sizes_and_counts_are_shown(answers: Any, capsys: Any) -> None:
    ask(answers, "stats-get", STATS, "stats")
    out = capsys.readouterr().out
    assert "Num. of Vertices:  12\n" in out and "Successfully Matched:  3\n" in out and '{"[0]": 12}' in out


@pytest.mark.parametrize(
    ("method", "argv", "body"),
    [
        ("set_property", ["set-property", "/c0", "a=b"], {"sp_resource_path": "/c0", "sp_keyval": "a=b"}),
        ("get_property", ["get-property", "/c0", "a"], {"gp_resource_path": "/c0", "gp_key": "a"}),
        ("set_status", ["set-status", "/c0", "down"], {"resource_path": "/c0", "status": "down"}),
        ("params", ["params"], {}),
        ("status", ["status"], {}),
    ],
)
def test_a_vertex_is_named_as_the_scheduler_expects_it(answers: Any, method: str, argv: list[str], body: Any) -> None:
    assert ask(answers, method, {"values": ["b"]}, *argv) == body


def test_a_jobspec_is_read_from_a_file_or_standard_input(answers: Any, monkeypatch: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"version": 1}')
    assert ask(answers, "satisfiability", {}, "satisfiability", str(path)) == {"jobspec": {"version": 1}}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"version": 9999}'))
    assert ask(answers, "satisfiability", {}, "satisfiability", "-") == {"jobspec": {"version": 9999}}
    path.write_text("version: 1")
    for name, why in ((str(path), "not a JSON jobspec"), (str(path) + "x", "No such file or directory")):
        with pytest.raises(CommandError, match=why):
            graph.main(["satisfiability", name], "ion-resource")
