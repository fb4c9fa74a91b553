"""What may be stored: no deep nesting, no large numbers, no text that is none."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.jobs.storable import MOST_LEVELS, is_deep, unstorable


def nested(levels: int, empty: bool = False) -> Any:
    value: Any = {} if empty else {"a": 1}
    for level in range(levels - 1):
        value = {"a": value, "b": "{["} if level % 2 else [value, 1]
    return value


@pytest.mark.parametrize("empty", [False, True])
def test_as_many_levels_as_the_limit_says_may_be_stored(empty: bool) -> None:
    assert not is_deep(nested(MOST_LEVELS, empty))
    assert is_deep(nested(MOST_LEVELS + 1, empty))
    assert is_deep(nested(100_000, empty)), "without recursion"
    assert not is_deep(5)
    assert not is_deep([[] for _ in range(1000)])
    assert is_deep(nested(3), 2)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [1, 2.5, None, "\u00e9"]}, ""),
        ({"a": (1 << 64) - 1}, ""),
        ({"a": 1 << 64}, "has a whole number of more than 64 bits"),
        ({"a": "\ud800"}, "has text that is not Unicode"),
        (nested(MOST_LEVELS + 1), f"is nested deeper than {MOST_LEVELS} levels"),
    ],
)
def test_why_a_value_cannot_be_stored(value: Any, why: str) -> None:
    assert unstorable(value) == why
