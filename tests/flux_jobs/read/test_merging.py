"""Merges of lists by name; `tests/kube/test_merges.py` compares them with those of a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.flux_jobs.read.field import Field
from headrace.flux_jobs.read.merging import MERGE_KEYS, patched, upserted


def items(text: str, key: str = "name") -> list[Any]:
    """Items by their names and values: `a1 b2`."""
    return [{key: one[0], "value": one[1:]} for one in text.split()]


@pytest.mark.parametrize(
    ("before", "given", "after", "after_patch"),
    [
        ("a1 b1", "a2", "a2 b1", "a2 b1"),
        ("a1 b1 c1", "b2", "a1 b2 c1", "a1 b2 c1"),
        ("a1 b1", "c2", "a1 b1 c2", "c2 a1 b1"),
        ("a1 b1 c1", "c2 a2", "a2 b1 c2", "b1 c2 a2"),
        ("a1 b1 c1", "d2 b2", "a1 b2 c1 d2", "d2 a1 b2 c1"),
        ("a1 b1 c1", "b2 d2", "a1 b2 c1 d2", "a1 b2 d2 c1"),
        ("", "b2 a2", "b2 a2", "b2 a2"),
        ("a1", "", "a1", "a1"),
    ],
)
def test_an_item_that_is_there_is_changed_in_its_place(before: str, given: str, after: str, after_patch: str) -> None:
    assert upserted(Field(items(before)), Field(items(given))) == items(after)
    assert patched({"env": items(before)}, Field({"env": items(given)})) == {"env": items(after_patch)}


@pytest.mark.parametrize(("field", "key"), MERGE_KEYS.items())
def test_each_list_has_its_own_key(field: str, key: str) -> None:
    before, patch = {field: items("a1 b1", key)}, {field: [{key: "b", "more": "x"}]}
    assert patched(before, Field(patch)) == {field: [{key: "a", "value": "1"}, {key: "b", "value": "1", "more": "x"}]}


def test_mappings_are_merged_and_all_else_is_replaced() -> None:
    before = {"nodeSelector": {"a": "1", "b": "1"}, "tolerations": [{"key": "a"}], "hostPID": True, "env": None}
    patch = {"nodeSelector": {"b": "2", "c": None}, "tolerations": [{"key": "b"}], "hostPID": False, "env": items("a1")}
    assert patched(before, Field(patch)) == {
        "nodeSelector": {"a": "1", "b": "2"},
        "tolerations": [{"key": "b"}],
        "hostPID": False,
        "env": items("a1"),
    }


@pytest.mark.parametrize("patch", [{"env": [{"value": "x"}]}, {"env": ["x"]}, {"env": "x"}, {"env": [{"name": {}}]}])
def test_an_item_without_a_name_is_refused_at_its_place(patch: Any) -> None:
    field = Field(patch, "patch")
    assert patched({"env": items("a1")}, field) == {"env": items("a1")}
    assert field.problems and all(one.path.startswith("patch.env") for one in field.problems)


NAMED = st.lists(st.sampled_from("abcdef"), unique=True)


@given(NAMED, NAMED)
def test_nothing_is_lost_doubled_or_turned_round(before: list[str], patch: list[str]) -> None:
    one, other = items(" ".join(f"{name}1" for name in before)), items(" ".join(f"{name}2" for name in patch))
    untouched = repr((one, other))
    for merged in (upserted(Field(one), Field(other)), patched({"env": one}, Field({"env": other}))["env"]):
        names = [item["name"] for item in merged]
        assert sorted(names) == sorted({*before, *patch})
        assert [item["value"] for item in merged] == ["2" if name in patch else "1" for name in names]
        assert [name for name in names if name in before and name not in patch] == [
            name for name in before if name not in patch
        ]
    assert repr((one, other)) == untouched
