from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.service.pages.view import amount, elapsed, machine_moment, moment, rough, row

JOB: dict[str, Any] = {"id": 7, "name": "n", "userid": 0, "ntasks": 2, "nnodes": 1, "t_submit": 1.0, "t_run": 10.0}


@pytest.mark.parametrize(
    ("raw", "kind", "shape", "status", "state", "time", "about"),
    [
        (
            {"state": 8, "annotations": {"sched": {"reason_pending": "why"}}},
            "pending",
            "○",
            "Waiting",
            "Sched",
            "",
            "why",
        ),
        ({"state": 2, "dependencies": ["after=1"]}, "pending", "◌", "Waiting", "Depend", "", "waits for after=1"),
        ({"state": 16, "nodelist": "n1"}, "running", "▶", "Running", "Run", "5 s", "n1"),
        (
            {"state": 64, "result": 1, "t_cleanup": 100.0, "waitstatus": 0},
            "completed",
            "✔",
            "Completed",
            "",
            "1:30",
            "Exit 0",
        ),
        (
            {"state": 64, "result": 2, "t_cleanup": 11.0, "waitstatus": 256},
            "failed",
            "✖",
            "Failed",
            "",
            "1 s",
            "Exit 1",
        ),
        ({"state": 64, "result": 4, "t_cleanup": 11.0}, "canceled", "⊘", "Canceled", "", "1 s", "Canceled"),
        ({"state": 64, "result": 8, "t_cleanup": 11.0}, "timeout", "◷", "Timeout", "", "1 s", "Timeout"),
    ],
)
def test_a_line(raw: Any, kind: str, shape: str, status: str, state: str, time: str, about: str) -> None:
    found = row({**JOB, **raw}, 15.0)
    assert (found.kind, found.shape, found.status, found.state) == (kind, shape, status, state)
    assert (found.time, found.about) == (time, about)
    assert (found.id, found.tasks, found.submitted) == ("ƒ8", "2", 1.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "<0.01 s"),
        (0.0449, "0.045 s"),
        (9.94, "9.9 s"),
        (59.9, "59 s"),
        (60, "1:00"),
        (7384, "2:03:04"),
        (90000, "1 d 01:00:00"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.0, "0"), (0.000557, "<0.01"), (0.00999, "<0.01"), (0.01, "0.01"), (0.0557, "0.056")),
        *((0.999, "1"), (4, "4"), (5.57, "5.6"), (9.97, "10"), (55.71, "55.7"), (64, "64"), (100, "100")),
        *((123.4, "123"), (99.97, "100"), (12345678.9, "12345679")),
    ],
)
def test_numbers_have_the_digits_that_people_read(value: float, text: str) -> None:
    assert amount(value) == text


def test_a_moment_for_programs() -> None:
    assert machine_moment(86400.5) == "1970-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("raw", "about"),
    [
        (
            {"annotations": {"sched": {"t_estimate": 1815.0, "reason_pending": "2 jobs are ahead"}}},
            "2 jobs are ahead; starts in about 30 min",
        ),
        ({"annotations": {"sched": {"t_estimate": 1815.0}}}, "starts in about 30 min"),
        ({"annotations": {"sched": {"t_estimate": 15.0}}}, "starts soon"),
        ({"urgency": 0}, "held"),
        ({"urgency": 16, "priority": 0}, "held, as its priority is 0"),
        ({"state": 4}, "waits for its priority"),
        ({"state": 2, "dependencies": ["after=1", "begin-time=100"]}, "waits for after=1, begin@"),
        ({"state": 16, "nodelist": "vm,vm,vm,vm"}, "vm (4 brokers)"),
        ({"state": 16, "nodelist": "a,vm,vm"}, "a, vm (2 brokers)"),
        ({"state": 16, "nodelist": "node[0-3]"}, "node[0-3]"),
        ({"state": 16, "nodelist": "]"}, "]"),
    ],
)
def test_reasons_and_hosts_are_written_for_people(raw: Any, about: str) -> None:
    assert row({**JOB, "state": 8, **raw}, 15.0).about.startswith(about)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (45, "45 s"), (89, "89 s"), (1784, "30 min"), (5400, "2 h"), (86400, "24 h"), (400_000, "5 days")],
)
def test_an_estimate_has_few_digits(seconds: float, text: str) -> None:
    assert rough(seconds) == text


def test_a_line_does_not_grow_with_what_users_write() -> None:
    raw = {"name": "n" * 5000, "queue": "q" * 5000, "state": 2, "dependencies": ["d" * 5000]}
    found = row({**JOB, **raw}, 15.0)
    assert len(found.name) == len(found.queue) == 80 and len(found.about) == 240 and found.about.endswith("…")


def test_a_moment_says_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert moment(86400) == "1970-01-02 01:00:00 CET"
    finally:
        monkeypatch.undo()
        time.tzset()
