from __future__ import annotations

from typing import Any

import pytest

from headrace.service.fields import BadFields, Field, checked_text, pick


def whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


TABLE = (Field("a", whole, {"type": "integer"}, "A"), Field("b", checked_text, {"type": "string"}, "B"))


def test_values_are_read_by_their_fields() -> None:
    assert pick({"a": 1, "b": "x"}, TABLE) == {"a": 1, "b": "x"} and pick({}, TABLE) == {}


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BadFields) as caught:
        pick({"a": "1", "b": "\0", "c": 1}, TABLE)
    assert [name for name, _ in caught.value.problems] == ["a", "b", "c"]
    assert "known: a, b" in caught.value.problems[2][1]


@pytest.mark.parametrize("value", [1, None, "a\0", "\ud800", ["a"]])
def test_what_is_no_text_for_programs_and_files(value: Any) -> None:
    with pytest.raises(ValueError, match="must be text"):
        checked_text(value)
