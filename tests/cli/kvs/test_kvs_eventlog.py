"""Eventlogs under any key: what is none, and what cannot be appended."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.kvs import eventlog
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec.eventlog import Event, encode

LINES = "".join(encode(Event(float(number), "tick", {"n": number})) for number in (1, 2)).encode()


def value(data: bytes) -> dict[str, Any]:
    return {"val": kvs.val(data)}


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-t", "soon", "k", "x"], "--timestamp: 'soon' is not a number of seconds"),
        (["k", "x", "{"], "context is not a JSON object"),
    ],
)
def test_what_cannot_be_an_event_is_refused(argv: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        eventlog.eventlog(["append", *argv])


@pytest.mark.parametrize("argv", [["k", "x", "5"], ["k", "a b"], ["k", ""], ["-t", "inf", "k", "x"]])
def test_what_an_eventlog_may_not_hold_is_not_sent(argv: list[str], answers: Any) -> None:
    broker = answers(eventlog)
    with pytest.raises(ValueError, match="event '"):
        eventlog.eventlog(["append", *argv])
    assert broker.asked == []


@pytest.mark.parametrize("option", [[], ["--watch"], ["--stream"]])
@pytest.mark.parametrize("data", [b"no eventlog\n", b"\xff\xfe", LINES + b'{"timestamp":3.0'])
def test_a_value_that_is_no_eventlog_is_named(option: list[str], data: bytes, answers: Any) -> None:
    answers(eventlog, kvs__lookup=value(data), kvs_watch__lookup=[value(data)])
    with pytest.raises(CommandError, match=r"^a\.b: not an eventlog: "):
        eventlog.eventlog(["get", *option, "a.b"])


@pytest.mark.parametrize("cut", [1, 20, len(LINES) - 1])
def test_portions_may_end_within_a_line(cut: int, answers: Any, capsys: Any) -> None:
    answers(eventlog, kvs_watch__lookup=[value(LINES[:cut]), value(LINES[cut:])])
    assert eventlog.eventlog(["get", "--stream", "-u", "k"]) == 0
    assert capsys.readouterr().out.encode() == LINES


def test_an_empty_value_has_no_events(answers: Any, capsys: Any) -> None:
    answers(eventlog, kvs__lookup=value(b""))
    assert eventlog.eventlog(["get", "k"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (OSError(errno.ENOENT, ""), "k: No such file or directory"),
        (TimeoutError(errno.ETIMEDOUT, ""), "wait-event timeout on event 'boom'"),
        (OSError(errno.ENODATA, ""), "event 'boom' never received"),
    ],
)
def test_a_wait_that_ends_otherwise_says_how(answer: OSError, text: str, answers: Any) -> None:
    answers(eventlog, kvs_watch__lookup=[value(LINES), answer])
    with pytest.raises(CommandError) as refused:
        eventlog.eventlog(["wait-event", "-t", "1s", "k", "boom"])
    assert refused.value.text == text
