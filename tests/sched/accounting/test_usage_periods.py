"""Usage of jobs, and how it fades: against the closed form, in any order, as often as a period has ended."""

from __future__ import annotations

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.accounting.usage import Decay, Periods, ResourceWeights, job_usage

WEEK = 604800.0


@pytest.mark.parametrize(
    ("weights", "usage"),
    [
        (ResourceWeights(), 120.0),
        (ResourceWeights(0, 1, 0), 480.0),
        (ResourceWeights(0, 0, 2.5), 150.0),
        (ResourceWeights(1, 0.5, 10), 960.0),
    ],
)
def test_a_job_is_charged_for_its_nodes_cores_and_gpus_by_weight(weights: ResourceWeights, usage: float) -> None:
    assert job_usage(2, 8, 1, 60.0, weights) == usage


def test_a_job_that_ended_before_it_began_is_charged_nothing() -> None:
    assert job_usage(2, 8, 1, -5.0, ResourceWeights()) == 0.0


def test_each_period_counts_half_of_the_one_after_it_and_nothing_twice() -> None:
    periods = Periods(Decay(), 0.0, {"u": [100.0, 500.0, 0.0, 7.0]})
    assert periods.roll(WEEK + 1) == 1
    assert periods.book("u", 100.0) == 400.0
    assert periods.values["u"] == [100.0, 50.0, 250.0, 0.0]
    assert periods.end == WEEK
    assert (periods.roll(2 * WEEK + 1), periods.totals["u"]) == (1, 200.0)


def test_a_period_ends_one_half_life_after_the_end_of_the_one_before() -> None:
    periods = Periods(Decay(), WEEK, {"u": [8.0, 0.0]})
    assert (periods.roll(0), periods.roll(2 * WEEK), periods.totals["u"]) == (0, 0, 8.0)
    assert (periods.roll(2 * WEEK + 0.5), periods.totals["u"], periods.end) == (1, 4.0, 2 * WEEK)


def test_an_association_keeps_its_number_of_periods_and_a_new_one_has_the_configured_number() -> None:
    periods = Periods(Decay(10, 35), 0.0, {"old": [1.0]})
    periods.book("new", 2.0)
    periods.roll(10_000)
    assert periods.values == {"old": [0.0], "new": [0.0, 0.0, 0.0]}
    assert Decay(10, 5).periods == 1


@given(
    st.lists(st.tuples(st.floats(0, 5e4), st.sampled_from("ab"), st.floats(0, 1e6)), max_size=30),
    st.floats(0.1, 0.9),
    st.integers(1, 6),
)
def test_totals_are_those_of_the_closed_form(jobs: list[tuple[float, str, float]], factor: float, count: int) -> None:
    half_life, now = 1000.0, 6e4
    periods: Periods[str] = Periods(Decay(half_life, count * half_life, factor), -half_life)
    for when, who, usage in sorted(jobs):
        periods.roll(when)
        periods.book(who, usage)
    periods.roll(now)
    for who in "ab":
        wanted = 0.0
        for when, of, usage in jobs:
            age = period(now, half_life) - period(when, half_life)
            wanted += usage * factor**age if of == who and age < count else 0.0
        assert periods.totals.get(who, 0.0) == pytest.approx(wanted, rel=1e-12, abs=1e-300)
        assert sum(periods.values.get(who, [])) == pytest.approx(periods.totals.get(who, 0.0), rel=1e-12)


def period(when: float, half_life: float) -> int:
    """The number of the period that a time is in; the moment between two belongs to the earlier one."""
    number = floor(when / half_life)
    return number - 1 if when and number * half_life == when else number


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20), st.integers(1, 12))
def test_rolling_late_is_the_same_as_rolling_each_time_and_the_order_in_a_period_is_free(
    usages: list[float], rolls: int
) -> None:
    late: Periods[str] = Periods(Decay(), 0.0)
    often: Periods[str] = Periods(Decay(), 0.0)
    for usage, other in zip(usages, reversed(usages), strict=True):
        late.book("u", usage)
        often.book("u", other)
    assert late.roll((rolls + 1) * WEEK) == rolls
    assert [often.roll((i + 1) * WEEK) for i in range(1, rolls + 1)] == [1] * rolls
    assert late.end == often.end == rolls * WEEK
    assert late.values["u"] == pytest.approx(often.values["u"], rel=1e-12)
    assert late.totals["u"] == pytest.approx(often.totals["u"], rel=1e-12)


def test_many_bookings_do_not_drift() -> None:
    periods: Periods[str] = Periods(Decay(), 0.0)
    for _ in range(200_000):
        periods.book("u", 0.1)
    assert periods.totals["u"] == pytest.approx(20_000, rel=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Decay(0), "priority_decay_half_life: must be a positive number of seconds, not 0"),
        (lambda: Decay(1, float("inf")), "priority_usage_reset_period: must be a positive number of seconds, not inf"),
        (lambda: Decay(1, 1, 1.5), "decay_factor: must be from 0 to 1, not 1.5"),
        (lambda: Periods(Decay(), 0, {"u": [-1.0]}), "'u': value: must be 0 or more"),
        (lambda: Periods(Decay(), 0, {"u": []}), "'u': value: must be 0 or more"),
        (lambda: Periods[str](Decay(), 0).book("u", float("nan")), "usage of 'u': must be 0 or more, not nan"),
    ],
)
def test_bad_numbers_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
