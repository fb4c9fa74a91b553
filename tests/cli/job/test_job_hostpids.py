"""The processes of a job, for tools; and how an event of a job that may not have it yet is found."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import hostpids
from headrace.formats.spec.eventlog import Event, encode

SHELL = {"service": "0-shell-f2", "leader-rank": 3}
EVENTS = [{"event": encode(Event(1.0, name, SHELL))} for name in ("submit", "start", "shell.init")]
TASKS = {"tasks": [[0, "n0", 11], [1, "n0", 12], [2, "n1", 13]]}


def given(**more: Any) -> dict[str, Any]:
    running = {"job": {"state": 16}}
    known = {"job_info__eventlog_watch": EVENTS, "job_list__list_id": running, "0_shell_f2__proctable": TASKS}
    return {**known, **more}


@pytest.mark.parametrize(
    ("argv", "shown"), [([], "n0:11,n0:12,n1:13"), (["-r1-2"], "n0:12,n1:13"), (["-d ", "-r", "0,2"], "n0:11 n1:13")]
)
def test_tasks_are_named_by_host_and_process(answers: Any, argv: list[str], shown: str, capsys: Any) -> None:
    broker = answers(hostpids, **given())
    assert hostpids.hostpids([*argv, "f2"]) == 0
    assert capsys.readouterr().out == shown + "\n"
    assert broker.asked[-1] == ("0-shell-f2.proctable", {})


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"job_list__list_id": {"job": {"state": 8}}}, "f2: job is not running"),
        ({"job_info__eventlog_watch": EVENTS[:2]}, "f2: job is not running"),
        ({"job_info__eventlog_watch": OSError(errno.ENOENT, "x")}, "f2: No such job"),
        ({"0_shell_f2__proctable": OSError(errno.EPERM, "not yours")}, "f2: not yours"),
        (
            {"0_shell_f2__proctable": TimeoutError(errno.ETIMEDOUT, "x")},
            "f2: no answer from the job's shells within 15s",
        ),
    ],
)
def test_why_there_are_none_is_said(answers: Any, more: dict[str, Any], text: str) -> None:
    answers(hostpids, **given(**more))
    with pytest.raises(CommandError) as refused:
        hostpids.hostpids(["f2"])
    assert refused.value.text == text
