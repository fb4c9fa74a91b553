"""A Prometheus histogram: the number of observations up to each bound, their count, and their sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

# Bounds in seconds: for operations within a program, and for jobs, from one second to one day.
WORK = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
JOBS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Histogram:
    """A histogram with ascending `bounds`; a last bucket up to infinity is implied."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = WORK) -> None:
        self.bounds = bounds
        self.sum = 0.0
        # The number of observations in each bucket: above the previous bound, up to its own.
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, number: float) -> None:
        self._counts[bisect_left(self.bounds, number)] += 1
        self.sum += number

    def cumulative(self) -> list[int]:
        """For each bound, the number of observations up to it; the last element counts all."""
        found, total = [], 0
        for count in self._counts:
            total += count
            found.append(total)
        return found

    def as_object(self) -> dict[str, Any]:
        """The histogram as a JSON object, which `from_object` reads."""
        return {"bounds": list(self.bounds), "counts": list(self._counts), "sum": self.sum}


def from_object(obj: dict[str, Any]) -> Histogram:
    found = Histogram(tuple(obj["bounds"]))
    found._counts = list(obj["counts"])
    found.sum = obj["sum"]
    return found
