"""Durations (RFC 23): reading, and both ways of showing them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.duration import DurationError, encode, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("90", 90.0),
        ("2.25s", 2.25),
        (".2m", 12.0),
        ("3.h", 10800.0),
        ("1.25d", 108000.0),
        ("250ms", 0.25),
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
        "-3s",
        "2w",
        "4min",
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
        (0.0125, "0.013s", "0.0125s"),
        (0.7, "0.700s", "0.7s"),
        (3, "3.000s", "3s"),
        # A broker's age in a recorded `flux overlay status`, which shows six digits.
        (8.79558, "8.796s", "8.79558s"),
        (17, "17s", "17s"),
        (100, "1.667m", "1.66667m"),
        (600, "10m", "10m"),
        (3596.4, "59.94m", "59.94m"),
        (8100, "2.25h", "2.25h"),
        (172800, "2d", "2d"),
        (129600, "1.5d", "1.5d"),
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
