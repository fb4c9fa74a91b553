"""The median of some runs with its interval, quartiles and outliers. Pure Python.

Values are finite numbers; a NaN or an infinity raises ValueError. The interval of a median is the interpolated
order-statistic interval (T. P. Hettmansperger, S. J. Sheather, "Confidence intervals based on interpolated order
statistics", Statistics & Probability Letters 4, 1986), not a percentile bootstrap. Resampled medians are nearly always
values of the sample, so that the bootstrap of 5 to 50 values covers the true median in 86 to 96 % of cases only. The
interpolated interval covers it in 93.4 to 95.5 %, for normal, exponential and lognormal samples alike
(`tests/experiments/stats/test_interval_coverage.py`), and needs neither a seed nor resampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, isfinite, sqrt
from statistics import NormalDist

# With fewer values, even the whole range covers the median in less than 93 % of cases.
FEWEST = 5
# Above this number of values, the binomial distribution is approximated by the normal one.
_EXACT = 1000
# Tukey's fences: a value is an outlier if it lies further than this many interquartile ranges outside the quartiles.
_FENCE = 1.5


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle values. Raises ValueError without values."""
    return _quantile(_ordered(values), 0.5)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile, interpolated linearly (type 7 of Hyndman and Fan, numpy's default)."""
    ordered = _ordered(values)
    return _quantile(ordered, 0.25), _quantile(ordered, 0.5), _quantile(ordered, 0.75)


def outliers(values: Sequence[float]) -> list[int]:
    """Indexes of the values that lie outside Tukey's fences."""
    first, _, third = quartiles(values)
    reach = _FENCE * (third - first)
    return [at for at, value in enumerate(values) if value < first - reach or value > third + reach]


def median_interval(values: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float] | None:
    """The interval (low, high) that covers the true median with this confidence. None for fewer than five values.

    If the range of the values has less than the confidence, it is the interval: for five values and 95 %, whose range
    has 93.75 %.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, it must lie between 0 and 1")
    if len(values) < FEWEST:
        return None
    ordered = _ordered(values)
    depth = _depth(len(ordered), confidence)
    return _at(ordered, depth), -_at([-value for value in reversed(ordered)], depth)


def _depth(count: int, confidence: float) -> float:
    """The distance of the interval's ends from the least and greatest value: 0.5 is halfway to the next value."""
    if count > _EXACT:
        return max(0.0, count / 2 - 1 - NormalDist().inv_cdf((1 + confidence) / 2) * sqrt(count) / 2)
    # The number of values below the true median has a binomial distribution. So the interval from the n-th smallest to
    # the n-th greatest value covers the median with 1 - 2 P(fewer than n values are below it).
    below, coverage, rank = 1, 1 - 2.0 ** (1 - count), 1
    if coverage <= confidence:
        return 0.0
    while True:
        below += comb(count, rank)
        narrower = 1 - 2 * below / (1 << count)
        if narrower < confidence:
            share = (coverage - confidence) / (coverage - narrower)
            return rank - 1 + (count - rank) * share / (rank + (count - 2 * rank) * share)
        coverage, rank = narrower, rank + 1


def _ordered(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("there are no values")
    if not all(map(isfinite, values)):
        raise ValueError("values must be finite numbers")
    return sorted(values)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return _at(ordered, share * (len(ordered) - 1))


def _at(ordered: Sequence[float], place: float) -> float:
    """The value at a place from 0, interpolated between two neighbours."""
    whole = int(place)
    part = place - whole
    if not part:
        return float(ordered[whole])
    low, high = ordered[whole : whole + 2]
    # A product for each neighbour, because the difference of two huge values could be infinite. Rounding must not take
    # the result out of their range.
    return min(max(low * (1 - part) + high * part, low), high)
