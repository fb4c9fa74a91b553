"""Counts and ranges of counts (RFC 45, RFC 14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.ranges import Range, RangeError, parse


@pytest.mark.parametrize(
    ("text", "range_", "encoded", "up_to_20"),
    [
        ("4", Range(4, 4), "4", [4]),
        ("0", Range(0, 0), "0", [0]),
        ("1-5:2:+", Range(1, 5, 2, "+"), "1-5:2", [1, 3, 5]),
        ("1-5:2", Range(1, 5, 2, "+"), "1-5:2", [1, 3, 5]),
        ("1-4:1:+", Range(1, 4), "1-4", [1, 2, 3, 4]),
        ("1-4", Range(1, 4), "1-4", [1, 2, 3, 4]),
        ("3-3", Range(3, 3), "3", [3]),
        ("[1-4:2:*]", Range(1, 4, 2, "*"), "1-4:2:*", [1, 2, 4]),
        ("[100+]", Range(100, None), "100+", []),
        ("17+", Range(17, None), "17+", [17, 18, 19, 20]),
        ("0+:7", Range(0, None, 7, "+"), "0+:7", [0, 7, 14]),
        ("3+:3:*", Range(3, None, 3, "*"), "3+:3:*", [3, 9]),
        ("2-300:2:^", Range(2, 300, 2, "^"), "2-300:2:^", [2, 4, 16]),
        ("2+:999999999999:^", Range(2, None, 999999999999, "^"), "2+:999999999999:^", [2]),
        ("2-10:5", Range(2, 10, 5), "2-10:5", [2, 7]),
    ],
)
def test_ranges_of_the_rfc_stand_for_these_counts(text, range_, encoded, up_to_20):
    parsed = parse(text)
    assert (parsed, parsed.encode(), list(parsed.values(20))) == (range_, encoded, up_to_20)


def test_a_set_of_counts_keeps_its_gaps():
    parsed = parse("[1,3-4,30]")
    assert (parsed.min, parsed.max, parsed.encode(), list(parsed.values(20))) == (1, 30, "1,3-4,30", [1, 3, 4])
    with pytest.raises(RangeError, match="no min/max form"):
        parsed.to_obj()


def test_the_dictionary_form_leaves_out_what_is_default():
    forms = [parse(text).to_obj() for text in ("1-4", "2+", "2-8:2:*")]
    assert forms == [{"min": 1, "max": 4}, {"min": 2}, {"min": 2, "max": 8, "operand": 2, "operator": "*"}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "x",
        "-1",
        "01",
        "1-02",
        "4-1",
        "1-",
        "+",
        "1+:",
        "1+:0",
        "1-4:0",
        "1-4:2:",
        "1-4:2:/",
        "1-4:2:**",
        "3:2",
        "1 +",
        "1+:1:*",
        "0-4:2:*",
        "1-4:2:^",
        "2-9:1:^",
        "1,1",
        "1+,3",
        "[1",
        "1-4]",
        "٣+",
        "1+\n",
        "9" * 5000,
        "1-" + "9" * 30,
    ],
)
def test_text_that_is_no_count_is_refused(text):
    with pytest.raises(RangeError):
        parse(text)


ranges = st.one_of(
    st.builds(
        lambda low, more, by: Range(low, low + more, by), st.integers(0, 50), st.integers(1, 50), st.integers(1, 9)
    ),
    st.builds(
        lambda low, by, op: Range(low, None, by, op), st.integers(2, 50), st.integers(2, 9), st.sampled_from("+*^")
    ),
)


@given(ranges, st.integers(0, 400))
def test_every_range_comes_back_from_its_text_and_its_counts_ascend(range_, limit):
    assert parse(range_.encode()) == parse(f"[{range_.encode()}]") == range_
    values = list(range_.values(limit))
    assert values == sorted(set(values))
    assert all(range_.min <= value <= limit for value in values)
    assert bool(values) == (range_.min <= limit)


@given(st.text(alphabet="0123456789-+:*^,[] ", max_size=10) | st.text(max_size=10))
def test_any_text_is_a_count_or_refused(text):
    try:
        parsed = parse(text)
    except RangeError:
        return
    assert parse(parsed.encode()) == parsed
    assert list(parsed.values(parsed.min)) == [parsed.min]
