from __future__ import annotations

import time
from datetime import datetime

import pytest

from headrace.engine.modules.cron.schedule import Dates, Events, ScheduleError


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch):
    """Berlin: summer time from 29 March 2026 02:00 to 25 October 2026 03:00."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _next(now: str, **fields: object) -> str:
    found = Dates(fields).next_after(datetime.fromisoformat(now).timestamp())
    return "never" if found is None else datetime.fromtimestamp(found).isoformat(" ")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, "2026-11-26 13:30:16"),
        ({"second": 0}, "2026-11-26 13:31:00"),
        ({"second": 15}, "2026-11-26 13:31:15"),
        ({"second": 0, "minute": "30"}, "2026-11-26 14:30:00"),
        ({"second": 0, "minute": "*/20"}, "2026-11-26 13:40:00"),
        ({"second": 0, "minute": "5-59/20"}, "2026-11-26 13:45:00"),
        ({"second": 0, "minute": "50/5"}, "2026-11-26 13:50:00"),
        ({"second": 0, "minute": "10,31", "hour": "8-12"}, "2026-11-27 08:10:00"),
        ({"second": 0, "minute": 0, "hour": 0, "mday": 1}, "2026-12-01 00:00:00"),
        ({"second": 0, "minute": 0, "hour": 0, "mday": "31"}, "2026-12-31 00:00:00"),
        ({"second": 0, "minute": 0, "hour": 0, "mday": 1, "month": 0}, "2027-01-01 00:00:00"),
        ({"second": 0, "minute": 0, "hour": 0, "mday": 29, "month": "feb"}, "2028-02-29 00:00:00"),
        ({"second": 0, "minute": 0, "hour": 0, "mday": 30, "month": 1}, "never"),
        ({"second": 0, "minute": 0, "hour": 9, "weekday": "mon-fri"}, "2026-11-27 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "weekday": "Saturday"}, "2026-11-28 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "weekday": 7}, "2026-11-29 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "weekday": "5-7"}, "2026-11-27 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "mday": 13, "weekday": "fri"}, "2027-08-13 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "mday": 2, "month": 2, "year": 127}, "2027-03-02 09:00:00"),
        ({"second": 0, "minute": 0, "hour": 9, "mday": 2, "month": 2, "year": 126}, "never"),
    ],
)
def test_the_next_date(fields, found):
    assert _next("2026-11-26 13:30:15.5", **fields) == found


def test_an_hour_that_is_left_out_in_spring_is_passed_and_one_that_comes_twice_goes_on():
    summer = Dates({"second": 0, "minute": 30, "hour": 2})
    before = datetime(2026, 3, 28, 12).timestamp()
    first = summer.next_after(before)
    assert first is not None and datetime.fromtimestamp(first).date() == datetime(2026, 3, 29).date()
    second = summer.next_after(first)
    assert second is not None and second > first
    hourly = Dates({"second": 0, "minute": 0})
    now = datetime(2026, 10, 25, 1, 0).timestamp()
    for _ in range(5):
        found = hourly.next_after(now)
        assert found is not None and now < found <= now + 7200
        now = found


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"minute": "60"}, "minute: '60' is not in the range of 0-59"),
        ({"hour": "24"}, "hour: '24' is not in the range of 0-23"),
        ({"mday": 0}, "mday: '0' is not in the range of 1-31"),
        ({"month": 12}, "month: '12' is not in the range of 0-11"),
        ({"minute": "5-1"}, "minute: '5-1' is not in the range of 0-59"),
        ({"minute": "*/0"}, "minute: '*/0' has the step '0', it must be a number above 0"),
        ({"minute": "1-5/x"}, "minute: '1-5/x' has the step 'x', it must be a number above 0"),
        ({"minute": "1,,2"}, "minute: '1,,2' is neither a number nor a range, a list or *"),
        ({"minute": "-1"}, "minute: '-1' is neither a number nor a range, a list or *"),
        ({"weekday": "mo"}, "weekday: 'mo' is neither a number nor a range, a list or *"),
        ({"hour": "mon"}, "hour: 'mon' is neither a number nor a range, a list or *"),
    ],
)
def test_what_is_no_field_is_named(fields, error):
    with pytest.raises(ScheduleError) as caught:
        Dates(fields)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("nth", "after", "due"),
    [
        (0, 0, [1, 2, 3, 4, 5, 6, 7]),
        (3, 0, [3, 6]),
        (0, 3, [3, 4, 5, 6, 7]),
        (2, 3, [3, 5, 7]),
        (1, 0, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_events_are_counted(nth, after, due):
    events = Events(nth, after)
    assert [number for number in range(1, 8) if events.came()] == due
