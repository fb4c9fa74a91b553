"""Which nodes reservations use during a span of time, told for any span without a look at each reservation.

`reservations.py` asks this before a match at a later moment: of these nodes a job gets only what reservations leave.
Time is cut where reservations begin and end. Each segment between two cuts has two sets of nodes (bit sets): those that
a reservation has whole, and those that any reservation uses. The answer for a span is the union of its segments: a few
dozen operations on integers, where a scan of all reservations would take thousands. Bits are nodes in the order in
which the match policy prefers them (`ranks`); whole nodes are also kept in the order of the graph.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import reduce
from operator import or_

from headrace.sched.graph.bitsets import each


class Profile:
    """Segment i of the lists is [times[i], times[i + 1]); nothing is used before the first and from the last on."""

    __slots__ = ("_cuts", "_parts", "times", "touched", "whole")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.touched: list[int] = []
        self.whole: list[int] = []
        # The number of reservations that begin or end at each of `times`.
        self._cuts: dict[int, int] = {}
        # By shared node (a single bit), the spans of its reservations: removing one must keep the node for the others.
        self._parts: dict[int, list[tuple[int, int]]] = {}

    def add(self, start: int, end: int, touched: int, whole: int, ranks: int) -> None:
        """Add a reservation during [start, end).

        `ranks` are its whole nodes by rank, `whole` the same in the caller's own form; `touched` includes `ranks`. No
        other reservation may touch the nodes of `ranks` during that time.
        """
        i, j = self._cut(start), self._cut(end)
        self.touched[i:j] = [t | touched for t in self.touched[i:j]]
        if whole:
            self.whole[i:j] = [w | whole for w in self.whole[i:j]]
        for bit in each(touched & ~ranks):
            self._parts.setdefault(bit, []).append((start, end))

    def remove(self, start: int, end: int, touched: int, whole: int, ranks: int) -> None:
        """Undo `add` with the same arguments."""
        i, j = bisect_left(self.times, start), bisect_left(self.times, end)
        keep = ~touched
        self.touched[i:j] = [t & keep for t in self.touched[i:j]]
        if whole:
            keep = ~whole
            self.whole[i:j] = [w & keep for w in self.whole[i:j]]
        for bit in each(touched & ~ranks):
            spans = self._parts[bit]
            spans.remove((start, end))
            if not spans:
                del self._parts[bit]
            for s, e in spans:
                if s < end and e > start:
                    k, m = bisect_left(self.times, max(s, start)), bisect_left(self.times, min(e, end))
                    self.touched[k:m] = [t | bit for t in self.touched[k:m]]
        self._join(start)
        self._join(end)

    def touched_in(self, start: int, end: int) -> int:
        """The nodes that are touched at some moment of [start, end)."""
        i = max(bisect_right(self.times, start) - 1, 0)
        return reduce(or_, self.touched[i : bisect_left(self.times, end)], 0)

    def whole_in(self, start: int, end: int) -> int:
        """The nodes that are held whole at some moment of [start, end)."""
        i = max(bisect_right(self.times, start) - 1, 0)
        return reduce(or_, self.whole[i : bisect_left(self.times, end)], 0)

    def _cut(self, t: int) -> int:
        """Make a segment begin at `t`, and return its index."""
        count = self._cuts.get(t, 0)
        self._cuts[t] = count + 1
        i = bisect_left(self.times, t)
        if not count:
            self.times.insert(i, t)
            self.touched.insert(i, self.touched[i - 1] if i else 0)
            self.whole.insert(i, self.whole[i - 1] if i else 0)
        return i

    def _join(self, t: int) -> None:
        """Remove the cut at `t` if no reservation begins or ends there any more."""
        count = self._cuts[t] - 1
        if count:
            self._cuts[t] = count
            return
        del self._cuts[t]
        i = bisect_left(self.times, t)
        del self.times[i], self.touched[i], self.whole[i]
