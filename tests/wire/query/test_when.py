from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.query.when import WhenError, parse_future, parse_past

NOON = datetime(2026, 11, 21, 12, 0, 0).timestamp()  # a Saturday


def at(*parts: int) -> float:
    return datetime(*parts).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"), [("an hour ago", 3600), ("2 days ago", 172800), ("5 mins ago", 300), ("2w ago", 1209600)]
)
def test_a_span_may_be_counted_back(text, seconds):
    assert parse_past(text, NOON) == NOON - seconds


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("now", NOON),
        ("+1h", NOON + 3600),
        ("3pm", at(2026, 11, 21, 15)),
        ("11am", at(2026, 11, 22, 11)),
        ("at 3pm", at(2026, 11, 21, 15)),
        ("13:30", at(2026, 11, 21, 13, 30)),
        ("tomorrow", at(2026, 11, 22)),
        ("tomorrow 9am", at(2026, 11, 22, 9)),
        ("monday noon", at(2026, 11, 23, 12)),
        ("8pm tomorrow", at(2026, 11, 22, 20)),
        ("8:00:21 on monday", at(2026, 11, 23, 8, 0, 21)),
        ("in 2 hours", NOON + 7200),
        ("a day from now", NOON + 86400),
        ("90m", NOON + 5400),
        ("2 days", NOON + 172800),
        ("12/01/26", at(2026, 12, 1)),
        ("12/01/26 3pm", at(2026, 12, 1, 15)),
        ("12-01-2026 08:00:05", at(2026, 12, 1, 8, 0, 5)),
        ("12.1.26", at(2026, 12, 1)),
        ("2026-12-01T08:00", at(2026, 12, 1, 8)),
        ("12/01/2026 12:00 AM", at(2026, 12, 1)),
        ("8am Dec 1, 2026", at(2026, 12, 1, 8)),
        ("Tue Dec 1 2026 13:30", at(2026, 12, 1, 13, 30)),
        ("2026.12.01", at(2026, 12, 1)),
        ("12/1", at(2026, 12, 1)),
        ("11/21", at(2026, 11, 21)),
        ("Nov 20", at(2027, 11, 20)),
        ("December 1, 2026 13:30", at(2026, 12, 1, 13, 30)),
        ("1 Dec", at(2026, 12, 1)),
        ("tomorrow morning", at(2026, 11, 22, 6)),
        ("next friday", at(2026, 11, 27)),
        ("2026-12-01", at(2026, 12, 1)),
        ("2026-12-01 8am", at(2026, 12, 1, 8)),
        ("Dec 1 2026 3:30pm", at(2026, 12, 1, 15, 30)),
        ("2026-12-01 08:15", at(2026, 12, 1, 8, 15)),
    ],
)
def test_future_times(text, when):
    assert parse_future(text, NOON) == when


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("-15m", NOON - 900),
        ("3pm", at(2026, 11, 20, 15)),
        ("yesterday", at(2026, 11, 20)),
        ("100.5", 100.5),
        ("last Monday", at(2026, 11, 16)),
        ("2021-06-21 6am", at(2021, 6, 21, 6)),
    ],
)
def test_past_times(text, when):
    assert parse_past(text, NOON) == when


@pytest.mark.parametrize("text", ["@1000", "", "13/01/26", "Feb 29", "25:00", "13pm", "soon", "+soon", "3"])
def test_nonsense_is_refused_with_the_text(text):
    if text == "3":
        assert parse_future(text, NOON) == 3.0
        return
    with pytest.raises(WhenError, match="Invalid datetime"):
        parse_future(text, NOON)


@pytest.mark.parametrize("text", ["+1h", "1h", "in an hour"])
def test_since_refuses_the_future(text):
    with pytest.raises(WhenError, match="in the future"):
        parse_past(text, NOON)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_refused(text):
    try:
        assert isinstance(parse_future(text, time.time()), float)
    except WhenError:
        pass
