"""A quantity over time: how much of it is in use, as a step function of whole seconds.

Kept as the steps themselves, sorted by time: adding a span is two insertions, however many other spans there are. The
running sum is worked out when somebody asks, once, in C, and kept up to date from then on, where it changes. Steps that
cancel out are removed, so that a planner is as long as its live spans.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate


class Planner:
    """Use over time; from `times[i]` on `steps[i]` more is in use than before.

    `common`: one planner stands for many vertices that one job alone uses, and must be copied before it is changed.
    """

    __slots__ = ("_used", "common", "steps", "times")

    def __init__(self, start: int = 0, end: int = 0, amount: int = 0) -> None:
        """Nothing is in use, or `amount` in [start, end)."""
        self._used: list[int] | None = None
        self.common = False
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
        if not self.times:
            self.times = [start, end]
            self.steps = [amount, -amount]
            self._used = None
            return
        times, steps, used = self.times, self.steps, self._used
        i = bisect_left(times, start)
        if i == len(times) or times[i] != start:
            times.insert(i, start)
            steps.insert(i, amount)
            if used is not None:
                used.insert(i, used[i - 1] if i else 0)
        else:
            steps[i] += amount
        j = bisect_left(times, end, i)
        if j == len(times) or times[j] != end:
            times.insert(j, end)
            steps.insert(j, -amount)
            if used is not None:
                used.insert(j, used[j - 1])
        else:
            steps[j] -= amount
        if used is not None:
            used[i:j] = [u + amount for u in used[i:j]]
        if not (steps[i] and steps[j]):
            for k in (j, i):
                if not steps[k]:
                    del steps[k], times[k]
                    if used is not None:
                        del used[k]

    def copy(self) -> Planner:
        """Another planner with the same use, that belongs to nobody."""
        other = Planner.__new__(Planner)
        other._used = None
        other.common = False
        other.times = self.times[:]
        other.steps = self.steps[:]
        return other

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
        if i < 0:
            return max(used[:j], default=0) if j > 0 else 0
        return max(used[i:j]) if j > i + 1 else used[i]

    def over(self, limit: int, start: int, end: int) -> int | None:
        """The end of the last stretch in [start, end) in which more than `limit` is in use; None if there is none.

        For what lasts to the end of [start, end), no earlier start is worth a look.
        """
        times, used = self.times, self.used
        i = max(bisect_right(times, start) - 1, 0)
        j = bisect_left(times, end)
        if i >= j or max(used[i:j]) <= limit:
            return None
        while used[j - 1] <= limit:
            j -= 1
        return times[j] if j < len(times) else times[-1]

    def at(self, t: int) -> int:
        i = bisect_right(self.times, t)
        if not i:
            return 0
        used = self._used
        return (self.used if used is None else used)[i - 1]

    @property
    def idle(self) -> bool:
        return not self.times
