"""The work queue: each key once, never twice at a time, again after a delay."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headrace.k8s.runtime.work_queue import FIRST_DELAY, LARGEST_DELAY, WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def queue() -> tuple[WorkQueue[str], Clock]:
    clock = Clock()
    return WorkQueue(clock), clock


def test_a_key_that_is_added_again_is_there_once() -> None:
    work, _ = queue()
    for key in ("a", "b", "a"):
        work.add(key)
    assert [work.take(), work.take(), work.take()] == ["a", "b", None]


def test_a_key_that_is_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    work, _ = queue()
    work.add("a")
    assert work.take() == "a"
    work.add("a")
    work.add("a")
    assert work.take() is None
    work.done("a")
    assert work.take() == "a"
    work.done("a")
    assert work.take() is None


def test_the_earlier_of_two_times_counts() -> None:
    work, clock = queue()
    work.add_at("a", 9)
    work.add_at("a", 5)
    work.add_at("a", 7)
    assert work.next_due() == 5
    clock.now = 5
    assert work.take() == "a"
    work.done("a")
    clock.now = 20
    assert work.take() is None, "the later times were of the same wish"
    assert work.next_due() is None


def test_failures_in_a_row_are_further_and_further_apart() -> None:
    work, _ = queue()
    delays = [work.add_failed("a") for _ in range(12)]
    assert delays[:3] == [FIRST_DELAY, FIRST_DELAY * 2, FIRST_DELAY * 4]
    assert delays[-1] == LARGEST_DELAY
    work.succeeded("a")
    assert work.add_failed("a") == FIRST_DELAY


def test_a_worker_is_woken_by_an_earlier_time_than_it_waits_for() -> None:
    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        work: WorkQueue[str] = WorkQueue(loop.time)
        work.add_at("late", loop.time() + 1000)
        waiting = asyncio.create_task(work.get())
        await asyncio.sleep(0)
        work.add_at("soon", loop.time() + 0.01)
        first = await waiting
        others = asyncio.create_task(work.get()), asyncio.create_task(work.get())
        await asyncio.sleep(0)
        work.add("x")
        work.add("y")
        return [first, *sorted(await asyncio.gather(*others))]

    assert asyncio.run(run()) == ["soon", "x", "y"]


@given(st.lists(st.tuples(st.sampled_from(["add", "at", "take", "done", "pass"]), st.integers(0, 3))))
def test_no_wish_is_lost_and_none_is_served_twice_at_a_time(steps: list[tuple[str, int]]) -> None:
    work, clock = queue()
    wished: set[str] = set()
    working: list[str] = []
    for step, number in steps:
        key = "abcd"[number]
        if step == "add":
            work.add(key)
            wished.add(key)
        elif step == "at":
            work.add_at(key, clock.now + number)
            wished.add(key)
        elif step == "take":
            taken = work.take()
            if taken is not None:
                assert taken not in working
                working.append(taken)
                wished.discard(taken)
        elif step == "done" and working:
            work.done(working.pop())
        elif step == "pass":
            clock.now += number
    for one in working:
        work.done(one)
    clock.now += 10
    while (taken := work.take()) is not None:
        work.done(taken)
        wished.discard(taken)
    assert not wished
