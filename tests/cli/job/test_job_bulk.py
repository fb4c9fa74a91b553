"""All jobs of a user at once: counted first, done when it is confirmed."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import bulk

FOUND = {"count": 3, "errors": 0}


def test_nothing_is_done_without_force(answers: Any, capsys: Any) -> None:
    broker = answers(bulk, job_manager__killall=FOUND)
    assert bulk.killall([]) == bulk.killall(["-f", "-s", "INT", "-u", "all"]) == 0
    mine = {"signum": 15, "userid": os.getuid(), "dry_run": True}
    assert [body for _, body in broker.asked] == [mine, {"signum": 2, "userid": 0xFFFFFFFF, "dry_run": False}]
    assert capsys.readouterr().err == (
        "flux-job: Command matched 3 jobs (-f to confirm)\nflux-job: Interrupt 3 jobs (0 errors)\n"
    )


@pytest.mark.parametrize("argv", [[], ["-f"]])
def test_where_there_are_no_jobs_nothing_is_to_be_confirmed(answers: Any, capsys: Any, argv: list[str]) -> None:
    answers(bulk, job_manager__killall={"count": 0, "errors": 0})
    assert bulk.killall(argv) == 0
    assert capsys.readouterr().err == "flux-job: Command matched 0 jobs\n"


def test_a_signal_that_there_is_not_is_named() -> None:
    with pytest.raises(CommandError, match=r"^killall: Invalid signal SIGFOO$"):
        bulk.killall(["-f", "-s", "SIGFOO"])


def test_exceptions_go_to_jobs_in_the_states_that_are_named(answers: Any, capsys: Any) -> None:
    broker = answers(bulk, job_manager__raiseall={"count": 3, "errors": 1})
    assert bulk.raiseall(["-f", "-S", "sched,RUN", "-s", "0", "-u", "12", "cancel", "too", "late"]) == 1
    asked = {"states": 8 | 16, "severity": 0, "type": "cancel", "note": "too late", "userid": 12, "dry_run": False}
    assert broker.asked == [("job-manager.raiseall", asked)]
    assert capsys.readouterr().err == "flux-job: Raised exception on 3 jobs (1 errors)\n"


def test_cancelall_raises_the_exception_that_ends_a_job(answers: Any, capsys: Any) -> None:
    broker = answers(bulk, job_manager__raiseall=FOUND)
    assert bulk.cancelall(["-f", "-q", "-S", "pending", "no", "time"]) == 0
    asked = {"states": 14, "severity": 0, "type": "cancel", "note": "no time", "userid": os.getuid(), "dry_run": False}
    assert broker.asked == [("job-manager.raiseall", asked)]
    assert capsys.readouterr().err == "flux-job: Canceled 3 jobs (0 errors)\n"


def test_a_quiet_cancelall_does_not_tell_that_there_are_no_jobs(answers: Any, capsys: Any) -> None:
    answers(bulk, job_manager__raiseall={"count": 0, "errors": 0})
    assert bulk.cancelall(["-f", "-q"]) == bulk.cancelall(["-f"]) == 0
    assert capsys.readouterr().err == "flux-job: Command matched 0 jobs\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-S", "inactive", "x"], "error parsing states: inactive unknown"),
        (["-S", "asleep", "x"], "error parsing states: asleep unknown"),
        (["-s", "8", "x"], "Invalid severity: it must be from 0 to 7"),
        (["-u", "no such user", "x"], "unknown user no such user"),
    ],
)
def test_what_does_not_exist_is_named(answers: Any, argv: list[str], text: str) -> None:
    answers(bulk, job_manager__raiseall=FOUND)
    with pytest.raises(CommandError) as refused:
        bulk.raiseall(argv)
    assert refused.value.text == text


def test_a_refusal_is_the_brokers(answers: Any) -> None:
    answers(bulk, job_manager__killall=OSError(errno.EPERM, "guests can only act on their own jobs"))
    with pytest.raises(CommandError, match="guests can only act on their own jobs"):
        bulk.killall([])
