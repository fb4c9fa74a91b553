"""Durations (RFC 23): reading, and both ways of showing them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spec.duration import DurationError, encode, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("90", 90.0),
        ("0.5s", 0.5),
        (".5m", 30.0),
        ("1.h", 3600.0),
        ("1.0d", 86400.0),
        ("100ms", 0.1),
        ("1e3", 1000.0),
        ("1E-3s", 0.001),
        ("+5", 5.0),
        ("0x10", 16.0),
        ("0x1d", 29.0),
        ("0x1.8p1m", 180.0),
        ("inf", math.inf),
        ("infinity", math.inf),
        ("INFINITY", math.inf),
    ],
)
def test_a_number_and_a_unit_are_seconds(text, seconds):
    assert parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1.0f",
        "1.0sec",
        "1S",
        "1M",
        "1 s",
        " 1",
        "1\n",
        "s",
        "ms",
        ".",
        "e3",
        "nan",
        "1_0",
        "٣",
        "0x",
        "1h30m",
        "1e999",
        "0x1p99999",
        "9" * 400,
        "-inf",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(DurationError, match="invalid duration"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "listed", "logged"),
    [
        (0, "0s", "0s"),
        (0.0004, "0s", "0.0004s"),
        (0.001, "0.001s", "0.001s"),
        (0.056, "0.056s", "0.056s"),
        (1.924, "1.924s", "1.924s"),
        (5, "5.000s", "5s"),
        (8.79558, "8.796s", "8.79558s"),
        (45, "45s", "45s"),
        (62, "1.033m", "1.03333m"),
        (120, "2m", "2m"),
        (599.76, "9.996m", "9.996m"),
        (5400, "1.5h", "1.5h"),
        (86400, "1d", "1d"),
        (103680, "1.2d", "1.2d"),
        (math.inf, "infinity", "infinity"),
    ],
)
def test_durations_are_shown_as_listings_and_log_lines_do(seconds, listed, logged):
    assert (encode(seconds), encode(seconds, 6)) == (listed, logged)


def test_fewer_digits_round():
    assert (encode(8.79558, 2), encode(0.1234, 1)) == ("8.8s", "0.1s")


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, -math.inf])
def test_what_is_no_duration_is_not_shown(seconds):
    with pytest.raises(DurationError):
        encode(seconds)


@given(st.floats(min_value=0, max_value=1e12), st.sampled_from([None, 6]))
def test_what_is_shown_reads_back_about_the_same(seconds, digits):
    assert parse(encode(seconds, digits)) == pytest.approx(seconds, rel=1e-3, abs=1e-3)


@given(st.text(alphabet="0123456789.exminfshd+- ", max_size=10) | st.text(max_size=10))
def test_any_text_is_a_duration_or_refused(text):
    try:
        seconds = parse(text)
    except DurationError:
        return
    assert seconds >= 0
