"""What is asked of the job manager for each line, and how its refusals are told."""

from __future__ import annotations

import errno
import io
import signal
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import control

NO = OSError(errno.ENOENT, "unknown job id")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9", 9),
        ("KILL", 9),
        ("sigterm", 15),
        ("USR1", signal.SIGUSR1),
        ("0", -1),
        ("65", -1),
        ("ALIEN", -1),
        ("_DFL", -1),
    ],
)
def test_a_signal_has_a_number_or_a_name(text: str, number: int) -> None:
    assert control.signal_number(text) == number


def test_each_job_gets_the_signal_and_who_refuses_is_named(answers: Any, capsys: Any) -> None:
    broker = answers(control, job_manager__kill=[None, NO, None])
    assert control.kill(["-s", "HUP", "f2", "f3", "f4"]) == 1
    assert broker.asked == [("job-manager.kill", {"id": id, "signum": 1}) for id in (1, 2, 3)]
    assert capsys.readouterr().err == "flux-job: kill f3: unknown job id\n"


def test_a_signal_that_there_is_not_is_named_where_there_is_a_job(capsys: Any) -> None:
    with pytest.raises(CommandError, match=r"^kill: Invalid signal SIGFOO$"):
        control.kill(["-s", "SIGFOO", "f2"])
    with pytest.raises(CommandError):
        control.kill(["-s", "SIGFOO"])
    assert capsys.readouterr().err.startswith("Usage: flux-job kill [OPTIONS] ids...\n")


@pytest.mark.parametrize(
    ("argv", "ids", "request_"),
    [
        (["f2"], [1], {"type": "cancel", "severity": 0}),
        (["f2", "f3", "it", "is", "late"], [1, 2], {"type": "cancel", "severity": 0, "note": "it is late"}),
        # A word in small letters is not one more job, though it could be one's id.
        (["f2", "foo"], [1], {"type": "cancel", "severity": 0, "note": "foo"}),
        (["-m", "late", "f2", "f3"], [1, 2], {"type": "cancel", "severity": 0, "note": "late"}),
        (["-s7", "-t", "hint", "--", "ƒ2", "ƒ3"], [1, 2], {"type": "hint", "severity": 7}),
    ],
)
def test_what_is_no_job_is_the_note_of_an_exception(
    answers: Any, argv: list[str], ids: list[int], request_: dict[str, Any]
) -> None:
    broker = answers(control, job_manager__raise=None)
    assert control.raise_(argv) == 0
    assert broker.asked == [("job-manager.raise", {"id": id, **request_}) for id in ids]


def test_a_severity_is_from_0_to_7() -> None:
    with pytest.raises(CommandError, match="it must be from 0 to 7"):
        control.raise_(["-s8", "f2"])


@pytest.mark.parametrize(("text", "number"), [("hold", 0), ("EXPEDITE", 31), ("default", 16), ("7", 7)])
def test_an_urgency_is_a_number_or_a_word(answers: Any, text: str, number: int, capsys: Any) -> None:
    broker = answers(control, job_manager__urgency={"old_urgency": 31})
    assert control.urgency(["-v", "f2", text]) == 0
    assert broker.asked == [("job-manager.urgency", {"id": 1, "urgency": number})]
    assert capsys.readouterr().err == "old urgency: job expedited\n"


def test_a_memo_is_a_table_of_json_or_text(answers: Any, monkeypatch: Any) -> None:
    broker = answers(control, job_manager__memo=None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("[1]"))
    assert control.memo(["f2", "a.b=1", "a.c=x y", "d=-", "a.b.e=null"]) == 0
    memo = {"a": {"b": {"e": None}, "c": "x y"}, "d": [1]}
    assert broker.asked == [("job-manager.memo", {"id": 1, "volatile": False, "memo": memo})]
    with pytest.raises(CommandError, match="memo: no value for key a"):
        control.memo(["f2", "a"])


def test_jobs_are_purged_in_portions_until_there_are_no_more(answers: Any, capsys: Any) -> None:
    counts = [{"count": 2}, {"count": 2}, {"count": 1}]
    broker = answers(control, job_manager__purge=counts, job_manager__stats_get={"inactive_jobs": 4})
    assert control.purge(["--force", "--batch=2", "--age-limit=1m"]) == 0
    asked = {"age_limit": 60.0, "num_limit": -1, "batch": 2, "force": True}
    assert broker.asked[:3] == [("job-manager.purge", asked)] * 3
    assert capsys.readouterr().out == "purged 5 inactive jobs, 4 remaining\n"
    answers(control, job_manager__purge_id={"count": 1}, job_manager__stats_get={"inactive_jobs": 4})
    assert control.purge(["f2"]) == 0
    assert capsys.readouterr().out == "use --force to purge 1 of 4 inactive jobs\n"
    with pytest.raises(CommandError, match="num limit must be >= 0, not -42"):
        control.purge(["--num-limit=-42"])
    answers(control, job_manager__purge_id=OSError(errno.ENOENT, "id not found"))
    with pytest.raises(CommandError, match="purge: id not found"):
        control.purge(["f2"])


@pytest.mark.parametrize(("option", "text"), [("-fbad", "unknown flag: bad"), ("-ufast", "invalid urgency 'fast'")])
def test_flags_and_urgencies_that_do_not_exist_submit_nothing(monkeypatch: Any, option: str, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    with pytest.raises(CommandError) as refused:
        control.submit([option])
    assert refused.value.text == text
