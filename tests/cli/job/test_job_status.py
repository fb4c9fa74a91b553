"""How jobs ended, as an exit code, in words and as JSON; and how long they may still run."""

from __future__ import annotations

import errno
import json
import time
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import status
from headrace.formats.spec.eventlog import Event, encode

CANCEL = {"type": "cancel", "severity": 0, "note": "enough", "userid": 0}


def log(*events: tuple[str, Any]) -> list[Any]:
    return [{"event": encode(Event(float(time), name, context))} for time, (name, context) in enumerate(events, 1)]


@pytest.mark.parametrize(
    ("events", "argv", "code", "said"),
    [
        ([("finish", {"status": 0})], [], 0, ""),
        ([("finish", {"status": 0})], ["-vv"], 0, "exited with exit code 0"),
        ([("finish", {"status": 3 << 8})], ["-v"], 3, "exited with exit code 3"),
        ([("finish", {"status": (128 + 9) << 8})], ["-v"], 137, "job shell: task(s) Killed"),
        ([("finish", {"status": 15})], ["-v"], 143, "job shell died by signal Terminated"),
        ([("exception", CANCEL)], ["-v"], 1, "exception type=cancel"),
        ([("exception", CANCEL), ("finish", {"status": 143 << 8})], ["-v"], 143, "exception type=cancel"),
        ([("exception", CANCEL)], ["-e", "42"], 42, ""),
        ([("exception", {**CANCEL, "severity": 3}), ("finish", {"status": 0})], [], 0, ""),
    ],
)
def test_the_exit_code_is_the_jobs(
    answers: Any, events: list[Any], argv: list[str], code: int, said: str, capsys: Any
) -> None:
    answers(status, job_info__eventlog_watch=log(("submit", {}), *events))
    assert status.status([*argv, "f2"]) == code
    assert capsys.readouterr().err == (f"flux-job: ƒ2: {said}\n" if said else "")


def test_the_worst_of_several_counts_and_the_worst_exception_of_one_is_told(answers: Any, capsys: Any) -> None:
    warned = {**CANCEL, "type": "warn", "severity": 4}
    events = log(
        ("submit", {}), ("alloc", None), ("exception", warned), ("exception", CANCEL), ("finish", {"status": 9})
    )
    answers(status, job_info__eventlog_watch=events)
    assert status.status(["-j", "f2", "f3"]) == 137
    (told, _) = map(json.loads, capsys.readouterr().out.splitlines())
    assert told == {
        "id": 1,
        "exception_occurred": True,
        "t_submit": 1.0,
        "t_run": 2.0,
        "t_cleanup": 5.0,
        "waitstatus": 9,
        "exception_severity": 0,
        "exception_type": "cancel",
        "exception_note": "enough",
        "result": 4,
    }


def test_waiting_for_all_ends_when_there_are_no_more_and_fails_if_one_did(answers: Any, capsys: Any) -> None:
    good, bad = {"id": 1, "success": True, "errstr": ""}, {"id": 2, "success": False, "errstr": "exit 3"}
    none = OSError(errno.ECHILD, "no more")
    answers(status, job_manager__wait=[good, bad, none])
    assert status.wait(["-av"]) == 1
    assert capsys.readouterr().err == "flux-job: ƒ2: job completed successfully\nflux-job: ƒ3: exit 3\n"
    answers(status, job_manager__wait=[good, none])
    assert status.wait(["--all"]) == 0
    answers(status, job_manager__wait=none)
    with pytest.raises(CommandError) as refused:
        status.wait([])
    assert (refused.value.text, refused.value.status) == ("no more", 2)


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        ({"state": 16, "expiration": 0.0}, ["4294967295", "infinity"]),
        ({"state": 64}, ["0", "0s"]),
        ({"state": 16}, ["4294967295", "infinity"]),
    ],
)
def test_the_time_that_is_left(answers: Any, job: dict[str, Any], shown: list[str], capsys: Any) -> None:
    answers(status, job_list__list_id={"job": job})
    assert status.timeleft(["f2"]) == status.timeleft(["-H", "f2"]) == 0
    assert capsys.readouterr().out.split() == shown


def test_the_time_that_is_left_of_a_limit_or_of_the_instance(answers: Any, monkeypatch: Any, capsys: Any) -> None:
    end = time.time() + 3600
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    given = {"job_list__list_id": {"job": {"state": 16, "expiration": end}}}
    answers(status, resource__status={"R": {"execution": {"expiration": end}}}, **given)
    for argv in (["f2"], []):
        assert status.timeleft(argv) == 0
        assert 3000 < int(capsys.readouterr().out) <= 3600
    answers(status, job_list__list_id={"job": {"state": 8}})
    with pytest.raises(CommandError, match="job has not started"):
        status.timeleft(["f2"])
