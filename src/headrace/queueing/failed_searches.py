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
ALL_HOLDERS = -1
_MAX_RELEASES = 32

Ranges = list[tuple[int, int]]


class _FailedSearch(NamedTuple):
    length: int
    until: int
    # How many times something had been given back by then.
    releases: int


class FailedSearches:
    """By shape: no start before `until` for a job of `length` seconds or more, as things stood after `count` releases."""

    def __init__(self) -> None:
        self._by_shape: dict[str, list[_FailedSearch]] = {}
        # The last spans of time in which something became free, and where; and how many there were in all.
        self._released: list[tuple[int, int, int]] = []
        self._holders: dict[int, int] = {}
        self.releases = 0

    def clear(self) -> None:
        """Anything may have become possible."""
        self._by_shape.clear()

    def released(self, start: int, end: int, holders: int = ALL_HOLDERS) -> None:
        """Something became free during [start, end), in a set of holders."""
        if end <= start:
            return
        self._holders.clear()
        self._released.append((start, end, holders))
        self.releases += 1
        if len(self._released) > _MAX_RELEASES:
            starts, ends, sets = zip(*self._released, strict=True)
            self._released = [(min(starts), max(ends), reduce(or_, sets))]

    def _since(self, count: int) -> list[tuple[int, int, int]]:
        """What became free after `count` releases."""
        return self._released[max(0, count - (self.releases - len(self._released))) :]

    def released_holders(self, since: int) -> int:
        """Where something became free after `since` releases."""
        found = self._holders.get(since)
        if found is None:
            found = self._holders[since] = reduce(or_, [holders for _, _, holders in self._since(since)], 0)
        return found

    def released_span(self, since: int) -> tuple[int, int]:
        """From when until when anything became free after `since` releases, at most."""
        found = self._since(since)
        return min([start for start, _, _ in found], default=0), max([end for _, end, _ in found], default=0)

    def add(self, shape: str, length: int, until: int) -> None:
        """No job of this shape and at least this length can start before `until`."""
        kept = [m for m in self._by_shape.get(shape, ()) if m.length < length or m.until > until]
        kept.append(_FailedSearch(length, until, self.releases))
        self._by_shape[shape] = kept

    def windows(self, length: int, since: int, begin: int, end: int) -> Ranges:
        """Starts in [begin, end) from which a job would run into what became free after `since` releases."""
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
        known = [m for m in self._by_shape.get(shape, ()) if m.length <= length and m.until > now]
        if not known:
            return found
        # What was learnt later reaches less far, or it would have replaced what was learnt before.
        known.sort(key=lambda m: (-m.until, -m.releases))
        releases = -1
        for failure in known:
            if failure.releases <= releases:
                continue
            releases = failure.releases
            found = intersection(
                found, [*self.windows(length, releases, now, failure.until), (failure.until, FOR_EVER)]
            )
        return found


def intersection(a: Ranges, b: Ranges) -> Ranges:
    """What is in both."""
    found = [(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b]
    return [(start, end) for start, end in found if start < end]
