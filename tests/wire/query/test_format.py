from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.query.format import Format, FormatError

HEADINGS = {"id": "JOBID", "name": "NAME", "username": "USER", "queue": "QUEUE", "n": "N", "t": "TIME"}


def row(text: str, **values: object) -> str:
    return Format(text, HEADINGS).row(lambda name: values.get(name, ""))


def table(text: str, *rows: dict) -> list[str]:
    layout = Format(text, HEADINGS)
    getters = [lambda name, values=values: values.get(name, "") for values in rows]
    layout.fit(getters)
    return [layout.header(), *(layout.row(get) for get in getters)]


def test_header_is_aligned_as_the_rows():
    assert table("{id:>6} {name:<8.8} {n:>3}", {"id": "a", "name": "long-name-here", "n": 5}) == [
        " JOBID NAME       N",
        "     a long-nam   5",
    ]


def test_hyphen_stands_for_nothing_zero_duration_and_epoch():
    assert row("{n:>3h}|{t!F:>5h}|{t!d:%b%d::>6h}", n="", t=0.0) == "  -|    -|     -"
    assert row("{n:>3h}", n=0) == "  0"


def test_plus_marks_what_was_cut():
    assert row("{name:<5.5+}|", name="abcdefgh") == "abcd+|"
    assert row("{name:<5.5+}|", name="abcde") == "abcde|"


def test_column_without_values_goes_with_its_gap():
    assert table("{id} ?:{queue:<8.8} {n}", {"id": "a", "n": 1}) == ["JOBID N", "a 1"]
    assert table("?:{queue:<6} {n}", {"n": 1}) == [" N", " 1"]
    assert table("{id} ?:{queue:<8.8} {n}", {"id": "a", "queue": "q", "n": 1})[0] == "JOBID QUEUE    N"


def test_column_widens_to_its_longest_value_and_heading():
    assert table("+:{name:<3}|", {"name": "ab"}) == ["NAME|", "ab  |"]
    assert table("+:{name:<3.3}|", {"name": "abcdefg"}) == ["NAME   |", "abcdefg|"]


@pytest.mark.parametrize("conversion", ["!d", "!D", "!d:%b%d::>8"])
def test_time_that_no_calendar_has_is_shown_as_its_number(conversion):
    assert row(f"{{t{conversion}}}", t=1e300).strip() == "1e+300"
    assert row(f"{{t{conversion}}}", t=float("inf")).strip() == "inf"


def test_span_that_no_clock_has_is_shown_as_its_number():
    assert row("{t!F} {n!H}", t=-5.0, n=float("inf")) == "-5 inf"


def test_conversions_of_time_and_share(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert row("{t!d:%b%d %R::>12}", t=1795239438.9) == " Nov21 05:37"
    assert row("{t!D}", t=1795239438.9) == "2026-11-21T05:37:18"
    assert row("{t!d}", t=1795239438.9) == "2026-11-21T05:37:18"
    assert [row("{t!H}", t=span) for span in (3725.2, 0.02, 0.0, 90000)] == [
        "1:02:05",
        "0:00:01",
        "0:00:00",
        "1 day, 1:00:00",
    ]
    assert [row("{n!P}", n=share) for share in (0.5, 0.015, 0.0005, 1)] == ["50%", "1.5%", "0.05%", "100%"]


def test_numbers_keep_their_precision_and_missing_ones_stay_empty():
    assert row("{n:>5.1f}", n=0.64) == "  0.6"
    assert row("{n:>5.1f}|", n="") == "     |"


def test_a_specification_that_is_none_is_refused():
    with pytest.raises(FormatError, match="Invalid format specifier"):
        row("{n:garbage}", n=0.5)


def test_what_fills_the_cells_is_not_for_the_heading():
    assert table("{name:=^9}", {"name": "abc"}) == ["  NAME   ", "===abc==="]


def test_without_a_header_a_column_is_as_wide_as_its_values():
    layout = Format("+:{name:>1}", HEADINGS)
    getters = [lambda name: "a"]
    layout.fit(getters, header=False)
    assert layout.row(getters[0]) == "a"


def test_truth_is_a_word():
    assert row("{n:>6}", n=False) == " False"


def test_the_widest_column_is_wide():
    assert len(row("{id:>010000}", id="a")) == len(row("{t!d:%Y20001::>10000}", t=1.0)) == 10_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nosuch}", "Unknown format field: nosuch$"),
        ("{usrname}", r"Unknown format field: usrname \(did you mean username\? known are id, .*\)"),
        ("{id!Z}", "Unknown conversion: !Z"),
        ("{id", "Error in user format"),
        ("{id:>999999999999}", "id: a column has at most 10000 characters$"),
        ("{n:10001.2f}", "n: a column has at most 10000 characters$"),
        ("{n:.10001f}", "n: a column has at most 10000 characters$"),
        ("{id:<%s}" % ("9" * 5000), "id: a column has at most 10000 characters$"),
        ("+:{t!d:%H::>10001}", "t: a column has at most 10000 characters$"),
    ],
)
def test_wrong_format_is_refused_with_its_reason(text, message):
    with pytest.raises(FormatError, match=message):
        Format(text, HEADINGS)


def test_the_error_knows_all_fields_and_its_text_only_where_one_is_meant():
    with pytest.raises(FormatError) as caught:
        Format("{nosuch}", HEADINGS)
    assert caught.value.known == " (known are id, name, username, queue, n, t)"


def test_a_widened_number_keeps_its_precision():
    layout = Format("+:{id:.2f}", HEADINGS)
    layout.fit([{"id": 1 / 3}.get], header=False)
    assert layout.fields[0].spec == "18.2f"


def test_open_prefixes_admit_unknown_names():
    assert Format("{sched.anything}", HEADINGS, ("sched.",)).names == ["sched.anything"]


@given(st.text(max_size=30))
def test_any_text_is_a_format_or_refused(text):
    try:
        layout = Format(text, HEADINGS)
    except FormatError:
        return
    try:
        layout.row(lambda _name: "value")
    except FormatError:
        return
