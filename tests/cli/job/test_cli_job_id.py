"""Job ids in their forms, and which of mine were the last."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import id as job_id
from headrace.formats.spec import jobid
from headrace.wire.client import handle


@pytest.mark.parametrize(
    ("form", "shown"), [("", "1234"), ("f58plain", "fNH"), ("hex", "0x4d2"), ("kvs", "job.0000.0000.0000.04d2")]
)
def test_ids_are_converted_from_any_form_to_the_one_asked_for(form: str, shown: str, capsys: Any) -> None:
    assert job_id.id([*([f"--to={form}"] if form else []), "1234", "0x4d2", "fNH"]) == 0
    assert capsys.readouterr().out.splitlines() == [shown] * 3


def test_without_ids_they_are_read_from_standard_input(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("fNH\n\n 5 \n"))
    assert job_id.id([]) == 0
    assert job_id.namespace(["5"]) == 0
    assert capsys.readouterr().out == "1234\n5\njob-5\n"


@pytest.mark.parametrize(("argv", "text"), [(["--to=roman", "1"], "Unknown to=roman"), (["x!"], "x!: malformed input")])
def test_what_is_no_id_or_no_form_is_named(argv: list[str], text: str) -> None:
    with pytest.raises(CommandError) as refused:
        job_id.id(argv)
    assert refused.value.text == text


@pytest.mark.parametrize(("argv", "asked"), [([], "[:1]"), (["2"], "[:2]"), (["[1:3]"], "[1:3]"), (["[0]"], "[0]")])
def test_the_last_of_my_jobs_are_counted_or_sliced(answers: Any, argv: list[str], asked: str, capsys: Any) -> None:
    given = answers(handle, job_manager__history__get={"jobs": [9, 8]})
    assert job_id.last(argv) == 0
    assert given.asked == [("job-manager.history.get", {"slice": asked})]
    assert capsys.readouterr().out.split() == [jobid.encode(id, "f58") for id in (9, 8)]


def test_a_broker_without_history_is_asked_for_its_jobs(answers: Any, capsys: Any) -> None:
    jobs = [{"id": id, "t_submit": float(id)} for id in (1, 7, 9, 8)]
    none = OSError(errno.ENOSYS, "no such service")
    answers(handle, {"job-manager.history.get": none, "job-list.list": [{"jobs": jobs}]})
    assert job_id.last(["[:3:2]"]) == 0
    assert capsys.readouterr().out.split() == [jobid.encode(id, "f58") for id in (9, 7)]


@pytest.mark.parametrize("text", ["0", "x", "-1"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        job_id.last([text])


def test_nobody_has_a_last_job_before_the_first(answers: Any) -> None:
    answers(handle, job_manager__history__get={"jobs": []})
    with pytest.raises(CommandError, match="job history is empty"):
        job_id.last([])
    answers(handle, job_manager__history__get=OSError(errno.EPERM, "no"))
    with pytest.raises(OSError, match="no"):
        job_id.last([])
