from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from headrace.service.fields import BadBody, BadFields, Field, checked_text, json_object, pick


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


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 100_000, "the body is not JSON that this service reads: it is nested too deeply"),
        (b"[1", "the body is not JSON: Expecting ',' delimiter: line 1 column 3 (char 2)"),
    ],
    ids=["deep", "cut"],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(body: bytes, why: str) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    with pytest.raises(BadBody) as caught:
        asyncio.run(json_object(Request({"type": "http", "headers": []}, receive)))
    assert str(caught.value) == why
