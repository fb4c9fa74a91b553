"""The numbers beside a chart: distributions, and groups by size."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, fsum
from typing import NamedTuple


class Spread(NamedTuple):
    """A distribution: its mean and its percentiles by nearest rank. All 0 for no values."""

    mean: float
    median: float
    p90: float
    p99: float
    max: float


def spread(values: Iterable[float]) -> Spread:
    """The distribution of some values."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)

    def rank(share: float) -> float:
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    return Spread(fsum(ordered) / len(ordered), rank(0.5), rank(0.9), rank(0.99), ordered[-1])


def by_size(sized: Iterable[tuple[int, float]]) -> list[tuple[str, list[float]]]:
    """Group the values of pairs (size, value) by size: 1, 2 to 3, 4 to 7, and so on. Sizes are at least 1."""
    by_power: dict[int, list[float]] = {}
    for size, value in sized:
        by_power.setdefault(size.bit_length() - 1, []).append(value)
    names = {power: f"{1 << power}-{(2 << power) - 1}" if power else "1" for power in by_power}
    return [(names[power], by_power[power]) for power in sorted(by_power)]
