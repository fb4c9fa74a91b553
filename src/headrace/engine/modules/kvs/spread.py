"""The distribution of a quantity: count, least, most, mean and standard deviation, without storing the samples."""

from __future__ import annotations

import math


class Spread:
    """Welford's running mean and sum of squared differences, which stay accurate where a sum of squares does not."""

    def __init__(self) -> None:
        self.count = 0
        self.least: float = 0
        self.most: float = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        self.least = min(self.least, value) if self.count else value
        self.most = max(self.most, value) if self.count else value
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self._squares += before * (value - self.mean)

    def stats(self) -> dict[str, float]:
        """The values for `module stats`; the deviation is that of a sample, 0 for fewer than two values."""
        deviation = math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0
        return {
            "count": self.count,
            "min": self.least,
            "mean": self.mean,
            "stddev": deviation,
            "max": self.most,
        }
