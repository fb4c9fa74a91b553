"""A quantity over time: how much of it is in use, as a step function of whole seconds.

Kept as the steps themselves, sorted by time: adding a span is two insertions, however many other spans there are. The
running sum is worked out when somebody asks, once, in C. Steps that cancel out are removed, so that a planner is as
long as its live spans.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate


class Planner:
    """Use over time; from `times[i]` on `steps[i]` more is in use than before."""

    __slots__ = ("_used", "steps", "times")

    def __init__(self, start: int = 0, end: int = 0, amount: int = 0) -> None:
        """Nothing is in use, or `amount` in [start, end)."""
        self._used: list[int] | None = None
        if end > start:
            self.times = [start, end]
            self.steps = [amount, -amount]
        else:
            self.times = []
            self.steps = []

    def add(self, start: int, end: int, amount: int) -> None:
        """Use `amount` more in [start, end); negative gives back what was added before."""
        if end <= start:
            return
        times = self.times
        if not times:
            self.times = [start, end]
            self.steps = [amount, -amount]
            self._used = None
            return
        self._used = None
        self._step(start, amount)
        self._step(end, -amount)

    def _step(self, t: int, amount: int) -> None:
        i = bisect_left(self.times, t)
        if i < len(self.times) and self.times[i] == t:
            self.steps[i] += amount
            if not self.steps[i]:
                del self.steps[i], self.times[i]
        else:
            self.times.insert(i, t)
            self.steps.insert(i, amount)

    @property
    def used(self) -> list[int]:
        """What is in use from each of `times` on."""
        if self._used is None:
            self._used = list(accumulate(self.steps))
        return self._used

    def peak(self, start: int, end: int) -> int:
        """The most in use at any moment of [start, end)."""
        times = self.times
        if not times:
            return 0
        i = bisect_right(times, start) - 1
        j = bisect_left(times, end)
        used = self.used
        most = used[i] if i >= 0 else 0
        return max(most, *used[i + 1 : j]) if j > i + 1 else most

    def at(self, t: int) -> int:
        i = bisect_right(self.times, t) - 1
        return self.used[i] if i >= 0 else 0

    @property
    def idle(self) -> bool:
        return not self.times
