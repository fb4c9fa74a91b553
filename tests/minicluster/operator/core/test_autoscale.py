"""The queue-driven size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.operator.core.autoscale import wanted_size


@pytest.mark.parametrize(
    ("size", "demand", "idle_since", "now", "wanted"),
    [
        (2, 5, None, 0, (5, None)),
        (2, 99, None, 0, (8, None)),
        (4, 2, None, 0, (4, None)),
        (4, 0, 100, 120, (4, 160)),
        (4, 0, 100, 160, (1, None)),
        (1, 0, 100, 999, (1, None)),
        (4, 0, None, 999, (4, None)),
    ],
)
def test_it_grows_with_the_demand_and_shrinks_when_idle(
    size: int, demand: int, idle_since: float | None, now: float, wanted: tuple[int, float | None]
) -> None:
    assert wanted_size(size, 1, 8, demand, idle_since, 60, now) == wanted


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 50), st.integers(0, 99), st.none() | st.integers(0, 99))
def test_it_never_leaves_its_bounds(
    size: int, smallest: int, largest: int, demand: int, idle_since: float | None
) -> None:
    wanted, again = wanted_size(size, smallest, largest, demand, idle_since, 10, 50)
    assert min(size, max(smallest, 1)) <= wanted <= max(size, largest, smallest)
    assert again is None or again > 50
