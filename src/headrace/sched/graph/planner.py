"""A quantity over time: how much of it is in use, as a step function of whole seconds.

The steps are kept sorted by time, so adding a span is two insertions, however many spans there are. The running sum is
computed by C code at first use, and then updated where the steps change. Steps that cancel out are removed, so that the
length of a planner is that of its live spans.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate


class Planner:
    """Use over time: from `times[i]` on, `steps[i]` more is in use than before.

    A `copy_on_write` planner is shared by many vertices that only one job uses. It is never changed: a vertex gets a
    copy before another use is added to it.
    """

    __slots__ = ("_used", "copy_on_write", "steps", "times")

    def __init__(self, start: int = 0, end: int = 0, amount: int = 0) -> None:
        """A planner with nothing in use, or with `amount` in use in [start, end)."""
        self._used: list[int] | None = None
        self.copy_on_write = False
        if end > start:
            self.times = [start, end]
            self.steps = [amount, -amount]
        else:
            self.times = []
            self.steps = []

    def add(self, start: int, end: int, amount: int) -> None:
        """Use `amount` more in [start, end); a negative amount releases an earlier one."""
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
        """A planner with the same use that is not `copy_on_write`."""
        other = Planner.__new__(Planner)
        other._used = None
        other.copy_on_write = False
        other.times = self.times[:]
        other.steps = self.steps[:]
        return other

    @property
    def used(self) -> list[int]:
        """The amount in use from each of `times` on."""
        if self._used is None:
            self._used = list(accumulate(self.steps))
        return self._used

    def peak(self, start: int, end: int) -> int:
        """The largest amount in use at any moment of [start, end)."""
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
        """The end of the last stretch in [start, end) with more than `limit` in use; None if there is none.

        A job that lasts to the end of [start, end) can start no earlier than that.
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
