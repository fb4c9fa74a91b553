"""Which waiting job takes over from an ended one, as the scheduler has said before."""

from __future__ import annotations

import pytest
from core_world import R, World

from headrace.engine.modules.job_manager.effects import Free, Inherit


def full(world: World) -> None:
    """Job 1 runs, the scheduler has named 2 and 3 as successors."""
    for id in (1, 2, 3):
        world.submit(id)
    world.alloc(1)
    world.core.allocations.successors.name([2, 3], 0.0)
    world.exec(1, "start")


def test_a_successor_starts_on_what_an_ended_job_gives_back() -> None:
    world = World()
    full(world)
    world.exec(1, "finish", status=256)
    world.exec(1, "release", ranks="all", final=True)
    successor = world.core.active[2]
    assert successor.r is not None and successor.r["execution"]["R_lite"] == R["execution"]["R_lite"]
    assert (successor.r["execution"]["starttime"], successor.r["execution"]["expiration"]) == (world.core.now, 0.0)
    assert world.context(2, "alloc") == {"annotations": {"sched": {"resource_summary": "rank0/core0"}}}
    assert world.asked(Free) == []
    assert [(request.job.id, request.successor.id) for request in world.asked(Inherit)] == [(1, 2)]
    assert world.core.allocations.pending == 1
    # The scheduler's own answer may have been under way.
    world.alloc(2, starttime=1.0)
    assert successor.r["execution"]["starttime"] == world.core.now
    world.exec(2, "start")
    world.exec(2, "finish", status=0)
    world.exec(2, "release", ranks="all", final=True)
    assert world.core.active[3].has_resources
    assert set(world.replayed().active) == {3}


def test_the_time_of_a_successor_is_its_own() -> None:
    world = World()
    for id in (1, 2):
        world.submit(id, duration=60.0)
    world.alloc(1, expiration=world.core.now + 60)
    world.core.allocations.successors.name([2], world.core.now + 100)
    world.exec(1, "start")
    begun = world.core.now
    world.core.now += 50.0
    world.exec(1, "finish", status=0)
    world.exec(1, "release", ranks="all", final=True)
    assert world.core.active[2].expiration == begun + 100


@pytest.mark.parametrize("why", ["failed", "other", "canceled", "reprioritized", "urgent", "gone"])
def test_nobody_takes_over_what_may_be_somebody_elses(why: str) -> None:
    world = World()
    full(world)
    core = world.core
    if why == "failed":
        core.raise_exception(core.active[1], "exec", 0, "lost contact with rank 0", 0)
    elif why == "other":
        world.submit(4, duration=60.0)
        core.allocations.successors.name([4, 2], 0.0)
    elif why == "canceled":
        core.allocations.successors.name([2], 0.0)
        world.cancel(2)
    elif why == "reprioritized":
        core.set_urgency(core.active[3], 20, 0)
    elif why == "urgent":
        world.submit(4, urgency=20)
    else:
        core.allocations.scheduler_is_gone()
    world.flush()
    world.exec(1, "finish", status=0)
    world.exec(1, "release", ranks="all", final=True)
    assert world.asked(Inherit) == []
    assert [request.job.id for request in world.asked(Free)] == [1]
