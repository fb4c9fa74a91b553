"""A row is a sorted list, whatever leaves it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.queueing.sorted_list import SortedList

STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "first", "any"]), st.integers(0, 30)), max_size=300)


@given(STEPS)
def test_it_is_what_sorting_would_make_of_it(steps: list[tuple[str, int]]) -> None:
    row: SortedList[int] = SortedList()
    kept: list[int] = []
    for what, number in steps:
        if what == "add":
            assert row.add(number) == sum(item <= number for item in kept) or number in kept
            kept.append(number)
        elif kept:
            item = min(kept) if what == "first" else sorted(kept)[number % len(kept)]
            assert row.before(item) == row.remove(item) == sum(other < item for other in kept)
            kept.remove(item)
        kept.sort()
        assert (list(row), len(row), row.first(3)) == (kept, len(kept), kept[:3])
        assert [row[i] for i in range(len(row))] == kept
        assert row.behind(number) == sum(item <= number for item in kept)
        assert row.between(row.behind(number), number + 5) == [item for item in kept if number < item <= number + 5]


def test_what_left_does_not_stay_in_memory() -> None:
    row: SortedList[int] = SortedList()
    for number in range(10_000):
        row.add(number)
        if number >= 10:
            row.remove(number - 10)
    assert len(row) == 10
    assert len(row._items) < 100
