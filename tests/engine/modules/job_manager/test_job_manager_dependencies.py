"""Dependencies between jobs as text and as what they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_manager.dependencies import DependencyError, from_description, parse, refusal, verdict
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import CANCELED, COMPLETED, FAILED, TIMEOUT

SCHEMES = {
    "after": "after-start",
    "afterstart": "after-start",
    "afterany": "after-finish",
    "afterok": "after-success",
    "afternotok": "after-failure",
    "afterexcept": "after-except",
}


@given(st.sampled_from(sorted(SCHEMES)), st.integers(1, 2**63 - 1), st.sampled_from(["f58", "dec", "hex", "words"]))
def test_a_description_says_all_that_the_dependency_said(scheme: str, job: int, form: str) -> None:
    value = jobid.encode(job, form)
    need = parse({"scheme": scheme, "value": value})
    assert (need.kind, need.job, need.description) == (SCHEMES[scheme], job, f"{SCHEMES[scheme]}={value}")
    assert from_description(need.description) == need


@given(st.floats(0.001, 253_402_300_799.0))
def test_a_begin_time_is_kept_to_the_millisecond(when: float) -> None:
    need = parse({"scheme": "begin-time", "value": repr(when)})
    read = from_description(need.description)
    assert read is not None
    assert (read.kind, read.job) == ("begin-time", 0)
    assert abs(read.time - when) <= 0.0005 + 1e-5


@pytest.mark.parametrize(
    ("scheme", "value", "text"),
    [
        ("afterok", "nonsense!", 'dependency: afterok: "nonsense!" is not a valid jobid'),
        ("afterok", "0", "dependency: afterok: job not found: 0"),
        ("begin-time", "soon", "dependency: begin-time: 'soon' is not a time in seconds since the epoch"),
        ("begin-time", "nan", "dependency: begin-time: 'nan' is not a time after the epoch"),
        ("begin-time", "0", "dependency: begin-time: '0' is not a time after the epoch"),
        ("begin-time", "inf", "dependency: begin-time: 'inf' is not a time after the epoch"),
        ("begin-time", "253402300800", "dependency: begin-time: '253402300800' is after the year 9999"),
        ("fluid", "x", 'dependency scheme "fluid" not supported'),
    ],
)
def test_what_is_no_dependency_is_named(scheme: str, value: str, text: str) -> None:
    with pytest.raises(DependencyError) as caught:
        parse({"scheme": scheme, "value": value})
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "description", ["", "hold", "after-success", "after-success=??", "begin-time=soon", "afterok=1"]
)
def test_descriptions_of_others_are_theirs_to_remove(description: str) -> None:
    assert from_description(description) is None


# What became of the antecedent: (it started, its result or None while it is active, it had a fatal exception).
PENDING, RUNS = (False, None, False), (True, None, False)
DONE, FAILS = (True, COMPLETED, False), (True, FAILED, False)
KILLED, LATE, NEVER = (True, CANCELED, True), (True, TIMEOUT, True), (False, CANCELED, True)


@pytest.mark.parametrize(
    ("kind", "met", "never"),
    [
        ("after-start", [RUNS, DONE, FAILS, KILLED, LATE], [NEVER]),
        ("after-finish", [DONE, FAILS, KILLED, LATE, NEVER], []),
        ("after-success", [DONE], [FAILS, KILLED, LATE, NEVER]),
        ("after-failure", [FAILS, KILLED, LATE], [DONE, NEVER]),
        ("after-except", [KILLED, LATE], [DONE, FAILS, NEVER]),
    ],
)
def test_when_a_dependency_is_met(kind: str, met: list[Any], never: list[Any]) -> None:
    for state in (PENDING, RUNS, DONE, FAILS, KILLED, LATE, NEVER):
        expected = True if state in met else False if state in never else None
        assert verdict(kind, *state) is expected, state
    assert not never or refusal(kind, 5).startswith("dependency: after")
