"""Task maps in all their forms, given as they are or as a job has them."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import taskmap
from headrace.formats.spec.eventlog import Event, encode

# Two nodes with two tasks each, then one with one.
MAP = "[[0,2,2,1],[2,1,1,1]]"


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("--taskids=1", "2-3\n"),
        ("--ntasks=2", "1\n"),
        ("--nodeid=4", "2\n"),
        ("--to=raw", "0-1;2-3;4\n"),
        ("--to=multiline", "0: 0\n1: 0\n2: 1\n3: 1\n4: 2\n"),
        ("--to=pmi", "(vector,(0,2,2),(2,1,1))\n"),
    ],
)
def test_a_map_tells_where_tasks_are(option: str, shown: str, capsys: Any) -> None:
    assert taskmap.taskmap([option, MAP]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--taskids=3", MAP], "No taskids for node 3: the job has nodes 0 to 2"),
        (["--nodeid=5", MAP], "failed to get nodeid for task 5: the job has tasks 0 to 4"),
        (["--hostname=0", MAP], "unable to get hosts without a jobid"),
        (["--to=roman", MAP], "invalid value for --to=roman: use raw, pmi, multiline or hosts"),
        (["[[0,1"], "error decoding taskmap"),
    ],
)
def test_what_a_map_cannot_tell_is_said(argv: list[str], text: str) -> None:
    with pytest.raises(CommandError) as refused:
        taskmap.taskmap(argv)
    assert text in refused.value.text


def test_a_jobs_map_is_in_its_log_and_its_hosts_in_R(answers: Any, capsys: Any) -> None:
    log = [Event(1.0, "shell.init", {}), Event(2.0, "shell.start", {"taskmap": MAP})]
    asked = answers(
        taskmap,
        job_info__eventlog_watch=[{"event": encode(event)} for event in log],
        job_info__lookup={"R": json.dumps({"execution": {"nodelist": ["n[0-1]", "login"]}})},
    ).asked
    assert taskmap.taskmap(["--to=hosts", "f1"]) == 0
    assert taskmap.taskmap(["--hostname=4", "f1"]) == 0
    assert capsys.readouterr().out == "n0: 0-1\nn1: 2-3\nlogin: 4\nlogin\n"
    assert asked[0] == ("job-info.eventlog-watch", {"id": 0, "path": "guest.exec.eventlog", "flags": 0})


@pytest.mark.parametrize("log", [[], [OSError(errno.ENOENT, "No such file or directory")]])
def test_a_job_that_never_started_has_no_map(answers: Any, log: list[Any]) -> None:
    answers(taskmap, job_info__eventlog_watch=log)
    with pytest.raises(CommandError, match=r"failed to get shell\.start event for f1"):
        taskmap.taskmap(["f1"])
