"""How often the interval of a ratio of medians covers the true ratio, by simulation: 93 to 97 % of pairs of samples."""

from __future__ import annotations

import math

import numpy
import pytest

import sizes
from headrace.experiments.stats.comparison import ratio_of_medians
from seeds import seed


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["normal", "exponential", "lognormal"])
def test_the_interval_covers_the_true_ratio(shape: str) -> None:
    dice, pairs = numpy.random.default_rng(seed()), sizes.size("covered_ratios")
    draw = {
        "normal": lambda count: dice.normal(10, 1, count),
        "exponential": dice.standard_exponential,
        "lognormal": lambda count: dice.lognormal(0, 1, count),
    }[shape]
    error = 3 * math.sqrt(0.95 * 0.05 / pairs)
    for count, other in ((7, 7), (8, 20), (20, 20)):
        covered = 0
        for number in range(pairs):
            found = ratio_of_medians(list(2 * draw(count)), list(draw(other)), seed=number)
            assert found is not None and found.interval is not None
            covered += found.interval[0] <= 2 <= found.interval[1]
        print(f"{shape}, {count} and {other} values: {100 * covered / pairs:.1f} % of {pairs} pairs")
        assert 0.93 - error < covered / pairs < 0.97 + error
