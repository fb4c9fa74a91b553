"""Two samples compared: the ratio of their medians, and whether one tends to have the greater values.

All functions raise MissingExtra without numpy and scipy, but for `holm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from headrace.experiments.stats.medians import FEWEST, median
from headrace.experiments.stats.optional import numpy, scipy_stats

_RESAMPLES = 2000
# Resampled values that are held at a time (8 bytes each).
_BLOCK = 1_000_000


class Ratio(NamedTuple):
    """A ratio of medians, and its interval (low, high); None for fewer than five values on either side."""

    ratio: float
    interval: tuple[float, float] | None


def ratio_of_medians(
    above: Sequence[float], below: Sequence[float], *, seed: int = 0, confidence: float = 0.95
) -> Ratio | None:
    """The median of `above` by the median of `below`. None if a value is not positive, without values, and if the
    ratio is too large for a float.

    The interval is a percentile bootstrap: both samples are resampled, each by itself, and the interval has the middle
    `confidence` of the resampled ratios. It covers the true ratio in 95 to 97 % of cases for 5 to 50 values
    (`tests/experiments/stats/test_ratio_coverage.py`); unlike that of a single median, the distribution of the ratio is
    smooth enough. `seed` makes it repeatable.
    """
    if not above or not below or min(*above, *below) <= 0:
        return None
    ratio = median(above) / median(below)
    if not isfinite(ratio):
        return None
    if min(len(above), len(below)) < FEWEST:
        return Ratio(ratio, None)
    np = numpy()
    dice = np.random.default_rng(seed)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = _resampled(np, dice, above) / _resampled(np, dice, below)
        low, high = np.quantile(ratios, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Ratio(ratio, (float(low), float(high)) if isfinite(high) else None)


def _resampled(np: Any, dice: Any, values: Sequence[float]) -> Any:
    """The medians of `_RESAMPLES` samples drawn from the values: an array of numpy."""
    given = np.asarray(values, dtype=float)
    rows = max(1, _BLOCK // len(given))
    counts = [min(rows, _RESAMPLES - done) for done in range(0, _RESAMPLES, rows)]
    return np.concatenate([np.median(dice.choice(given, (count, len(given))), axis=1) for count in counts])


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The two-sided p-value of the Mann-Whitney U test, exact for small samples without ties.

    None for fewer than five values on either side.
    """
    if min(len(one), len(other)) < FEWEST:
        return None
    return float(scipy_stats().mannwhitneyu(one, other, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method for their number, in the given order.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted
