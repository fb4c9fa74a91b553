"""Sorting by introspection: sorted at any rate, in order where runs are short, and not where they are long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.introsort import introsorted


@given(st.lists(st.integers(0, 5), max_size=200), st.booleans())
def test_keys_are_in_order_and_nothing_is_lost(keys: list[int], falling: bool) -> None:
    items = list(enumerate(keys))
    found = introsorted(items, lambda item: item[1], falling)
    assert [key for _, key in found] == sorted(keys, reverse=falling)
    assert sorted(found) == items


@given(st.lists(st.integers(0, 5), max_size=16))
def test_up_to_sixteen_equals_keep_their_order(keys: list[int]) -> None:
    items = list(enumerate(keys))
    assert introsorted(items, lambda item: item[1]) == sorted(items, key=lambda item: item[1])


def test_uneven_partitions_end_in_insertion() -> None:
    # Organ pipes: the median of three is an end of the range again and again.
    keys = [*range(400), *range(400, 0, -1)]
    assert introsorted(keys, lambda key: key) == sorted(keys)


@pytest.mark.parametrize("count", [17, 40])
def test_more_equals_are_exchanged_as_partitions_leave_them(count: int) -> None:
    found = introsorted(range(count), lambda _: 0)
    assert sorted(found) == list(range(count)) != found
