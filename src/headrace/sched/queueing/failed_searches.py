"""Failed searches for a start, remembered so that they are not repeated.

This makes thousands of reservations affordable. A shape that has no start before some moment has none for any longer
duration either, whatever reservations are made later. Only a release of resources can change that, and only for starts
from which the job would run into the released time. So the next search for that shape considers only those starts and
the starts after that moment.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

FOR_EVER = 2**62
# All holders (vertices that directly hold single resources, see `availability`), as a set of bits.
ALL_HOLDERS = -1
_MAX_RELEASES = 32

Ranges = list[tuple[int, int]]


class _FailedSearch(NamedTuple):
    """No start before `until` for a job of `length` seconds, when `releases` releases had been counted."""

    length: int
    until: int
    releases: int


class FailedSearches:
    """The failed searches by shape, and the releases of resources since.

    `releases` counts all releases so far. Arguments named `since` are such counts and refer to the releases after them.
    Sets of holders are bits.
    """

    def __init__(self) -> None:
        self._by_shape: dict[str, list[_FailedSearch]] = {}
        # The last releases: start, end, and the holders on which resources became free.
        self._released: list[tuple[int, int, int]] = []
        # The union of the holders of all releases after a count of them.
        self._holders: dict[int, int] = {}
        self.releases = 0

    def clear(self) -> None:
        """Forget all failed searches: the graph has changed."""
        self._by_shape.clear()

    def released(self, start: int, end: int, holders: int = ALL_HOLDERS) -> None:
        """Count a release: resources of some holders became free during [start, end) seconds."""
        if end <= start:
            return
        self._holders.clear()
        self._released.append((start, end, holders))
        self.releases += 1
        if len(self._released) > _MAX_RELEASES:
            starts, ends, sets = zip(*self._released, strict=True)
            self._released = [(min(starts), max(ends), reduce(or_, sets))]

    def _since(self, count: int) -> list[tuple[int, int, int]]:
        """The releases after the first `count`."""
        return self._released[max(0, count - (self.releases - len(self._released))) :]

    def released_holders(self, since: int) -> int:
        """The holders on which resources became free after the first `since` releases."""
        found = self._holders.get(since)
        if found is None:
            found = self._holders[since] = reduce(or_, [holders for _, _, holders in self._since(since)], 0)
        return found

    def released_span(self, since: int) -> tuple[int, int]:
        """The earliest start and latest end of the releases after the first `since`; (0, 0) for none."""
        found = self._since(since)
        return min([start for start, _, _ in found], default=0), max([end for _, end, _ in found], default=0)

    def add(self, shape: str, length: int, until: int) -> None:
        """Remember that no job of a shape that lasts `length` seconds or longer can start before `until`."""
        kept = [m for m in self._by_shape.get(shape, ()) if m.length < length or m.until > until]
        kept.append(_FailedSearch(length, until, self.releases))
        self._by_shape[shape] = kept

    def windows(self, length: int, since: int, begin: int, end: int) -> Ranges:
        """The starts in [begin, end) from which `length` seconds overlap a release after the first `since`."""
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
        """The starts from `now` on that no failed search has ruled out for a job of a shape and length."""
        found = [(now, FOR_EVER)]
        known = [m for m in self._by_shape.get(shape, ()) if m.length <= length and m.until > now]
        if not known:
            return found
        # A later failed search with a higher `until` has replaced the earlier ones, so here it has a lower `until`.
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
    """The parts that two lists of ranges have in common."""
    found = [(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b]
    return [(start, end) for start, end in found if start < end]
