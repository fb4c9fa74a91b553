"""Speed-up and efficiency, worked out by hand."""

from __future__ import annotations

import pytest

from headrace.experiments.stats.scaling import scaling


def test_speedup_and_efficiency_are_against_the_smallest_size() -> None:
    assert scaling({4: 5.0, 2: 8.0, 8: 4.0}) == [(2, 1.0, 1.0), (4, 1.6, 0.8), (8, 2.0, 0.5)]


def test_a_rate_speeds_up_as_it_grows() -> None:
    assert scaling({1: 10.0, 4: 30.0}, higher_is_better=True) == [(1, 1.0, 1.0), (4, 3.0, 0.75)]


@pytest.mark.parametrize("medians", [{}, {0: 3.0}, {1: 0.0}, {-2: 1.0, 4: -1.0}])
def test_sizes_and_medians_that_are_not_positive_are_left_out(medians: dict[int, float]) -> None:
    assert scaling(medians) == []
    assert scaling({**medians, 3: 2.0}) == [(3, 1.0, 1.0)]
