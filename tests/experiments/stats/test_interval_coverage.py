"""How often the interval covers the true median, by simulation: 93 to 97 % of samples."""

from __future__ import annotations

import math
import random

import pytest

import sizes
from headrace.experiments.stats.medians import median_interval
from seeds import seed

# A random value, and the true median.
SHAPES = {
    "normal": (lambda dice: dice.gauss(0, 1), 0.0),
    "exponential": (lambda dice: dice.expovariate(1), math.log(2)),
    "lognormal": (lambda dice: dice.lognormvariate(0, 1), 1.0),
}


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_covers_the_true_median(shape: str) -> None:
    value, true = SHAPES[shape]
    dice, samples = random.Random(seed()), sizes.size("covered")
    # Three standard errors of a share of these samples.
    error = 3 * math.sqrt(0.95 * 0.05 / samples)
    for count in (7, 8, 10, 15, 20, 35, 50):
        covered = 0
        for _ in range(samples):
            low, high = median_interval([value(dice) for _ in range(count)]) or (0, 0)
            covered += low <= true <= high
        print(f"{shape}, {count} values: {100 * covered / samples:.1f} % of {samples} samples")
        assert 0.93 - error < covered / samples < 0.97 + error
