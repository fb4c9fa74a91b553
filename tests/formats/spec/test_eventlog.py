"""Eventlogs (RFC 18): encoding, decoding and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.eventlog import Event, EventlogError, decode, decode_line, encode

EXAMPLE = """\
{"timestamp":1552593348.073045,"name":"submit","context":{"urgency":16,"userid":5588,"flags":0}}
{"timestamp":1552593547.411336,"name":"urgency","context":{"urgency":0,"userid":5588}}
{"timestamp":1552593348.093541,"name":"free"}
{"timestamp":1552593348.092834,"name":"release","context":{"ranks":"all","final":true}}
"""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
events = st.builds(
    Event,
    st.floats(min_value=1e-6, max_value=1e12),
    st.from_regex(r"[a-z.-]+", fullmatch=True),
    st.none() | st.dictionaries(st.text(), json_values, max_size=4),
)


def test_the_log_of_the_rfc_is_read_and_written_back_unchanged():
    log = decode(EXAMPLE)
    assert [event.name for event in log] == ["submit", "urgency", "free", "release"]
    assert log[0] == Event(1552593348.073045, "submit", {"urgency": 16, "userid": 5588, "flags": 0})
    assert log[2].context is None
    assert "".join(map(encode, log)) == EXAMPLE


def test_the_last_newline_may_lack_and_an_empty_log_has_no_events():
    assert decode(EXAMPLE[:-1]) == decode(EXAMPLE)
    assert decode("") == []


def test_a_line_holds_no_newline_whatever_the_context_says():
    line = encode(Event(1.0, "x", {"note": "a\nb\u2028ƒ"}))
    assert (line.count("\n"), line[-1]) == (1, "\n")
    assert "ƒ" in line


def test_a_timestamp_in_whole_seconds_becomes_a_float():
    assert decode_line('{"timestamp":1,"name":"x"}\n') == Event(1.0, "x", None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"timestamp":NaN,"name":"x"}', "not JSON"),
        ("[" * 100000, "not JSON"),
        ('{"timestamp":1' + "0" * 5000 + ',"name":"x"}', r"not JSON|timestamp"),
        ("[1]", "object"),
        ('{"name":"x"}', "timestamp"),
        ('{"timestamp":0,"name":"x"}', "timestamp"),
        ('{"timestamp":-1.5,"name":"x"}', "timestamp"),
        ('{"timestamp":1e999,"name":"x"}', "timestamp"),
        ('{"timestamp":"1","name":"x"}', "timestamp"),
        ('{"timestamp":true,"name":"x"}', "timestamp"),
        ('{"timestamp":1}', "name"),
        ('{"timestamp":1,"name":""}', "name"),
        ('{"timestamp":1,"name":"a b"}', "name"),
        ('{"timestamp":1,"name":"a\\n"}', "name"),
        ('{"timestamp":1,"name":" a"}', "name"),
        ('{"timestamp":1,"name":7}', "name"),
        ('{"timestamp":1,"name":"x","context":null}', "context"),
        ('{"timestamp":1,"name":"x","context":[]}', "context"),
    ],
)
def test_a_line_that_breaks_the_rfc_is_refused(line, reason):
    with pytest.raises(EventlogError, match=reason):
        decode_line(line)


@pytest.mark.parametrize(
    "event",
    [
        Event(0.0, "x"),
        Event(float("nan"), "x"),
        Event(float("inf"), "x"),
        Event(1.0, ""),
        Event(1.0, "a b"),
        Event(1.0, "x", {"a": float("nan")}),
        Event(1.0, "x", {"a": object()}),
        Event(1.0, "x", ["a"]),
    ],
)
def test_an_event_that_breaks_the_rfc_is_not_written(event):
    with pytest.raises(EventlogError):
        encode(event)


def test_an_error_in_a_log_names_its_line():
    with pytest.raises(EventlogError, match=r"^line 3: "):
        decode('{"timestamp":1,"name":"a"}\n{"timestamp":1,"name":"b"}\n\n')


@given(st.lists(events, max_size=4))
def test_every_log_comes_back_from_its_text(log):
    text = "".join(map(encode, log))
    assert decode(text) == log
    assert [json.loads(line)["name"] for line in text.split("\n")[:-1]] == [event.name for event in log]


@given(st.text(max_size=40) | json_values.map(json.dumps))
def test_any_text_is_a_log_or_refused(text):
    try:
        log = decode(text)
    except EventlogError:
        return
    assert all(event.timestamp > 0 and event.name for event in log)
