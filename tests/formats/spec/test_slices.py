"""Slices as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import slices

numbers = st.none() | st.integers(-9, 9)


@given(numbers, numbers, numbers.filter(lambda step: step != 0))
def test_a_slice_is_that_of_python(start: int | None, stop: int | None, step: int | None) -> None:
    text = ":".join("" if number is None else str(number) for number in (start, stop, step))
    assert slices.parse(f"[{text}]") == slice(start, stop, step)
    assert slices.parse(f"[{text.rpartition(':')[0]}]") == slice(start, stop)


@pytest.mark.parametrize("text", ["", "[", "[]", "[1]", "1:2", "[1:2", "[a:]", "[::0]", "[1:2:3:4]", "[:1.5]"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(slices.SliceError, match="could not parse python-style slice expression"):
        slices.parse(text)
