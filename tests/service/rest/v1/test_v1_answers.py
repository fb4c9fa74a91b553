from __future__ import annotations

import pytest

from headrace.service.rest.v1.answers import mentions, record

RUNNING = {"id": 7, "state": 16, "name": "sim(1", "t_run": 100.0, "ranks": "0", "annotations": {"user": {"k": ["V9"]}}}
FAILED = {
    **{"id": 8, "state": 64, "result": 2, "waitstatus": 256, "t_run": 100.0, "t_cleanup": 102.5},
    **{"exception_occurred": True, "exception_severity": 0, "exception_type": "exec", "exception_note": "no"},
}


def test_numbers_have_names_and_all_that_follows_is_there() -> None:
    found = record(FAILED)
    assert [found[name] for name in ("state", "result", "returncode", "runtime")] == ["INACTIVE", "FAILED", 1, 2.5]
    assert found["exception"] == {"occurred": True, "severity": 0, "type": "exec", "note": "no"}


def test_what_a_job_has_not_is_empty() -> None:
    found = record(RUNNING, now=105.0)
    assert [found[name] for name in ("expiration", "duration", "waitstatus", "result", "returncode")] == [""] * 5
    assert (found["ranks"], found["runtime"], found["exception"]["occurred"]) == ("0", 5.0, False)


@pytest.mark.parametrize("text", ["sim(", "SIM", "run", "v9", "ƒ8", "7"])
def test_a_text_is_found_wherever_it_is(text: str) -> None:
    assert mentions(record(RUNNING), text)


@pytest.mark.parametrize("text", ["sim.", "userid", "x", "[", "^sim"])
def test_a_text_is_no_pattern_and_no_name_of_a_field(text: str) -> None:
    assert not mentions(record(RUNNING), text)
