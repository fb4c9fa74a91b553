"""Jobs wait in the order of what their users have had and of their urgency, in an instance's scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from sched_world import World, jobspec

from headrace.engine.modules.sched.fair import REVIEW, Fair
from headrace.engine.modules.sched.settings import SettingsError, read
from headrace.formats.spec.urgency import PRIORITY_MAX

Run = Any
ALICE, BOB = 1001, 1002


def test_who_has_had_more_waits_behind_who_has_had_less_until_it_fades() -> None:
    fair = Fair(1000.0)
    assert fair.enter(1, ALICE, 16) == fair.enter(2, BOB, 16)
    assert dict(fair.news([1, 2], 0)) == {1: fair.weigh(1, 16), 2: fair.weigh(2, 16)}
    fair.charge(1, 4, 100, 200)
    assert list(fair.news([1, 2], 200)) == []
    assert dict(fair.news([1, 2], REVIEW)) == {1: 50_000}
    assert fair.weigh(2, 16) == 100_000
    assert list(fair.news([1, 2], 2 * REVIEW)) == []
    fair.charge(2, 4000, 2 * REVIEW, 3 * REVIEW)
    assert dict(fair.news([1, 2], 3 * REVIEW)) == {1: 100_000, 2: 50_000}
    # After some half-lives nobody has had anything.
    assert dict(fair.news([1, 2], 100_000)) == {2: 100_000}


def test_a_new_user_is_compared_at_once() -> None:
    fair = Fair(1000.0)
    fair.enter(1, ALICE, 16)
    fair.charge(1, 4, 0, 10)
    assert dict(fair.news([1], 10)) == {1: 100_000}
    assert fair.enter(2, BOB, 16) == 100_000
    assert dict(fair.news([1, 2], 11)) == {1: 50_000}


@pytest.mark.parametrize("priority", [PRIORITY_MAX, 50_000, 31])
def test_a_priority_that_is_no_urgency_stays(priority: int) -> None:
    fair = Fair(1000.0)
    fair.enter(1, ALICE, 16)
    fair.charge(1, 4, 0, 10)
    assert (fair.enter(2, ALICE, priority), fair.weigh(2, priority)) == (priority, priority)


def test_without_a_half_life_priorities_are_those_of_the_job_manager() -> None:
    fair = Fair()
    assert fair.enter(1, ALICE, 16) == 16
    fair.charge(1, 4, 0, 100)
    assert (fair.weigh(1, 20), dict(fair.news([1], 1000))) == (20, {1: 20})
    fair.configure(60.0)
    assert dict(fair.news([1], 1001))[1] > 20


@pytest.mark.parametrize("text", ["0", "-1s", "x", "inf", "1w"])
def test_a_half_life_is_a_duration_longer_than_none(text: str) -> None:
    with pytest.raises(SettingsError, match="fair-share: must be the half-life"):
        read({}, [f"fair-share={text}"])
    assert read({"sched-fluxion-qmanager": {"fair-share": "2h"}}).fair_share == 7200


def test_a_scheduler_asks_for_it_and_weighs_it_with_urgency(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "fair-share=1d")
        time = 1_700_000_000.0
        world.sched.now = lambda: time
        await world.settle()
        world.submit(1, jobspec(8), userid=ALICE)
        await world.settle()
        assert world.started(1) == [1]
        world.submit(2, jobspec(8), userid=ALICE)
        world.submit(3, jobspec(8), userid=BOB)
        world.submit(4, jobspec(8), userid=ALICE, priority=17)
        world.submit(6, jobspec(8), userid=ALICE, priority=PRIORITY_MAX)
        time += 600
        world.free(1)
        await world.settle()
        assert world.started(2, 3, 4, 6) == [6]
        for ended, started in ((6, 3), (3, 4)):
            time += 600
            world.free(ended)
            await world.settle()
            assert world.started(2, 3, 4)[-1] == started
        world.submit(5, jobspec(8), userid=BOB)
        time += 6000
        world.free(4)
        await world.settle()
        assert world.started(2, 5) == [5]

    in_broker(scenario)
