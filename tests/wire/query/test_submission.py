"""What a process hands on to its jobs, and what is said of options without a command line."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.wire.query import QueryError, submission


def options(**given: Any) -> SimpleNamespace:
    names = (
        "signal taskmap setopt dependency begin_time requires preemptible_after setattr add_file debug flags urgency"
    )
    return SimpleNamespace(**{**dict.fromkeys(names.split()), "urgency": None, **given})


def jobspec() -> dict[str, Any]:
    return {"attributes": {"system": {}}}


def test_a_variable_that_is_no_text_is_left_out_of_jobs_and_stays_in_this_process(monkeypatch: Any) -> None:
    monkeypatch.setitem(os.environb, b"NO_TEXT", b"\xff")
    said: list[str] = []
    caller = submission.Caller(said.append)
    for rules in ((), ("OTHER=1",), ()):
        assert "NO_TEXT" not in caller.environment(rules)[0]
    assert said == ["warning: environment variable NO_TEXT is not UTF-8 text and is left out of the job"]
    assert os.environb[b"NO_TEXT"] == b"\xff"


def test_what_is_deprecated_is_told_to_who_asks() -> None:
    said: list[str] = []
    spec = jobspec()
    submission.finish(spec, options(dependency=["after:f1", "afterok:f2"]), said.append)
    assert said == ["dependency scheme 'after' is deprecated, use 'afterstart'"]
    assert [one["scheme"] for one in spec["attributes"]["system"]["dependencies"]] == ["after", "afterok"]


def test_dependencies_replace_those_of_before_and_a_begin_time_is_one_of_them() -> None:
    spec = jobspec()
    for job in ("f1", "f2"):
        submission.finish(spec, options(dependency=[f"afterok:{job}"], begin_time="+1h"), print)
        first, second = spec["attributes"]["system"]["dependencies"]
        assert first == {"scheme": "afterok", "value": job} and second["scheme"] == "begin-time"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"requires": ["a and"]}, "--requires='a and': "),
        ({"add_file": ["a\\nb"]}, "--add-file: file name missing"),
        ({"add_file": ["/"]}, "--add-file=/"),
        ({"begin_time": "some day"}, "Invalid datetime"),
    ],
)
def test_what_is_wrong_with_an_option_is_told_by_a_query_error(given: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryError) as caught:
        submission.finish(jobspec(), options(**given), print)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(("text", "number"), [("hold", 0), ("Expedite", 31), ("default", 16), ("7", 7)])
def test_an_urgency_is_a_name_or_a_number(text: str, number: int) -> None:
    assert submission.urgency(options(urgency=text)) == number


def test_an_unknown_urgency_or_flag_is_refused() -> None:
    with pytest.raises(QueryError, match="invalid urgency 'soon'"):
        submission.urgency(options(urgency="soon"))
    assert submission.submit_flags(options(debug=True, flags=["waitable,novalidate"])) == 14
    with pytest.raises(QueryError, match="--flags: Unknown flag loud"):
        submission.submit_flags(options(flags=["loud"]))


@pytest.mark.parametrize(
    ("jobspec", "problem"),
    [
        ({"tasks": [{"command": ["a", "b\udcff"]}]}, "argument 1 of the command ('b\\xff') is not UTF-8 text"),
        ({"tasks": [{"command": ["\ud800"]}]}, "the command ('\\ud800') is not UTF-8 text"),
        ({"attributes": {"system": {"job": {"\udcff": 1}}}}, "attributes.system.job is not UTF-8 text"),
        ({"attributes": {"system": {"job": {"name": "\udcff"}}}}, "name of the job is not UTF-8 text"),
        ({"attributes": {"system": {"cwd": "/\udcff"}}}, "cwd of the job is not UTF-8 text"),
        ({"version": "\udcff"}, "version is not UTF-8 text"),
        ({"\ud800": 1}, "the jobspec is not UTF-8 text"),
        ({"attributes": "\udcff", "tasks": 3}, "attributes is not UTF-8 text"),
    ],
)
def test_text_that_is_none_is_told_wherever_it_is(jobspec, problem):
    with pytest.raises(QueryError) as refused:
        submission.jobspec_text(jobspec)
    assert str(refused.value).startswith(problem)


def test_any_text_can_be_in_a_jobspec():
    jobspec = {"tasks": [{"command": ["\\udcff", "\U0001f600"]}], "x": None}
    assert json.loads(submission.jobspec_text(jobspec)) == jobspec
