"""Why pending jobs wait, asked of the job manager: what it knows itself, and what the scheduler says."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from jobs_world import QUEUES, World, jobspec

from headrace.engine.modules.job_manager import reasons as jobs_reasons
from headrace.formats.spec import jobid
from headrace.formats.spec.message import Message

Run = Callable[..., None]


async def reasons(world: World, *ids: int) -> dict[int, Any]:
    answer = await world.client.rpc("job-manager.reasons", {"ids": list(ids)})
    return {id: notes["reason_pending"] for id, notes in answer["reasons"]}


def says(world: World, answer: Callable[[Message], Any]) -> None:
    """Have the scheduler of the test answer `sched.reasons`."""
    world.ctx.service("sched", {"reasons": answer})


def test_the_job_manager_knows_of_jobs_that_are_not_before_the_scheduler(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        early = await world.job()
        assert await reasons(world, early) == {early: "no scheduler is loaded"}
        await world.begin()
        held = await world.job(urgency=0)
        after = {"dependencies": [{"scheme": "afterok", "value": jobid.encode(held)}]}
        dependent = await world.job(jobspec(**after))
        assert await reasons(world, held, dependent, 12345) == {
            held: "held",
            dependent: f"dependency: after-success={jobid.encode(held)}",
        }
        answer = await world.client.rpc("job-manager.reasons", {"ids": [early, held, dependent]})
        assert answer["own"] == [held, dependent]
        await world.alloc(early)
        assert await reasons(world, early) == {}

    in_broker(scenario)


def test_jobs_of_a_stopped_queue_and_beyond_the_depth_of_the_scheduler_wait_for_that(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.ctx.rpc("job-manager.exec-hello", {"service": "exec"})
        await world.ctx.rpc("job-manager.sched-ready", {"mode": "limited", "limit": 1})
        await world.client.rpc("job-manager.queue-start", {"name": "batch", "start": True, "all": False})
        stopped = await world.job(jobspec(queue="debug"))
        first, second = await world.job(), await world.job()
        says(world, lambda msg: {"reasons": [[id, {"reason_pending": "short"}] for id in msg.obj["ids"]]})
        assert await reasons(world, stopped, first, second) == {
            stopped: "queue stopped",
            first: "short",
            second: "behind 1 or more jobs",
        }

    in_broker(scenario, config=QUEUES)


def test_what_the_scheduler_says_is_passed_on_and_what_it_does_not_know_yet_is_soon_decided(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        jobs = [await world.job() for _ in range(3)]
        notes = {"reason_pending": "short", "jobs_ahead": 1, "t_estimate": 5.0}
        says(world, lambda _msg: {"reasons": [[jobs[1], notes]]})
        answer = await world.client.rpc("job-manager.reasons", {"ids": jobs[:2]})
        soon = {"reason_pending": "about to be scheduled"}
        assert answer == {"reasons": [[jobs[1], notes], [jobs[0], soon]], "own": []}

    in_broker(scenario)


@pytest.mark.parametrize("silent", [True, False])
def test_a_scheduler_that_has_no_reasons_holds_nobody_up(
    in_broker: Run, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_reasons, "_REASONS_TIMEOUT", 0.01)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        asked: list[Message] = []
        if silent:
            says(world, asked.append)
        job = await world.job()
        assert await reasons(world, job) == {job: "waits for the scheduler, which does not say for what"}
        if silent:
            # The answer that comes too late is nobody's.
            world.ctx.respond(asked[0], {"reasons": [[job, {"reason_pending": "late"}]]})
            assert await world.client.rpc("job-manager.queue-list")

    in_broker(scenario)


def test_reasons_are_for_the_owner(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        World(broker)
        assert (await broker.client(guest=True).call("job-manager.reasons", {"ids": []})).errnum == errno.EPERM

    in_broker(scenario)
