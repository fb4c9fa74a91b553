"""Sets as bits do what sets of numbers do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import bitsets

# Members near each other, and far apart: one set has gaps of more than the 64 bits that are read at once.
members = st.one_of(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 1000), max_size=12))


def bits_of(numbers: set[int]) -> int:
    return sum(1 << number for number in numbers)


@given(members)
def test_numbers_are_the_members_in_order(numbers: set[int]) -> None:
    assert list(bitsets.numbers(bits_of(numbers))) == sorted(numbers)
    assert bitsets.each(bits_of(numbers)) == [1 << number for number in sorted(numbers)]


@given(members, st.data())
def test_the_lowest_and_the_highest_are_the_ends_of_the_order(numbers: set[int], data: Any) -> None:
    count = data.draw(st.integers(0, len(numbers)))
    order = sorted(numbers)
    if count:
        assert bitsets.lowest(bits_of(numbers), count) == bits_of(set(order[:count]))
        assert bitsets.highest(bits_of(numbers), count) == bits_of(set(order[-count:]))
    assert bitsets.lowest_numbers(bits_of(numbers), count) == order[:count]


def test_of_too_few_members_all_are_the_lowest() -> None:
    assert bitsets.lowest_numbers(0b1010, 5) == [1, 3]
    assert bitsets.lowest_numbers(0, 1) == []


@given(
    free=st.sets(st.integers(0, 15)),
    gpus=st.sets(st.integers(0, 15)),
    wanted=st.tuples(st.integers(1, 4), st.integers(0, 4)),
)
def test_slots_fit_as_often_as_their_scarcest_resource(free: set[int], gpus: set[int], wanted: tuple[int, int]) -> None:
    masks = {"core": bits_of(set(range(16)) - gpus), "gpu": bits_of(gpus)}
    parts = tuple((kind, count) for kind, count in zip(("core", "gpu"), wanted) if count)
    counts = {"core": len(free - gpus), "gpu": len(free & gpus)}
    assert bitsets.fit(parts, bits_of(free), masks) == min(counts[kind] // count for kind, count in parts)


def test_nothing_fits_that_asks_for_a_type_that_is_not_there() -> None:
    assert bitsets.fit((("core", 1), ("gpu", 1)), 0b11, {"core": 0b11}) == 0
