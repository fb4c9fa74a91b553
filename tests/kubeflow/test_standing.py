"""How a job stands by its eventlogs: status, events, and the lines of each node."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.formats.spec.eventlog import Event
from headrace.kubeflow.standing import NodeLines, Notice, notices, standing

PENDING = ["submit", "validate", "depend", "priority"]


def log(*names: str, **contexts: dict[str, Any]) -> list[Event]:
    return [Event(float(at), name, contexts.get(name)) for at, name in enumerate(names, 1)]


def data(rank: str, text: str, stream: str = "stdout", **more: Any) -> Event:
    return Event(1.0, "data", {"stream": stream, "rank": rank, "data": text, **more})


CANCELED = {"type": "cancel", "severity": 0, "note": "by a test"}
NOTE = {"type": "note", "severity": 7, "note": "nothing"}


@pytest.mark.parametrize(
    ("events", "lost", "status", "reason", "phase"),
    [
        ([], "", "Created", "", "Pending"),
        (log(*PENDING, "alloc"), "", "Created", "", "Pending"),
        (log(*PENDING, "alloc", "start"), "", "Running", "", "Running"),
        (log("start", "finish", finish={"status": 0}), "", "Running", "", "Running"),
        (log("start", "finish", "clean", finish={"status": 0}), "", "Complete", "", "Succeeded"),
        (log("start", "finish", "clean", finish={"status": 0}), "gone", "Complete", "", "Succeeded"),
        (log("start", "finish", "clean", finish={"status": 3 << 8}), "", "Failed", "Exit 3", "Failed"),
        (log("start", "finish", "clean", finish={"status": 9}), "", "Failed", "Killed", "Failed"),
        (log("exception", "clean", exception=CANCELED), "", "Failed", "cancel: by a test", "Failed"),
        (log("start", "exception", exception=CANCELED), "", "Running", "", "Running"),
        (
            log("start", "exception", "finish", "clean", exception=NOTE, finish={"status": 0}),
            "",
            "Complete",
            "",
            "Succeeded",
        ),
        ([], "gone", "Failed", "gone", "Failed"),
        (log("start"), "gone", "Failed", "gone", "Failed"),
        (log("clean"), "", "Failed", "it has not run", "Failed"),
    ],
)
def test_the_status_follows_from_the_log(events: list[Event], lost: str, status: str, reason: str, phase: str) -> None:
    assert standing(events, [], 2, lost) == (status, reason, [phase, phase])


def test_a_node_has_the_phase_of_its_shell() -> None:
    failed = log("start", "finish", "clean", finish={"status": 256})
    exits = [Event(1.0, "shell-exit", {"rank": rank, "wait_status": status}) for rank, status in ((7, 256), (3, 0))]
    assert standing(failed, exits, 2, "").phases == ["Succeeded", "Failed"]
    assert standing(failed, exits, 3, "").phases == ["Failed"] * 3


def test_events_are_those_of_the_log_and_the_words_of_shells() -> None:
    main = log("submit", "exception", "finish", submit={"userid": 0}, exception=CANCELED, finish={"status": 256})
    shells = [Event(2.5, "log", {"message": "no such file", "rank": 1, "level": 3}), Event(0.5, "shell.init", {})]
    assert notices(main, shells[1:], shells) == [
        Notice(1.0, "submit", "userid=0"),
        Notice(2.0, "exception", "cancel: by a test"),
        Notice(2.5, "log", "no such file", 1),
        Notice(3.0, "finish", "Exit 1"),
    ]
    assert [one.message for one in notices(log("start", "finish", finish={"status": 0}), [], [])] == ["start", "Exit 0"]


def lines(node: int, tasks: int, *events: Event) -> list[str]:
    found = NodeLines(node, tasks)
    return [*found.feed(events), *found.rest()]


def test_lines_are_those_of_a_nodes_tasks_however_they_arrive() -> None:
    events = [data("0", "a"), data("1", "b\nc"), data("2", "other\n"), data("0", "A\n"), data("1", "", eof=True)]
    assert lines(0, 2, *events) == ["b", "aA", "c"]
    assert lines(1, 2, *events) == ["other"]
    assert lines(2, 2, *events) == []
    assert lines(0, 4, data("[0-3]", "x\n"), data("0", "e", "stderr"), data("0", "o\n")) == ["x"] * 4 + ["o", "e"]
    assert lines(0, 1, data("0", "y\n", repeat=3), data("0", "/3g=", encoding="base64")) == ["y", "y", "y", "\ufffdx"]


def test_errors_of_the_shell_are_among_the_lines_of_its_node() -> None:
    said = [
        Event(1.0, "log", {"message": "no such file", "rank": 1, "level": 3}),
        Event(1.0, "log", {"message": "more tasks than cores", "rank": 1, "level": 5}),
    ]
    assert lines(1, 1, *said) == ["flux-shell[1]: no such file"]
    assert lines(0, 1, *said) == []
