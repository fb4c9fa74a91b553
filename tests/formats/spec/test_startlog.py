from __future__ import annotations

import pytest

from headrace.formats.spec.eventlog import Event, decode, encode
from headrace.formats.spec.startlog import finish_event, follows_a_crash, runs, start_event


def _log(text: str) -> list[Event]:
    """A log of starts (s) and finishes (f), one second apart, as it is read back."""
    made = [start_event(n, f"0.{n}") if each == "s" else finish_event(n) for n, each in enumerate(text, 1)]
    return decode("".join(map(encode, made)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("s", [(1, None, False)]),
        ("sf", [(1, 2, False)]),
        ("sfs", [(1, 2, False), (3, None, False)]),
        ("ss", [(1, None, True), (2, None, False)]),
        ("sssff", [(1, None, True), (2, None, True), (3, 4, False)]),
        ("fs", [(2, None, False)]),
    ],
)
def test_runs_are_told_by_starts_and_finishes(text, found):
    assert [(run.start, run.end, run.crashed) for run in runs(_log(text))] == found


@pytest.mark.parametrize(
    ("text", "crashed"),
    [("", False), ("s", False), ("ss", True), ("sss", True), ("ssf", False), ("ssfs", False), ("sfss", True)],
)
def test_a_start_that_follows_a_start_follows_a_crash(text, crashed):
    assert follows_a_crash(runs(_log(text))) is crashed


@pytest.mark.parametrize(
    "event",
    [
        Event(9, "finish", {"version": 2}),
        Event(9, "finish", {"version": -1}),
        Event(9, "finish", {"version": True}),
        Event(9, "finish", {"version": "1"}),
        Event(9, "finish"),
        Event(9, "other", {"version": 1}),
    ],
)
def test_events_of_another_form_are_passed_over(event):
    (run,) = runs([*_log("s"), event])
    assert run.is_active


def test_a_run_has_the_version_of_its_start():
    assert [run.core_version for run in runs(_log("sfs"))] == ["0.1", "0.3"]
    assert [run.core_version for run in runs([Event(1, "start", {"version": 0})])] == [""]
