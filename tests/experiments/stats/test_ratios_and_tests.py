"""Ratios, tests and their corrections, against figures of scipy and worked examples."""

from __future__ import annotations

import builtins

import numpy
import pytest
from scipy import stats

import sizes
from headrace.experiments.stats.comparison import holm, mann_whitney, ratio_of_medians
from headrace.experiments.stats.drift import drift
from headrace.experiments.stats.optional import MissingExtra
from seeds import seed

SIX, TEN = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]


def test_the_p_value_is_the_share_of_orders_that_are_as_extreme() -> None:
    # Of the 8,008 ways to place 6 values among 16, two separate the samples completely.
    assert mann_whitney(SIX, TEN) == pytest.approx(2 / 8008)
    assert mann_whitney(SIX, SIX) == 1.0 and mann_whitney([3.0] * 5, [3.0] * 6) == 1.0
    assert mann_whitney(SIX[:4], TEN) is None


def test_holm_multiplies_the_least_p_value_by_the_number_of_tests() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == [] and holm([0.2]) == [0.2]


@pytest.mark.soak
def test_holm_is_the_step_down_of_bonferroni() -> None:
    dice = numpy.random.default_rng(seed())
    for _ in range(sizes.size("samples")):
        given = [float(value) for value in dice.random(int(dice.integers(1, 12))) ** 4]
        adjusted = holm(given)
        for level in (0.001, 0.01, 0.05, 0.2):
            # The definition: reject in order of p until one is greater than level / (tests that are left).
            rejected: set[int] = set()
            for rank, at in enumerate(sorted(range(len(given)), key=given.__getitem__)):
                if given[at] > level / (len(given) - rank):
                    break
                rejected.add(at)
            assert {at for at, value in enumerate(adjusted) if value <= level} == rejected


def test_a_ratio_has_an_interval_that_its_seed_repeats() -> None:
    found = ratio_of_medians(TEN, SIX, seed=3)
    assert found is not None and found.interval is not None
    assert found.ratio == pytest.approx(11.5 / 3.5) and found.interval[0] < found.ratio < found.interval[1]
    assert ratio_of_medians(TEN, SIX, seed=3) == found != ratio_of_medians(TEN, SIX, seed=4)
    assert ratio_of_medians([2.0] * 5, [4.0] * 5) == (0.5, (0.5, 0.5))


def test_few_values_have_a_ratio_without_an_interval() -> None:
    assert ratio_of_medians([1.0, 3.0], TEN) == (2 / 11.5, None)


@pytest.mark.parametrize(
    ("above", "below"),
    [([], SIX), ([0.0] * 9, SIX), (SIX, [-1.0, 2.0, 3.0, 4.0, 5.0]), ([1e308] * 5, [1e-308] * 5)],
)
def test_values_without_a_ratio(above: list[float], below: list[float]) -> None:
    assert ratio_of_medians(above, below) is None


def test_a_ratio_whose_interval_is_endless_has_none() -> None:
    assert ratio_of_medians([1.0, 1.0, 1.0, 1e308, 1e308], [1e-308, 1e-308, 1.0, 1.0, 1.0]) == (1.0, None)


def test_large_samples_are_resampled_in_blocks() -> None:
    dice = numpy.random.default_rng(1)
    found = ratio_of_medians(list(dice.normal(10, 1, 1500)), list(dice.normal(5, 1, 1500)))
    assert found is not None and found.interval is not None and found.interval[0] < 2 < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.09


@pytest.mark.soak
def test_drift_is_the_rank_correlation_with_the_order() -> None:
    dice = numpy.random.default_rng(seed())
    for _ in range(sizes.size("samples") // 4):
        values = [float(value) for value in dice.normal(10, 1, int(dice.integers(5, 40)))]
        found = drift(values)
        ranks = stats.rankdata(values)
        rho = numpy.corrcoef(numpy.arange(len(values)), ranks)[0, 1]
        assert found is not None and found.rho == pytest.approx(rho) and 0 <= found.p <= 1


def test_a_drift_has_a_direction_and_a_size() -> None:
    up = drift([10.0, 10.1, 10.2, 10.4, 10.8, 11.0, 11.1, 11.3, 12.0])
    assert up is not None and up.rho == 1 and up.p < 1e-6 and up.change == pytest.approx(11.3 / 10.1 - 1)
    assert drift([1.0] * 9) is None and drift(SIX[:4]) is None
    below_zero = drift([-1.0, -2.0, -3.0, -4.0, -5.0])
    assert below_zero is not None and below_zero.change is None and below_zero.rho == pytest.approx(-1)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *others: object) -> object:
        if name.partition(".")[0] in ("numpy", "scipy"):
            raise ImportError(name)
        return original(name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    for call in (lambda: mann_whitney(SIX, TEN), lambda: ratio_of_medians(SIX, TEN), lambda: drift(SIX)):
        with pytest.raises(MissingExtra, match=r"pip install '\.\[experiments\]'"):
            call()
