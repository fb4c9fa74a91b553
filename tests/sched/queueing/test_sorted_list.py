"""A `SortedList` is a sorted list, whatever is added and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.queueing.sorted_list import SortedList

STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "first", "any"]), st.integers(0, 30)), max_size=300)


@given(STEPS)
def test_it_is_what_sorting_would_make_of_it(steps: list[tuple[str, int]]) -> None:
    items: SortedList[int] = SortedList()
    kept: list[int] = []
    for what, number in steps:
        if what == "add":
            assert items.add(number) == sum(item <= number for item in kept) or number in kept
            kept.append(number)
        elif kept:
            item = min(kept) if what == "first" else sorted(kept)[number % len(kept)]
            assert items.count_before(item) == items.remove(item) == sum(other < item for other in kept)
            kept.remove(item)
        kept.sort()
        assert (list(items), len(items), items.first(3)) == (kept, len(kept), kept[:3])
        assert [items[i] for i in range(len(items))] == kept
        assert items.count_through(number) == sum(item <= number for item in kept)
        assert items.between(items.count_through(number), number + 5) == [
            item for item in kept if number < item <= number + 5
        ]


def test_what_left_does_not_stay_in_memory() -> None:
    items: SortedList[int] = SortedList()
    for number in range(10_000):
        items.add(number)
        if number >= 10:
            items.remove(number - 10)
    assert len(items) == 10
    assert len(items._items) < 100
