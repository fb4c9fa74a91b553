"""Medians, quartiles and intervals against numpy and scipy on random samples, and at their edges."""

from __future__ import annotations

import numpy
import pytest
from scipy import stats

import sizes
from headrace.experiments.stats.medians import FEWEST, median, median_interval, outliers, quartiles
from seeds import seed


def samples() -> list[list[float]]:
    """Samples of 1 to 60 values, of several shapes and scales, some with ties."""
    dice = numpy.random.default_rng(seed())
    found = []
    for number in range(sizes.size("samples")):
        count, scale = int(dice.integers(1, 60)), 10.0 ** int(dice.integers(-9, 9))
        values = [dice.normal, dice.standard_exponential, dice.lognormal][number % 3](size=count)
        found.append([float(value) for value in (numpy.round(values) if number % 5 == 0 else values * scale)])
    return found


@pytest.mark.soak
def test_medians_quartiles_and_outliers_are_those_of_numpy() -> None:
    for values in samples():
        first, middle, third = numpy.percentile(values, (25, 50, 75))
        assert quartiles(values) == pytest.approx((first, middle, third), rel=1e-12)
        assert median(values) == pytest.approx(numpy.median(values), rel=1e-12)
        low, high = first - 1.5 * (third - first), third + 1.5 * (third - first)
        assert outliers(values) == [n for n, value in enumerate(values) if not low <= value <= high]


@pytest.mark.soak
def test_an_interval_is_within_the_one_that_has_at_least_its_confidence() -> None:
    """The interval of scipy ends at values of the sample, so it is the next wider one."""
    for values in samples():
        interval = median_interval(values)
        if interval is None:
            assert len(values) < FEWEST
            continue
        low, high = interval
        assert min(values) <= low <= median(values) <= high <= max(values)
        if len(values) > FEWEST:
            wider = stats.quantile_test(values).confidence_interval(0.95)
            assert wider.low <= low + 1e-9 * abs(low) and high <= wider.high + 1e-9 * abs(high)


def test_more_confidence_is_a_wider_interval() -> None:
    values = [float(value) for value in range(1, 22)]
    found = [median_interval(values, confidence=level) for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.9999999)]
    widths = [high - low for low, high in filter(None, found)]
    assert widths == sorted(widths) and len(set(widths)) == 6 and widths[-1] == 20


def test_large_samples_have_the_interval_of_the_exact_distribution() -> None:
    for count in (1001, 1500):
        low, high = median_interval(range(count)) or (0, 0)
        wider = stats.quantile_test(range(count), q=count / 2).confidence_interval(0.95)
        assert low == pytest.approx(wider.low, abs=1) and high == pytest.approx(wider.high, abs=1)


def test_fewer_than_five_values_have_no_interval_and_five_have_their_range() -> None:
    assert median_interval([1, 2, 3, 4]) is None and median_interval([]) is None
    assert median_interval([5, 1, 4, 2, 3]) == (1, 5)


def test_equal_values_have_an_interval_without_width() -> None:
    assert median_interval([3.0] * 9) == (3, 3) and quartiles([3.0] * 9) == (3, 3, 3) and outliers([3.0] * 9) == []


def test_huge_values_do_not_overflow() -> None:
    assert median([1e308, 1.6e308]) == pytest.approx(1.3e308)
    assert quartiles([-1.7e308, 1.7e308])[1] == 0 and outliers([-1.7e308, 0, 0, 1.7e308]) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    for function in (median, quartiles, outliers, median_interval):
        with pytest.raises(ValueError, match="finite"):
            function([1.0, 2.0, bad, 4.0, 5.0])
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="between 0 and 1"):
        median_interval([1.0], confidence=95)
