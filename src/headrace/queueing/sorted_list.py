"""A sorted list of which mostly the first leave: what waits in order is taken from the front and added at the end.

A plain list moves all that is left when its first item goes, which is most of what a queue of tens of thousands of jobs
would do. Here the room of those that left is given back once it is half of all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

# What can be compared with its like.
T = TypeVar("T", bound=Any)
# Rows with fewer that left are not worth tidying.
_FEW = 32


class SortedList(Generic[T]):
    """Items in order; equal ones may be there several times. Negative numbers name nothing."""

    __slots__ = ("_gone", "_items")

    def __init__(self) -> None:
        self._items: list[T] = []
        # How many of the first have left.
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
        """The items from number `begin` on that are not more than an item."""
        return self._items[self._gone + begin : bisect_right(self._items, last, self._gone)]

    def count_before(self, item: T) -> int:
        """How many are less than an item."""
        return bisect_left(self._items, item, self._gone) - self._gone

    def count_through(self, item: T) -> int:
        """How many are not more than an item."""
        return bisect_right(self._items, item, self._gone) - self._gone

    def add(self, item: T) -> int:
        """Put an item in; returns how many are before it."""
        items = self._items
        if len(items) == self._gone or not item < items[-1]:
            items.append(item)
            return len(items) - 1 - self._gone
        at = bisect_left(items, item, self._gone)
        items.insert(at, item)
        return at - self._gone

    def remove(self, item: T) -> int:
        """Take out an item that is there; returns how many were before it."""
        items, gone = self._items, self._gone
        at = bisect_left(items, item, gone)
        if at > gone:
            del items[at]
            return at - gone
        self._gone = gone = gone + 1
        if gone > _FEW and gone * 2 > len(items):
            del items[:gone]
            self._gone = 0
        return 0
