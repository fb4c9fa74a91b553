"""Eventlogs as lines of text: times, contexts, colors and tests of a context."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.eventlog import Event, decode
from headrace.wire.query import QueryError
from headrace.wire.query.eventlog_format import Formatter, matches, split_match, text

LOG = [
    Event(1700000000.25, "submit", {"userid": 7, "flags": None}),
    Event(1700000001.5, "exception", {"type": "exec", "note": 'a "b" ƒ', "severity": 0}),
    Event(1700000060.125, "clean", None),
]


@pytest.fixture(params=["UTC0", "XXX-05:30", "YYY+03:00"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield {"UTC0": "Z", "XXX-05:30": "+05:30", "YYY+03:00": "-03:00"}[request.param]
    monkeypatch.undo()
    time.tzset()


def lines(**how) -> list[str]:
    made = Formatter(**how)
    return [made.line(event) for event in LOG]


def test_contexts_are_shown_as_json_values() -> None:
    assert [text(event) for event in LOG] == [
        "submit userid=7 flags=null",
        'exception type="exec" note="a \\"b\\" ƒ" severity=0',
        "clean",
    ]
    assert lines()[0] == "1700000000.250000 submit userid=7 flags=null\n"


def test_offsets_count_from_the_first_event_or_from_what_was_said() -> None:
    assert [line.split()[0] for line in lines(times="offset")] == ["0.000000", "1.250000", "59.875000"]
    made = Formatter(times="offset")
    made.start_at(1699999999.25)
    made.start_at(0.0)
    assert made.line(LOG[0]).startswith("1.000000 submit")


def test_iso_times_have_the_zones_offset(zone) -> None:
    shown = [line.split()[0] for line in lines(times="iso")]
    assert all(stamp.endswith(zone) for stamp in shown)
    whole = shown[0].replace("Z", "+00:00")
    assert whole[19:26] == ".250000"
    assert time.strptime(whole[:19] + whole[26:].replace(":", ""), "%Y-%m-%dT%H:%M:%S%z")
    # Half past five hours east it is later there.
    there = time.gmtime(1700000000 + {"Z": 0, "+05:30": 19800, "-03:00": -10800}[zone])
    assert whole[:19] == time.strftime("%Y-%m-%dT%H:%M:%S", there)


def test_people_see_the_first_event_of_a_minute_and_then_how_much_later() -> None:
    first, second, third = lines(times="human")
    assert re.match(r"\[[A-Z][a-z]{2}\d\d \d\d:\d\d\] submit", first)
    assert second.startswith("[  +1.250000] exception")
    assert re.match(r"\[[A-Z][a-z]{2}\d\d \d\d:\d\d\] clean", third)
    assert lines(times="reltime") == [first, second, third]


def test_json_lines_are_the_log_itself() -> None:
    assert decode("".join(lines(form="json"))) == LOG
    assert [json.loads(line)["name"] for line in lines(form="json")] == ["submit", "exception", "clean"]


def test_colors_change_nothing_but_the_color() -> None:
    plain = lambda line: re.sub(r"\033\[[0-9;]*m", "", line)  # noqa: E731
    for times in ("raw", "human"):
        colored = lines(times=times, colored=True)
        assert [plain(line) for line in colored] == lines(times=times)
        assert all(line.count("\033[0m") >= 2 for line in colored)


@pytest.mark.parametrize("how", [{"form": "xml"}, {"times": "stardate"}])
def test_unknown_formats_are_refused(how) -> None:
    with pytest.raises(QueryError, match="invalid"):
        Formatter(**how)


@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=2))
def test_a_test_of_a_context_takes_a_value_as_it_is_shown_or_said(value) -> None:
    event = Event(1.0, "x", {"key": value, "other": "no"})
    shown = json.dumps(value, separators=(",", ":"))
    assert matches(event, *split_match(f"key={shown}"))
    if isinstance(value, str):
        assert matches(event, *split_match(f"key={value}"))
    assert not matches(event, "key", shown + "!") or isinstance(value, str)
    assert not matches(event, "missing", shown)
    assert not matches(Event(1.0, "x", None), "key", shown)


@pytest.mark.parametrize("option", ["", "key", "=value"])
def test_a_test_of_a_context_needs_a_key_and_a_value(option) -> None:
    with pytest.raises(QueryError, match="key=value"):
        split_match(option)
