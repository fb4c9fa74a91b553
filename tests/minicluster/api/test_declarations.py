"""A field's annotation has everything about it, and readers find it there."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Struct

from headrace.minicluster.api.declarations import (
    Bounds,
    Effect,
    Field,
    Items,
    Length,
    OneOf,
    Support,
    check_marks,
    fields_of,
    type_of,
)
from headrace.minicluster.operator.core.changes import effects

Level = Annotated[int, Bounds(0, 7, least_means="off")]


class Inner(Struct, frozen=True, kw_only=True, rename="camel"):
    levels: Annotated[list[Level], "Levels."] = []


class Example(Struct, frozen=True, kw_only=True, rename="camel"):
    first_name: Annotated[str, "The name.", Length(3), Support.ADDED]
    colour: Annotated[str | None, "The colour.", OneOf(("red", "blue"))] = None
    inner: Annotated[dict[str, Inner], "More.", Effect.AT_ONCE] = {}
    many: Annotated[list[str], "Words.", Items(2, "words")] = []


def test_a_field_is_read_from_its_annotation() -> None:
    name, colour, inner, _ = fields_of(Example).values()
    assert (name.name, name.attribute, name.text, name.required) == ("firstName", "first_name", "The name.", True)
    assert name.is_marked(Support.ADDED) and not colour.is_marked(Support.ADDED)
    assert (colour.type.kind, colour.default, colour.constant, colour.effect) == (str, None, True, None)
    assert (inner.type.kind, inner.default, inner.constant, inner.effect) == (dict, {}, False, Effect.AT_ONCE)
    assert inner.type.item == type_of(Inner)
    assert isinstance(inner, Field)


def test_values_are_compared_with_marks_at_any_depth() -> None:
    good = Example(first_name="abc", colour="red", inner={"a": Inner(levels=[0, 7])})
    assert list(check_marks(good, type_of(Example), "x")) == []
    bad = Example(first_name="abcd", colour="green", inner={"a": Inner(levels=[0, 8])}, many=["a", "b", "c"])
    assert {one.path: one.rule for one in check_marks(bad, type_of(Example), "x")} == {
        "x.firstName": "has 4 characters, at most 3 fit",
        "x.colour": "must be one of red, blue, not 'green'",
        "x.inner.a.levels[1]": "must lie between 0 (off) and 7, not 8",
        "x.many": "has 3 words, at most 2 fit",
    }


@pytest.mark.parametrize(
    ("bounds", "value", "rule"),
    [
        (Bounds(0), 0, ""),
        (Bounds(0), -1, "must not be negative, it is -1"),
        (Bounds(1), 0, "must be 1 or more, not 0"),
        (Bounds(0, least_means="all"), -1, "must be 0 (all) or more, not -1"),
        (Bounds(1, 9, reason="as there are digits"), 10, "must be 9 or less, as there are digits, not 10"),
        (Bounds(1, 9, reason="as there are digits"), 0, "must be 1 or more, not 0"),
    ],
)
def test_a_broken_bound_has_a_message(bounds: Bounds, value: int, rule: str) -> None:
    assert bounds.broken_by(value) == rule


def test_an_optional_choice_may_be_empty() -> None:
    required = type_of(Annotated[str, OneOf(("a",), optional=False)])
    assert [one.rule for one in check_marks("", required, "x")] == ["must be one of a, not ''"]
    assert list(check_marks("", type_of(Annotated[str, OneOf(("a",))]), "x")) == []


def test_effects_are_found_by_path() -> None:
    known, beginnings = effects()
    assert known["spec.groups[].maxSize"] is Effect.RESIZES
    assert "spec.groups" in beginnings
