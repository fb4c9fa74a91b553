"""What is kept of a job, and waiting for an event of it."""

from __future__ import annotations

import base64
import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import eventlog
from headrace.formats.spec.eventlog import Event, encode

GONE = OSError(errno.ENOENT, "No such file or directory")
EVENTS = [Event(1.0, "submit", {}), Event(2.0, "tick", {"n": 1}), Event(3.0, "tick", {"n": 2})]
WATCHED = [{"event": encode(event)} for event in EVENTS]


@pytest.mark.parametrize(("options", "key", "flags"), [([], "R", 2), (["-b"], "R", 0), (["-o"], "R", 0)])
def test_a_value_is_looked_up_with_its_updates_or_without(
    answers: Any, options: list[str], key: str, flags: int, capsys: Any
) -> None:
    broker = answers(eventlog, job_info__lookup={key: "text"})
    assert eventlog.info([*options, "f2", key]) == 0
    assert broker.asked == [("job-info.lookup", {"id": 1, "keys": [key], "flags": flags})]
    assert capsys.readouterr().out == "text\n"


def test_the_original_jobspec_is_what_was_signed(answers: Any, capsys: Any) -> None:
    signed = "HEAD." + base64.b64encode(b'{"version":1}').decode() + ".none"
    answers(eventlog, job_info__lookup={"J": signed})
    assert eventlog.info(["-o", "f2", "jobspec"]) == 0
    assert capsys.readouterr().out == '{"version":1}\n'


@pytest.mark.parametrize("path", ["exec", "guest.exec.eventlog"])
def test_a_log_is_shown_by_its_path_or_short_name(answers: Any, path: str, capsys: Any) -> None:
    broker = answers(eventlog, job_info__lookup={"guest.exec.eventlog": "".join(map(encode, EVENTS))})
    assert eventlog.eventlog(["-p", path, "f2"]) == 0
    assert broker.asked[0][1]["keys"] == ["guest.exec.eventlog"]
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [
        ["submit"],
        ["tick", "n=1"],
        ["tick", "n=2"],
    ]


@pytest.mark.parametrize(
    ("command", "argv", "text"),
    [
        (eventlog.eventlog, ["f2"], "job eventlog not found"),
        (eventlog.eventlog, ["-p", "exec", "f2"], "eventlog path guest.exec.eventlog not found"),
        (eventlog.wait_event, ["-p", "x", "f2", "tick"], "eventlog path x not found"),
    ],
)
def test_what_is_not_there_is_named(answers: Any, command: Any, argv: list[str], text: str) -> None:
    answers(eventlog, job_info__lookup=GONE, job_info__eventlog_watch=GONE)
    with pytest.raises(CommandError) as refused:
        command(argv)
    assert refused.value.text == text


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["n=1"]),
        (["-c2"], ["n=2"]),
        (["-m", "n=2"], ["n=2"]),
        (["-q"], []),
        (["-v", "-m", "n=2"], ["submit", "n=1", "n=2"]),
    ],
)
def test_an_event_is_waited_for_by_name_number_and_context(
    answers: Any, options: list[str], shown: list[str], capsys: Any
) -> None:
    answers(eventlog, job_info__eventlog_watch=WATCHED)
    assert eventlog.wait_event([*options, "f2", "tick"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == shown


@pytest.mark.parametrize(
    ("argv", "last", "text"),
    [
        (["f2", "tock"], None, "event 'tock' never received"),
        (["-c3", "f2", "tick"], TimeoutError(errno.ETIMEDOUT, "x"), "wait-event timeout on event 'tick'"),
        (["-c0", "f2", "tick"], None, "count must be > 0"),
        (["-t", "soon", "f2", "tick"], None, "invalid timeout"),
    ],
)
def test_why_nothing_more_is_waited_for_is_said(answers: Any, argv: list[str], last: Any, text: str) -> None:
    answers(eventlog, job_info__eventlog_watch=[*WATCHED, *([last] if last else [])])
    with pytest.raises(CommandError) as refused:
        eventlog.wait_event(argv)
    assert text in refused.value.text
