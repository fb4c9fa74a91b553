from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.kvs.commit import Spread


@given(values=st.lists(st.integers(0, 1 << 20), min_size=2))
def test_it_agrees_with_what_is_computed_from_all_values(values: list[int]) -> None:
    spread = Spread()
    for value in values:
        spread.add(value)
    stats = spread.stats()
    assert (stats["count"], stats["min"], stats["max"]) == (len(values), min(values), max(values))
    assert stats["mean"] == pytest.approx(statistics.fmean(values))
    assert stats["stddev"] == pytest.approx(statistics.stdev(values), abs=1e-6)


def test_nothing_measured_is_all_zero() -> None:
    assert set(Spread().stats().values()) == {0}
