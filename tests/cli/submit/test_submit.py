"""Copies of one command line: each has its own number, and what the caller hands on is looked up once for all."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headrace.cli.submit import submit
from headrace.formats.spec import rlimits
from headrace.wire.query import submission
from headrace.wire.query.signing import sign


def _jobspecs(*argv: str) -> list[dict[str, Any]]:
    # A jobspec is complete when it is made: the next one may share its environment.
    return [dict(make(), made=_number(make())) for _, make in submit.copies_of(submit._parser().parse_args([*argv]))]


def _number(jobspec: dict[str, Any]) -> str:
    number: str = jobspec["attributes"]["system"]["environment"].get("FLUX_JOB_CC", "")
    return number


def test_copies_have_their_number_in_command_name_and_environment() -> None:
    found = _jobspecs("--cc=1-3", "--job-name=job{cc}", "true", "{cc}", "same")
    assert [spec["tasks"][0]["command"] for spec in found] == [["true", str(number), "same"] for number in (1, 2, 3)]
    assert [spec["attributes"]["system"]["job"]["name"] for spec in found] == ["job1", "job2", "job3"]
    assert [spec["made"] for spec in found] == ["1", "2", "3"]


def test_the_environment_of_one_copy_is_not_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "value")
    first, second = (spec["attributes"]["system"]["environment"] for spec in _jobspecs("--cc=1-2", "true", "{cc}"))
    assert first["OWN"] == second["OWN"] == "value"
    assert (first["FLUX_JOB_CC"], second["FLUX_JOB_CC"]) == ("1", "2")


def test_environment_limits_and_directory_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, call)

    counted(submission, "_text_variables")
    counted(submission, "_working_directory")
    counted(rlimits, "collect")
    assert len(_jobspecs("--cc=1-20", "true", "{cc}")) == 20
    assert sorted(calls) == ["_text_variables", "_working_directory", "collect"]


def test_the_payload_of_a_submission_is_plain_json() -> None:
    args = submit._parser().parse_args(["--urgency=3", "--flags=waitable", "echo", 'quo"te\\', "\u00e4"])
    jobspec = submission.task_jobspec(args, submission.Caller(print))
    payload = submission.encode_request(jobspec, args)
    assert payload.endswith(b"}\0")
    body = json.loads(payload[:-1])
    assert body == {"J": sign(json.dumps(jobspec)), "urgency": 3, "flags": 4}
    assert json.loads(base64.b64decode(body["J"].split(".")[1])) == jobspec
