"""Users who had little go before users who had much, and usage fades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.queueing.fair_share import STEPS, FairShare


def test_who_used_less_has_the_higher_factor() -> None:
    fair = FairShare(3600)
    fair.charge("much", 300, 0)
    fair.charge("little", 100, 0)
    assert fair.factor("nothing") == 1.0 > fair.factor("little") > fair.factor("much") > 0


def test_using_just_the_share_is_a_factor_of_a_half() -> None:
    fair = FairShare(3600, {"a": 3, "b": 1})
    fair.charge("a", 300, 0)
    fair.charge("b", 100, 0)
    assert fair.factor("a") == fair.factor("b") == 0.5


def test_usage_counts_half_after_each_half_life() -> None:
    fair = FairShare(100)
    fair.charge("early", 400, 0)
    fair.charge("late", 100, 200)
    assert fair.factor("early") == fair.factor("late")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e9), st.floats(0, 1e6)), max_size=20),
    st.integers(1, 30),
    st.sampled_from("abcd"),
)
def test_no_usage_lifts_a_job_over_one_of_higher_urgency(
    charges: list[tuple[str, float, float]], urgency: int, user: str
) -> None:
    fair = FairShare(1000)
    for who, amount, now in charges:
        fair.charge(who, amount, now)
    assert fair.priority(urgency - 1, "nobody") < fair.priority(urgency, user) < fair.priority(urgency + 1, "c")


def test_held_and_expedited_jobs_are_not_weighed() -> None:
    fair = FairShare(1000)
    fair.charge("a", 10, 0)
    assert fair.priority(0, "a") == 0
    assert fair.priority(31, "a") == 31 * STEPS == fair.priority(31, "b")


@pytest.mark.parametrize(("half_life", "shares"), [(0, {}), (-1, {}), (1, {"a": 0})])
def test_what_is_not_positive_is_refused(half_life: float, shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="fair share"):
        FairShare(half_life, shares)
