"""A histogram: how many of the observed numbers are at most each bound, how many there are, and their sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

# Seconds: of work within a program, and of jobs, from a second to a day.
WORK = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
JOBS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Histogram:
    """`bounds` ascend; a last one without limit is understood."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = WORK) -> None:
        self.bounds = bounds
        self.sum = 0.0
        # Of each bound the numbers that are above the bound before it.
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, number: float) -> None:
        self._counts[bisect_left(self.bounds, number)] += 1
        self.sum += number

    def cumulative(self) -> list[int]:
        """The numbers that are at most each bound; the last is their count."""
        found, total = [], 0
        for count in self._counts:
            total += count
            found.append(total)
        return found

    def as_object(self) -> dict[str, Any]:
        """As JSON, which `from_object` reads."""
        return {"bounds": list(self.bounds), "counts": list(self._counts), "sum": self.sum}


def from_object(obj: dict[str, Any]) -> Histogram:
    found = Histogram(tuple(obj["bounds"]))
    found._counts = list(obj["counts"])
    found.sum = obj["sum"]
    return found
