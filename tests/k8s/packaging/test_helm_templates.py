"""Conditions of a template: what two variants have in common is written once, and each yields its variant."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import yaml
from helm import by_these_words
from msgspec import Struct

from headrace.k8s.packaging.helm_templates import Placeholders, Switches, template

Object = dict[str, Any]
NONE = Placeholders({}, {}, {})


class Choice(Struct, frozen=True):
    first: bool = True
    second: bool = True
    third: bool = True


SWITCHES: Switches = tuple((f"$.Values.{name}", {name: True}, {name: False}) for name in ("first", "second", "third"))


def named(words: list[str]) -> Object:
    return {"kind": "K", "metadata": {"name": "a"}, "words": ["begin", *words, "end"]}


def one_line_for_each(choice: Choice) -> list[Object]:
    return [named([name for name in ("first", "second", "third") if getattr(choice, name)])]


def one_within_another(choice: Choice) -> list[Object]:
    return [named(["first", *(["second"] if choice.second else [])] if choice.first else ["none"])]


def parts_of_two(choice: Choice) -> list[Object]:
    """A line that is there by either of two, which cannot be written once."""
    return [named(["either"] if choice.first or choice.second else [])]


def an_object_of_its_own(choice: Choice) -> list[Object]:
    more = {"kind": "L", "metadata": {"name": "b"}}
    return [*one_line_for_each(choice), *([more] if choice.second else [])]


@pytest.mark.parametrize("build", [one_line_for_each, one_within_another, parts_of_two, an_object_of_its_own])
def test_each_combination_yields_its_variant(build: Any) -> None:
    text = template(Choice(), build, SWITCHES, NONE)
    for chosen in product((True, False), repeat=3):
        values = dict(zip(("first", "second", "third"), chosen, strict=True))
        assert by_these_words({"templates/a.yaml": text}, values, "here") == build(Choice(*chosen))


def test_what_variants_have_in_common_is_written_once() -> None:
    text = template(Choice(), one_line_for_each, SWITCHES, NONE)
    assert [text.count(word) for word in ("begin", "first", "second", "third", "end\n")] == [1, 2, 2, 2, 1]
    assert yaml.safe_load(text.replace("{{-", "#")) == named(["first", "second", "third"])
