"""A quantity over time: how much of it is in use, as a step function of whole seconds.

The points are two parallel lists kept sorted, so that a question about an interval is a bisection and a `max` over a
slice, both of which run in C. Points that no longer change anything are removed, so that a planner is as long as its
live spans.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Planner:
    """Use over time; `times[i]` up to `times[i + 1]` has `used[i]` in use, the last one for ever."""

    __slots__ = ("times", "used")

    def __init__(self) -> None:
        self.times: list[int] = [0]
        self.used: list[int] = [0]

    def _point(self, t: int) -> int:
        i = bisect_left(self.times, t)
        if i == len(self.times) or self.times[i] != t:
            self.times.insert(i, t)
            self.used.insert(i, self.used[i - 1] if i else 0)
        return i

    def add(self, start: int, end: int, amount: int) -> None:
        """Use `amount` more in [start, end); negative gives back what was added before. O(points in the interval)."""
        if end <= start:
            return
        i = self._point(start)
        j = self._point(end)
        used = self.used
        for k in range(i, j):
            used[k] += amount
        # Only the two borders can have become superfluous.
        if used[j] == used[j - 1]:
            del used[j], self.times[j]
        if i and used[i] == used[i - 1]:
            del used[i], self.times[i]

    def peak(self, start: int, end: int) -> int:
        """The most in use at any moment of [start, end)."""
        times = self.times
        if len(times) == 1:
            return self.used[0]
        i = bisect_right(times, start) - 1
        j = bisect_left(times, end)
        i = max(i, 0)
        if j <= i + 1:
            return self.used[i]
        return max(self.used[i:j])

    def at(self, t: int) -> int:
        return self.used[max(bisect_right(self.times, t) - 1, 0)]

    @property
    def idle(self) -> bool:
        return len(self.times) == 1
