"""The order in which introsort leaves elements, also those that compare equal.

Fluxion takes the best of equal candidates in the order in which its sort has left them, and introsort is not stable: it
partitions around the median of three, down to runs of 16, which it sorts by insertion. More than 16 candidates are
therefore sorted with the same algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")
_RUN = 16


def introsorted(items: Iterable[_Item], key: Callable[[_Item], int], falling: bool = False) -> list[_Item]:
    """The items by rising or falling key."""
    sign = -1 if falling else 1
    entries = [(sign * key(item), item) for item in items]
    _partition(entries, 0, len(entries), 2 * len(entries).bit_length())
    _insert(entries)
    return [item for _, item in entries]


def _partition(entries: list[tuple[int, _Item]], first: int, last: int, depth: int) -> None:
    """Move smaller entries before larger ones, until runs are short or `depth` uneven partitions have been made."""
    while last - first > _RUN and depth:
        depth -= 1
        _median_to(entries, first, first + 1, first + (last - first) // 2, last - 1)
        pivot = entries[first][0]
        low, high = first + 1, last
        while True:
            while entries[low][0] < pivot:
                low += 1
            high -= 1
            while pivot < entries[high][0]:
                high -= 1
            if low >= high:
                break
            entries[low], entries[high] = entries[high], entries[low]
            low += 1
        _partition(entries, low, last, depth)
        last = low


def _median_to(entries: list[tuple[int, _Item]], to: int, a: int, b: int, c: int) -> None:
    """Swap the entry at `to` with the median of three others; of equal ones, with that which the comparisons select."""
    x, y, z = entries[a][0], entries[b][0], entries[c][0]
    between = (b if y < z else c if x < z else a), (a if x < z else c if y < z else b)
    median = between[0] if x < y else between[1]
    entries[to], entries[median] = entries[median], entries[to]


def _insert(entries: list[tuple[int, _Item]]) -> None:
    """Sort by insertion, which keeps equal entries in order."""
    for i in range(1, len(entries)):
        entry = entries[i]
        j = i
        while j and entry[0] < entries[j - 1][0]:
            entries[j] = entries[j - 1]
            j -= 1
        entries[j] = entry
