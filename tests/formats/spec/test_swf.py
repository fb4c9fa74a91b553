"""The Standard Workload Format: what a line says, and what is wrong with a bad one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import swf

LINE = "  7   120 30 3600  64 3500.5 -1 64 7200 -1  1  3 1 -1 2 1 -1 -1"


def test_a_line_is_eighteen_numbers_in_the_standards_order() -> None:
    record = swf.decode(LINE)
    assert (record.job, record.submit, record.wait, record.run) == (7, 120, 30, 3600)
    assert (record.allocated, record.cpu_time, record.processors, record.limit) == (64, 3500.5, 64, 7200)
    assert (record.status, record.user, record.queue, record.partition) == (swf.COMPLETED, 3, 2, 1)


@pytest.mark.parametrize(
    ("column", "word", "message"),
    [
        (1, "-1", "field 1 (job number): must not be -1"),
        (2, "-5", "field 2 (submit time): must not be -5"),
        (4, "1h", "field 4 (run time): must be a number, not '1h'"),
        (4, "nan", "field 4 (run time): must be a number, not 'nan'"),
        (4, "1e999", "field 4 (run time): must be at most 10^15, not 1e999"),
        (5, "1_0", "field 5 (allocated processors): must be an integer, not '1_0'"),
        (8, "2.5", "field 8 (requested processors): must be an integer, not '2.5'"),
        (8, "٣", "field 8 (requested processors): must be an integer, not '٣'"),
        (9, "-2", "field 9 (requested time): must be at least 0, or -1 for unknown, not -2"),
        (11, "6", "field 11 (status): must be from -1 to 5, not 6"),
    ],
)
def test_a_bad_field_is_named_with_its_rule(column: int, word: str, message: str) -> None:
    words = LINE.split()
    words[column - 1] = word
    with pytest.raises(swf.SwfError) as caught:
        swf.decode(" ".join(words))
    assert (str(caught.value), caught.value.field) == (message, column)


@pytest.mark.parametrize("text", [LINE + " 0", LINE[:-3], "x"])
def test_a_line_of_another_length_is_refused(text: str) -> None:
    with pytest.raises(swf.SwfError, match=f"has 18 fields, this line has {len(text.split())}"):
        swf.decode(text)


def test_header_comments_have_a_key_and_a_value() -> None:
    assert swf.header(";   MaxNodes:  128 ") == ("MaxNodes", "128")
    assert swf.header(swf.encode_header("Note", "a: b")) == ("Note", "a: b")
    assert swf.header("; just words") is None
    assert swf.header(LINE) is None


_count = st.integers(-1, 10**15)
_time = st.one_of(_count, st.floats(0, 1e15))
_columns = [_time if i in (2, 3, 5, 6, 8, 9, 17) else _count for i in range(18)]
_columns[:2] = [st.integers(0, 10**15), st.floats(0, 1e15)]
_columns[10] = st.integers(-1, 5)


@given(st.tuples(*_columns))
def test_every_record_is_read_back_as_it_was_written(values: tuple[float, ...]) -> None:
    record = swf.Record(*values)
    assert swf.decode(swf.encode(record)) == record


@given(st.text())
def test_any_text_is_a_record_or_an_error(text: str) -> None:
    try:
        assert len(swf.decode(text)) == 18
    except swf.SwfError as exc:
        assert str(exc)
