"""What is known not to fit, so that nobody asks again: the memory that makes planning thousands of jobs affordable.

A shape of request that found no start before some moment will find none for any longer duration either, however many
promises are made since; only what is given back can change that, and only for starts from which a job would run into
the time that became free. So a search need look at those starts and at what lies beyond the moment, and nothing else.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

FOR_EVER = 2**62
# Every place there is, as a set of bits.
ANYWHERE = -1
_MAX_FREED = 32

Ranges = list[tuple[int, int]]


class _Miss(NamedTuple):
    length: int
    until: int
    # How many times something had been given back by then.
    gifts: int


class FailedSearches:
    """By shape: no start before `until` for a job of `length` seconds or more, as things stood after `count` gifts."""

    def __init__(self) -> None:
        self._misses: dict[str, list[_Miss]] = {}
        # The last spans of time in which something became free, and where; and how many there were in all.
        self._freed: list[tuple[int, int, int]] = []
        self._places: dict[int, int] = {}
        self.count = 0

    def forget(self) -> None:
        """Anything may have become possible."""
        self._misses.clear()

    def freed(self, start: int, end: int, places: int = ANYWHERE) -> None:
        """Something became free during [start, end), in a set of places."""
        if end <= start:
            return
        self._places.clear()
        self._freed.append((start, end, places))
        self.count += 1
        if len(self._freed) > _MAX_FREED:
            starts, ends, sets = zip(*self._freed, strict=True)
            self._freed = [(min(starts), max(ends), reduce(or_, sets))]

    def _since(self, count: int) -> list[tuple[int, int, int]]:
        """What became free after `count` gifts."""
        return self._freed[max(0, count - (self.count - len(self._freed))) :]

    def places(self, since: int) -> int:
        """Where something became free after `since` gifts."""
        found = self._places.get(since)
        if found is None:
            found = self._places[since] = reduce(or_, [places for _, _, places in self._since(since)], 0)
        return found

    def spans(self, since: int) -> tuple[int, int]:
        """From when until when anything became free after `since` gifts, at most."""
        found = self._since(since)
        return min([start for start, _, _ in found], default=0), max([end for _, end, _ in found], default=0)

    def missed(self, shape: str, length: int, until: int) -> None:
        """No job of this shape and at least this length can start before `until`."""
        kept = [m for m in self._misses.get(shape, ()) if m.length < length or m.until > until]
        kept.append(_Miss(length, until, self.count))
        self._misses[shape] = kept

    def openings(self, length: int, since: int, begin: int, end: int) -> Ranges:
        """Starts in [begin, end) from which a job would run into what became free after `since` gifts."""
        found: Ranges = []
        for a, b in sorted([(max(begin, s - length + 1), min(e, end)) for s, e, _ in self._since(since)]):
            if a >= b:
                continue
            if found and a <= found[-1][1]:
                found[-1] = (found[-1][0], max(b, found[-1][1]))
            else:
                found.append((a, b))
        return found

    def ranges(self, shape: str, length: int, now: int) -> Ranges:
        """The starts from `now` on that are worth looking at."""
        found = [(now, FOR_EVER)]
        known = [m for m in self._misses.get(shape, ()) if m.length <= length and m.until > now]
        if not known:
            return found
        # What was learnt later reaches less far, or it would have replaced what was learnt before.
        known.sort(key=lambda m: (-m.until, -m.gifts))
        gifts = -1
        for miss in known:
            if miss.gifts <= gifts:
                continue
            gifts = miss.gifts
            found = common(found, [*self.openings(length, gifts, now, miss.until), (miss.until, FOR_EVER)])
        return found


def common(a: Ranges, b: Ranges) -> Ranges:
    """What is in both."""
    found = [(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b]
    return [(start, end) for start, end in found if start < end]
