"""A sorted list whose first item is cheap to remove.

A queue mostly removes jobs at its front and adds them at its end. Removing the first item of a plain list moves all
others, which would be most of the work of a queue of tens of thousands of jobs. `SortedList` only counts removed first
items, and frees their memory once they are half of the list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

# A type whose values can be compared with each other.
T = TypeVar("T", bound=Any)
# Fewer removed first items than this stay in memory.
_MIN_COMPACTION = 32


class SortedList(Generic[T]):
    """Items in ascending order, duplicates allowed.

    Indices count from 0; negative indices are not supported. `items` are sorted; the list belongs to the new object.
    """

    __slots__ = ("_gone", "_items")

    def __init__(self, items: list[T] | None = None) -> None:
        self._items: list[T] = [] if items is None else items
        # How many items at the start of `_items` have been removed.
        self._gone = 0

    def __len__(self) -> int:
        return len(self._items) - self._gone

    def __getitem__(self, number: int) -> T:
        return self._items[self._gone + number]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[self._gone :])

    def first(self, count: int) -> list[T]:
        """The first items, `count` at most."""
        return self._items[self._gone : self._gone + count]

    def between(self, begin: int, last: T) -> list[T]:
        """The items from index `begin` on that are at most `last`."""
        return self._items[self._gone + begin : bisect_right(self._items, last, self._gone)]

    def count_before(self, item: T) -> int:
        """How many items are less than `item`."""
        return bisect_left(self._items, item, self._gone) - self._gone

    def count_through(self, item: T) -> int:
        """How many items are at most `item`."""
        return bisect_right(self._items, item, self._gone) - self._gone

    def add(self, item: T) -> int:
        """Add an item; returns its index."""
        items = self._items
        if len(items) == self._gone or not item < items[-1]:
            items.append(item)
            return len(items) - 1 - self._gone
        at = bisect_left(items, item, self._gone)
        items.insert(at, item)
        return at - self._gone

    def remove(self, item: T) -> int:
        """Remove one item equal to `item`, which must be there; returns its index."""
        items, gone = self._items, self._gone
        at = bisect_left(items, item, gone)
        if at > gone:
            del items[at]
            return at - gone
        self._gone = gone = gone + 1
        if gone > _MIN_COMPACTION and gone * 2 > len(items):
            del items[:gone]
            self._gone = 0
        return 0
