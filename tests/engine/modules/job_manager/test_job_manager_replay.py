"""Records read back: the same jobs, however often a part of them was written, and whoever finds them after a crash."""

from __future__ import annotations

from typing import Any

from core_world import World, after
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Free
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.replay import _LOST_NOTE, replay, restart
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import CLEANUP, PENDING, PRIORITY, RUN, SCHED

STEPS = [
    "submit",
    "submit",
    "run",
    "run",
    "waitable",
    "depend",
    "run",
    "start",
    "cancel",
    "purge",
    "stop",
    "go",
    "reap",
]


def history(steps: list[str]) -> tuple[World, list[int]]:
    """A world after these steps, and where in its records turns ended: what a turn wrote is there whole or not."""
    world = World(["batch"])
    world.core.set_queues_started(["batch"], True, None, True)
    world.flush()
    number, turns = 0, [0]
    for step in steps:
        core = world.core
        ready = [id for id, job in core.active.items() if job.state == SCHED and job.alloc_pending]
        if step in ("submit", "waitable", "depend"):
            number += 1
            system = after("afterany", number - 1) if step == "depend" and number - 1 in core.active else {}
            world.submit(number, flags=4 if step == "waitable" else 0, queue="batch", **system)
        elif step == "run" and ready:
            world.run(ready[0], 256)
        elif step == "start" and ready:
            world.alloc(ready[-1])
            world.exec(ready[-1], "start")
        elif step == "cancel" and core.active:
            world.cancel(next(iter(core.active)))
        elif step == "purge":
            core.purge(list(core.inactive)[:1])
        elif step in ("stop", "go"):
            core.set_queues_started(["batch"], step == "go", "why", True)
        elif step == "reap" and core.zombies:
            core.reap(next(iter(core.zombies)))
        world.flush()
        turns.append(len(world.records))
    return world, turns


def state(core: Core) -> Any:
    active = {id: (job.state, job.events, job.r) for id, job in core.active.items()}
    return active, core.inactive, core.zombies, core.running, core.queues.save(), core.max_jobid


def replayed(records: list[Any]) -> Core:
    core = Core(Queues(["batch"]), 0)
    for record in records:
        replay(core, record)
    return core


@given(st.lists(st.sampled_from(STEPS), min_size=3, max_size=25), st.integers(0, 100))
def test_records_that_were_written_twice_change_nothing(steps: list[str], cut: int) -> None:
    world, turns = history(steps)
    records = world.records
    assert state(replayed(records)) == state(world.core)
    last = turns[cut % len(turns)]
    for first in turns:
        if first < last:
            assert state(replayed([*records[:last], *records[first:]])) == state(world.core)


def test_what_was_purged_before_a_checkpoint_is_not_missed_after_it() -> None:
    """Records that follow a checkpoint may be older than it is, and tell of jobs that it has no more."""
    world, turns = history(["submit", "run", "purge", "submit"])
    found = replayed(world.records[turns[1] :])
    assert (list(found.active), found.inactive) == ([2], {})


@given(st.lists(st.sampled_from(STEPS), min_size=3, max_size=25), st.integers(0, 100))
def test_after_a_crash_nothing_runs_that_nobody_watches(steps: list[str], cut: int) -> None:
    world, turns = history(steps)
    core = replayed(world.records[: turns[cut % len(turns)]])
    before = {id: job.state for id, job in core.active.items()}
    core.finished.clear()
    restart(core)
    assert all(job.state & PENDING or job.state == CLEANUP for job in core.active.values())
    ended = {job.id: job for job in core.finished}
    for id, was in before.items():
        job = core.active.get(id) or ended[id]
        names = [name for _, name, _ in job.events]
        assert "flux-restart" in names
        if was == RUN:
            assert (job.fatal or ("",))[0] == "exec"
        elif was & (SCHED | PRIORITY):
            assert id in core.active, "what waited waits on"


def test_replay_gives_the_same_jobs() -> None:
    world = World()
    world.submit(1, flags=4)
    world.run(1)
    world.submit(2, urgency=3)
    world.alloc(2)
    world.exec(2, "start")
    world.submit(3, **after("afterok", 2))
    again = world.replayed()
    assert again.inactive == world.core.inactive
    assert again.zombies == {1: ""}
    assert again.running == world.core.running == 1
    assert {id: job.events for id, job in again.active.items()} == {
        id: job.events for id, job in world.core.active.items()
    }
    assert {id: job.state for id, job in again.active.items()} == {2: 16, 3: 2}


def test_what_becomes_of_a_job_in_the_turn_of_its_end_is_behind_the_end() -> None:
    world = World()
    for id in (1, 2, 3):
        world.submit(id, flags=4)
        world.alloc(id)
    for id in (1, 2, 3):
        world.core.exec_reply({"id": id, "type": "finish", "data": {"status": 0}})
        world.core.exec_reply({"id": id, "type": "release", "data": {"ranks": "all", "final": True}})
    world.core.reap(1)
    world.core.purge([2])
    world.flush()
    again = world.replayed()
    assert (list(again.inactive), list(again.zombies)) == ([1, 3], [3])


def test_a_restart_ends_what_was_queued_again_too_often() -> None:
    world = World()
    world.submit(1, requeue=True)
    notes = []
    for most in (1, 1):
        world.alloc(1)
        world.core = world.replayed()
        world.core.most_requeues = most
        world.core.now += 1.0
        job = world.core.active[1]
        restart(world.core)
        world.core.allocations.scheduler_is_ready(0)
        world.core.exec_is_ready()
        world.flush()
        notes += [context["note"] for _, name, context in job.events if name == "exception"]
    assert notes == [f"{_LOST_NOTE}: {js.REQUEUED_ENOUGH}"]
    assert world.events(1)[-4:] == ["flux-restart", "exception", "free", "clean"]


def test_a_restart_ends_what_ran_and_takes_up_what_waited() -> None:
    world = World()
    world.submit(1)
    world.alloc(1)
    world.exec(1, "start")
    world.submit(2, **after("afternotok", 1))
    world.submit(3)
    world.submit(4, requeue=True)
    world.alloc(4)
    world.core = world.replayed()
    world.core.now = 99.0
    restart(world.core)
    world.flush()
    assert world.events(1)[-4:] == ["flux-restart", "exception", "free", "clean"]
    assert world.events(2)[-4:] == ["flux-restart", "dependency-remove", "depend", "priority"]
    assert world.events(3)[-2:] == ["flux-restart", "priority"]
    assert world.events(4)[-2:] == ["flux-restart", "priority"]
    assert world.core.active[4].state == SCHED and world.core.active[4].r is None
    assert world.asked(Free) == []
    assert world.core.allocations.scheduler_is_ready(0) == 3
