"""Who takes over from an ended job: by the scheduler's word, and by what the exec service was given ahead of time."""

from __future__ import annotations

import pytest
from core_world import R, World

from headrace.jobs.record import CANCELED, RUN, SCHED
from headrace.modules.job_manager.core import CANCEL
from headrace.modules.job_manager.replay import restart


def full(world: World) -> None:
    """Job 1 runs, the scheduler has named 2 and 3 as heirs."""
    for id in (1, 2, 3):
        world.submit(id)
    world.alloc(1)
    world.core.heirs.name([2, 3], 0.0)
    world.exec(1, "start")


def test_an_heir_starts_on_what_an_ended_job_gives_back() -> None:
    world = World()
    full(world)
    world.exec(1, "finish", status=256)
    world.exec(1, "release", ranks="all", final=True)
    heir = world.core.active[2]
    assert heir.r is not None and heir.r["execution"]["R_lite"] == R["execution"]["R_lite"]
    assert (heir.r["execution"]["starttime"], heir.r["execution"]["expiration"]) == (world.core.now, 0.0)
    assert world.context(2, "alloc") == {"annotations": {"sched": {"resource_summary": "rank0/core0"}}}
    assert world.asked("free") == []
    assert [(job.id, other.id) for _, job, other in (r for r in world.requests if r[0] == "inherit")] == [(1, 2)]
    assert world.core.alloc_pending == 1
    # The scheduler's own answer may have been under way.
    world.alloc(2, starttime=1.0)
    assert heir.r["execution"]["starttime"] == world.core.now
    world.exec(2, "start")
    world.exec(2, "finish", status=0)
    world.exec(2, "release", ranks="all", final=True)
    assert world.core.active[3].has_resources
    assert set(world.replayed().active) == {3}


def test_the_time_of_an_heir_is_its_own() -> None:
    world = World()
    for id in (1, 2):
        world.submit(id, duration=60.0)
    world.alloc(1, expiration=world.core.now + 60)
    world.core.heirs.name([2], world.core.now + 100)
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
        core.heirs.name([4, 2], 0.0)
    elif why == "canceled":
        core.heirs.name([2], 0.0)
        world.cancel(2)
    elif why == "reprioritized":
        core.set_urgency(core.active[3], 20, 0)
    elif why == "urgent":
        world.submit(4, urgency=20)
    else:
        core.sched_gone()
    world.flush()
    world.exec(1, "finish", status=0)
    world.exec(1, "release", ranks="all", final=True)
    assert world.asked("inherit") == []
    assert [job.id for job in world.asked("free")] == [1]


# -- starts ahead of the time


def handed_out(world: World) -> list[tuple[list[int], list[int], bool]]:
    return [([job.id for job in what], *rest) for kind, what, *rest in pairs(world) if kind == "ahead"]


def pairs(world: World) -> list[tuple]:
    return [(*request, None) if len(request) == 1 else request for request in world.requests]


def ahead(world: World) -> None:
    """As `full`, and the exec service takes starts ahead."""
    world.core.exec_is_ready(ahead=True)
    full(world)
    world.flush()
    assert handed_out(world) == [([2, 3], [1], True)]
    world.requests.clear()


def ends(world: World, id: int, heir: int) -> None:
    world.exec(id, "finish", status=0)
    world.exec(id, "release", ranks="all", final=True, heir=heir)


def test_what_the_exec_service_started_has_the_events_of_a_start_that_was_ordered() -> None:
    world = World()
    ahead(world)
    ends(world, 1, heir=2)
    world.exec(2, "start")
    assert world.events(2)[-2:] == ["alloc", "start"]
    assert world.asked("free") == [] and len(world.asked("inherit")) == 1
    ends(world, 2, heir=3)
    world.exec(3, "start")
    world.exec(3, "finish", status=0)
    world.exec(3, "release", ranks="all", final=True)
    assert [job.id for job in world.asked("free")] == [3]
    assert not world.core.heirs.given and not world.core.holders
    assert set(world.replayed().active) == set()


def test_of_two_that_were_started_either_may_be_told_first() -> None:
    world = World()
    world.core.exec_is_ready(ahead=True)
    for id in range(1, 7):
        world.submit(id)
    world.alloc(1)
    world.alloc(2)
    world.core.heirs.name([3, 4, 5, 6], 0.0)
    world.flush()
    world.requests.clear()
    ends(world, 2, heir=4)
    ends(world, 4, heir=5)
    ends(world, 1, heir=3)
    assert world.core.heirs.stats() == {"named": 1, "given": 1, "put_off": 0}
    world.core.heirs.name([6], 0.0)
    world.flush()
    assert ("recall",) not in world.requests and list(world.core.heirs.given) == [6]
    ends(world, 3, heir=6)
    assert {id: world.core.active[id].state for id in (5, 6)} == {5: RUN, 6: RUN}
    assert [(job.id, heir.id) for kind, job, heir, *_ in pairs(world) if kind == "inherit"] == [
        (2, 4),
        (4, 5),
        (1, 3),
        (3, 6),
    ]


def test_more_is_handed_out_as_the_scheduler_names_it() -> None:
    world = World()
    ahead(world)
    for id in (4, 5):
        world.submit(id)
    ends(world, 1, heir=2)
    # It spoke before it had heard of job 2.
    world.core.heirs.name([2, 3, 4, 5], 0.0)
    world.flush()
    assert handed_out(world) == [([4, 5], [], False)]
    assert ("recall",) not in world.requests


def test_a_job_that_may_have_been_started_is_changed_when_that_is_known() -> None:
    world = World()
    ahead(world)
    done: list[str] = []
    assert world.core.heirs.settled(1, lambda: done.append("never")), "it runs, and everybody knows"
    assert not world.core.heirs.settled(2, lambda: done.append("job 2"))
    assert not world.core.heirs.settled(3, lambda: world.cancel(3))
    world.flush()
    assert world.requests.count(("recall",)) == 1 and not done
    assert world.core.heirs.stats() == {"named": 2, "given": 2, "put_off": 2}
    ends(world, 1, heir=2)
    assert not done
    world.core.heirs.recalled()
    assert done == ["job 2"] and world.core.active[2].state == RUN
    assert world.asked("cancel") == [3]
    world.alloc(3, kind=CANCEL)
    assert world.result(3) == CANCELED and "alloc" not in world.events(3)


def test_an_answer_of_the_scheduler_waits_for_the_exec_services() -> None:
    world = World()
    ahead(world)
    world.alloc(2, starttime=7.0)
    assert world.core.active[2].state == SCHED
    # It has started job 2 before: what the scheduler gave is its own to take back when it hears of that.
    ends(world, 1, heir=2)
    world.core.heirs.recalled()
    world.flush()
    assert world.core.active[2].r["execution"]["starttime"] == world.core.now
    assert world.core.alloc_pending == 1
    world.alloc(3, starttime=8.0)
    world.core.heirs.recalled()
    world.flush()
    assert world.core.active[3].r["execution"]["starttime"] == 8.0


def test_an_end_that_crossed_is_taken_over_when_everything_is_back() -> None:
    world = World()
    ahead(world)
    world.exec(1, "finish", status=0)
    world.exec(1, "release", ranks="all", final=True)
    assert ("recall",) in world.requests and world.events(1)[-1] == "release"
    world.core.heirs.recalled()
    world.flush()
    assert world.core.active[2].state == RUN and world.asked("free") == []
    assert handed_out(world) == [([3], [2], True)]


@pytest.mark.parametrize("why", ["urgent", "scheduler", "other-order"])
def test_everything_is_recalled_when_the_order_is_not_certain_any_more(why: str) -> None:
    world = World()
    ahead(world)
    if why == "urgent":
        world.submit(4, urgency=20)
    elif why == "scheduler":
        world.core.sched_gone()
    else:
        world.core.heirs.name([3, 2], 0.0)
    world.flush()
    assert ("recall",) in world.requests
    world.core.heirs.recalled()
    world.flush()
    assert handed_out(world) == ([([3, 2], [1], True)] if why == "other-order" else [])


@pytest.mark.parametrize("system", [{"exec": {"test": {}}}, {"duration": 60.0}])
def test_simulated_and_different_jobs_are_not_handed_out(system: dict) -> None:
    world = World()
    world.core.exec_is_ready(ahead=True)
    world.submit(1)
    world.submit(2)
    world.submit(3, **system)
    world.alloc(1)
    world.core.heirs.name([2, 3], 0.0)
    world.flush()
    assert handed_out(world) == [([2], [1], True)]


def test_what_may_have_begun_does_not_begin_again_after_a_restart() -> None:
    world = World()
    ahead(world)
    world.core = world.replayed()
    restart(world.core, {2})
    world.core.sched_is_ready(0)
    world.flush()
    assert world.events(2)[-3:] == ["flux-restart", "exception", "clean"]
    assert world.context(2, "exception")["note"] == "lost when the broker restarted"
    assert world.core.active[3].state == SCHED


def test_an_exec_service_that_goes_leaves_nothing_undone() -> None:
    world = World()
    ahead(world)
    done: list[str] = []
    world.core.heirs.settled(2, lambda: done.append("job 2"))
    world.core.exec_gone("gone")
    world.flush()
    assert done == ["job 2"] and not world.core.heirs.given
    assert world.core.active[2].state == SCHED
    world.core.heirs.recalled()
    world.core.heirs.name([2, 3], 0.0)
    world.flush()
    assert handed_out(world) == []


def test_an_answer_that_waits_for_the_exec_service_is_void_when_another_scheduler_came_meanwhile() -> None:
    world = World()
    ahead(world)
    world.alloc(2, starttime=7.0)
    world.core.sched_gone()
    world.core.sched_is_ready(0)
    world.core.heirs.recalled()
    world.flush()
    assert world.core.active[2].state == SCHED and world.core.active[2].alloc_pending
    world.alloc(2, starttime=8.0)
    assert world.core.active[2].r["execution"]["starttime"] == 8.0


def test_a_scheduler_and_an_exec_service_are_told_nothing_that_was_for_the_one_before() -> None:
    world = World()
    ahead(world)
    core = world.core
    core.set_urgency(core.active[3], 8, 0)
    assert [kind for kind, *_ in core.requests] == ["prioritize", "recall"]
    core.sched_gone()
    assert [kind for kind, *_ in core.requests] == ["recall"]
    core.exec_gone("gone")
    assert [kind for kind, *_ in core.requests] == ["free"]


def test_what_concerns_all_jobs_happens_in_the_order_in_which_it_was_asked_for() -> None:
    world = World()
    ahead(world)
    done: list[str] = []

    def ask(what: str) -> None:
        if world.core.heirs.settled(None, lambda: ask(what)):
            done.append(what)

    ask("stop")
    ends(world, 1, heir=2)
    ends(world, 2, heir=3)
    assert not world.core.heirs.given
    ask("start")
    assert done == []
    world.core.heirs.recalled()
    assert done == ["stop", "start"]
