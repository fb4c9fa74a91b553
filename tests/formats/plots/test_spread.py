"""Distributions and groups by size, worked out by hand."""

from __future__ import annotations

from headrace.formats.plots.spread import Spread, by_size, spread


def test_percentiles_are_values_that_occurred() -> None:
    assert spread(range(1, 101)) == Spread(50.5, 50, 90, 99, 100)
    assert spread([7]) == Spread(7, 7, 7, 7, 7)
    assert spread([]) == Spread(0, 0, 0, 0, 0)


def test_sizes_are_grouped_by_powers_of_two() -> None:
    found = by_size([(4, 1.0), (1, 2.0), (7, 3.0), (3, 4.0), (8, 5.0)])
    assert found == [("1", [2.0]), ("2-3", [4.0]), ("4-7", [1.0, 3.0]), ("8-15", [5.0])]
