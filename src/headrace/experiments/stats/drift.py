"""Whether values drifted while an experiment ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.experiments.stats.medians import FEWEST, median
from headrace.experiments.stats.optional import scipy_stats


class Drift(NamedTuple):
    """Spearman's rank correlation of order and value (-1 to 1), and its p-value.

    `change` is the median of the last third of the values by that of the first third, less 1; None if that is no
    number.
    """

    rho: float
    p: float
    change: float | None


def drift(values: Sequence[float]) -> Drift | None:
    """The drift of values in the order of time. None for fewer than five values, and if all are equal.

    Raises MissingExtra without scipy.
    """
    if len(values) < FEWEST or min(values) == max(values):
        return None
    found = scipy_stats().spearmanr(range(len(values)), values)
    third = max(1, len(values) // 3)
    first, last = median(values[:third]), median(values[-third:])
    return Drift(float(found.statistic), float(found.pvalue), last / first - 1 if first > 0 else None)
