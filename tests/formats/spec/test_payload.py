"""Forms of payloads: what fits, and which field is named when something does not."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.payload import form, mismatch

KINDS: dict[str, Any] = {
    "text": str,
    "count": int,
    "size": float,
    "on": bool,
    "map": dict,
    "any": object,
    "names": [str],
    "pairs": [[int]],
    "inner": {"a": int, "b?": str},
    "either": (str, dict),
}
GOOD: dict[str, Any] = {
    "text": "",
    "count": 0,
    "size": 1,
    "on": False,
    "map": {},
    "any": None,
    "names": ["x"],
    "pairs": [[1, 2], []],
    "inner": {"a": 1},
    "either": {},
}


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("more", [{}, {"unknown": [1]}, {"size": 2.5}, {"count": Number.ONE}, {"names": ("x",)}])
def test_what_fits_is_accepted_and_more_too(more: dict[str, Any]) -> None:
    assert mismatch(form(KINDS), {**GOOD, **more}) == ""


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("text", 5, "text: expected str, got int"),
        ("text", None, "text: expected str, got null"),
        ("count", True, "count: expected int, got bool"),
        ("count", 1.0, "count: expected int, got number"),
        ("size", True, "size: expected number, got bool"),
        ("size", "1", "size: expected number, got str"),
        ("on", 1, "on: expected bool, got int"),
        ("map", [], "map: expected object, got array"),
        ("names", "x", "names: expected array, got str"),
        ("names", ["x", 1], "names[1]: expected str, got int"),
        ("pairs", [[1], [True]], "pairs[1][0]: expected int, got bool"),
        ("inner", {}, "inner.a: missing, expected int"),
        ("inner", {"a": 1, "b": 2}, "inner.b: expected str, got int"),
        ("either", [], "either: expected str or object, got array"),
    ],
)
def test_the_field_and_both_types_are_named(field: str, value: Any, told: str) -> None:
    assert mismatch(form(KINDS), {**GOOD, field: value}) == told


@pytest.mark.parametrize("field", sorted(set(KINDS) - {"any"}))
def test_a_missing_field_is_named_unless_it_may_be_missing(field: str) -> None:
    body = {name: value for name, value in GOOD.items() if name != field}
    assert mismatch(form(KINDS), body).startswith(f"{field}: missing, expected ")
    optional = form({f"{name}?" if name == field else name: kind for name, kind in KINDS.items()})
    assert mismatch(optional, body) == mismatch(optional, {**body, field: None}) == ""


def test_no_payload_fits_where_no_field_is_needed() -> None:
    assert mismatch(form({"a?": int}), None) == mismatch(form({}), None) == ""
    assert (
        mismatch(form({"a": int, "b": (str, dict)}), None) == "no payload, expected one with a (int), b (str or object)"
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(field=st.sampled_from(sorted(KINDS)), value=values)
def test_it_says_so_exactly_when_the_value_is_of_another_type(field: str, value: Any) -> None:
    told = mismatch(form(KINDS), {**GOOD, field: value})
    assert (told == "") == fits(KINDS[field], value), told
    assert told == "" or told.startswith(field)


def fits(kind: Any, value: Any) -> bool:
    """The same question, answered from the kind as it is written."""
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(kind[0], item) for item in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(
            (name[:-1] not in value or value[name[:-1]] is None or fits(inner, value[name[:-1]]))
            if name.endswith("?")
            else (name in value and fits(inner, value[name]))
            for name, inner in kind.items()
        )
    if isinstance(kind, tuple):
        return any(fits(one, value) for one in kind)
    if kind is object:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
