"""Users who had little go before users who had much, by accounting's tree and formula, and usage fades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.urgency import PRIORITY_MAX
from headrace.sched.accounting.tree import Bank, User
from headrace.sched.graph import Scheduler
from headrace.sched.graph.request import Count, JobRequest, Request
from headrace.sched.queueing.fair_share import FairShare
from headrace.sched.queueing.queue import Queue
from headrace.sched.queueing.simulate import Job, simulate
from headrace.sched.queueing.simulate_machine import uniform

BANKS = [Bank("root", "", 1), Bank("A", "root", 3), Bank("B", "root", 1)]
USERS = [User("a", "A", 1, 0.0), User("b", "B", 1, 0.0)]


def test_the_user_who_used_less_comes_first_and_a_user_without_usage_before_all() -> None:
    fair = FairShare(3600)
    assert fair.add("nothing")
    assert not fair.add("nothing")
    fair.charge("much", 300, 0)
    fair.charge("little", 100, 0)
    assert fair.review(0) == {"much", "little"}
    assert [fair.value(user) for user in ("nothing", "little", "much")] == [1.0, 2 / 3, 1 / 3]
    assert fair.review(10) == set()


def test_usage_is_compared_with_the_shares_of_banks() -> None:
    fair = FairShare(3600, BANKS, USERS)
    fair.charge("a", 290, 0)
    fair.charge("b", 100, 0)
    fair.review(0)
    assert (fair.value("a"), fair.value("b")) == (1.0, 0.5)
    fair.charge("a", 20, 0)
    assert fair.review(0) == {"a", "b"}
    assert (fair.value("a"), fair.value("b")) == (0.5, 1.0)


def test_usage_of_running_jobs_counts_for_one_review() -> None:
    fair = FairShare(3600, BANKS, USERS)
    fair.charge("a", 100, 0)
    fair.charge("b", 100, 0)
    fair.review(0)
    assert (fair.value("a"), fair.value("b")) == (1.0, 0.5)
    assert fair.review(1, {"a": 300, "stranger": 10}) == {"a", "b"}
    assert (fair.value("a"), fair.value("b"), fair.value("stranger")) == (0.5, 1.0, 0.0)
    assert fair.review(2) == {"a", "b"}
    assert (fair.value("a"), fair.value("b")) == (1.0, 0.5)


def test_users_have_what_they_had_at_the_beginning_and_it_fades_from_then_on() -> None:
    fair = FairShare(100, BANKS, [User("a", "A", 1, 290.0), User("b", "B", 1, 110.0)], begin=1.7e9)
    assert (fair.value("a"), fair.value("b")) == (1.0, 0.5)
    # 320 of 430 is less than three quarters, half of 290 and 30 of half of 400 and 30 is more.
    fair.charge("a", 30, 1.7e9 + 150)
    fair.review(1.7e9 + 150)
    assert (fair.value("a"), fair.value("b")) == (0.5, 1.0)


def test_users_outside_of_the_banks_are_behind_and_a_user_of_two_banks_is_charged_in_the_first() -> None:
    fair = FairShare(3600, BANKS, [*USERS, User("a", "B", 1, 0.0)])
    fair.charge("stranger", 10, 0)
    fair.charge("a", 10, 0)
    fair.review(0)
    assert (fair.add("stranger"), fair.value("stranger")) == (False, 0.0)
    assert (fair.value("b"), fair.value("a")) == (1.0, pytest.approx(1 / 3))


def test_usage_fades_by_half_in_each_half_life_until_it_is_forgotten() -> None:
    fair = FairShare(100)
    fair.charge("early", 390, 100)
    fair.charge("late", 100, 301)
    fair.review(301)
    assert fair.value("early") > fair.value("late")
    fair.charge("late", 50, 501)
    fair.review(501)
    assert fair.value("early") > fair.value("late")
    assert fair.review(10_000) == {"late"}
    assert fair.value("early") == fair.value("late") == 1.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e9), st.floats(0, 1e6)), max_size=20))
def test_priorities_are_those_of_accounting(charges: list[tuple[str, float, float]]) -> None:
    fair = FairShare(1000)
    for who, amount, now in charges:
        fair.charge(who, amount, now)
    fair.review(1e6)
    for user in "abc":
        assert fair.priority(16, user) == round(100_000 * fair.value(user))
        assert fair.priority(18, user) == fair.priority(16, user) + 2000
        assert (fair.priority(0, user), fair.priority(31, user)) == (0, PRIORITY_MAX)


@pytest.mark.parametrize("half_life", [0, -1])
def test_a_half_life_that_is_not_positive_is_refused(half_life: float) -> None:
    with pytest.raises(ValueError, match="fair share: the half-life must be a positive number"):
        FairShare(half_life)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([User("c", "C", 1, 0.0)], 'of bank "C": bank: does not exist'),
        ([USERS[0], USERS[0]], 'user "a" of bank "A": occurs twice'),
    ],
)
def test_banks_and_users_that_are_no_tree_are_refused(users: list[User], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FairShare(1, BANKS, users)


def test_one_bank_that_is_given_is_closed_to_others() -> None:
    fair = FairShare(1, BANKS[:1], [User("a", "root", 1, 0.0)])
    assert (fair.add("b"), fair.value("a"), fair.value("b")) == (False, 1.0, 0.0)


def test_two_users_with_endless_queues_get_what_their_banks_have() -> None:
    # 2,000 jobs take 7 half-lives. Both users always have waiting jobs, and submit 10 for 7, not 3 for 1.
    request = JobRequest([Request("node", Count(1), exclusive=True)], 600)
    arrivals = sorted([(28 * i, "a") for i in range(2000)] + [(40 * i, "b") for i in range(1400)])
    jobs = [
        Job(i, max(0, submit - 800), 100 + 7 * i % 200, request, user=user) for i, (submit, user) in enumerate(arrivals)
    ]
    queue = Queue(Scheduler(uniform(8), "first"), "easy", 100)
    runs = simulate(jobs, queue, fair=FairShare(7200, BANKS, USERS)).runs[:2000]
    had = {user: sum(run.end - run.start for run in runs if run.job.user == user) for user in "ab"}
    assert had["a"] / had["b"] == pytest.approx(3, rel=0.05)
