"""A planner answers as a plain count of the spans does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.planner import Planner

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15), st.integers(1, 5)), max_size=15)


def in_use(spans: list[tuple[int, int, int]], t: int) -> int:
    return sum(amount for start, length, amount in spans if start <= t < start + length)


@given(SPANS, st.integers(0, 40), st.integers(1, 20))
def test_peak_is_the_largest_count_of_any_moment(spans: list[tuple[int, int, int]], at: int, length: int) -> None:
    planner = Planner()
    for start, duration, amount in spans:
        planner.add(start, start + duration, amount)
    assert planner.peak(at, at + length) == max(in_use(spans, t) for t in range(at, at + length))
    assert planner.at(at) == in_use(spans, at)


@given(SPANS, st.randoms(use_true_random=False))
def test_giving_back_everything_leaves_nothing(spans: list[tuple[int, int, int]], rng: object) -> None:
    planner = Planner()
    for start, duration, amount in spans:
        planner.add(start, start + duration, amount)
    rng.shuffle(spans)  # type: ignore[attr-defined]
    for i, (start, duration, amount) in enumerate(spans):
        planner.add(start, start + duration, -amount)
        assert planner.at(7) == in_use(spans[i + 1 :], 7)
    assert planner.idle
    assert planner.peak(0, 100) == 0


def test_an_empty_span_uses_nothing() -> None:
    planner = Planner()
    planner.add(5, 5, 3)
    assert planner.idle
    assert Planner(4, 4, 1).idle
