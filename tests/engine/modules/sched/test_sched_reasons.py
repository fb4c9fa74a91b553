"""Why jobs wait, asked of both schedulers: for every job, true, in slices, and at no cost to those who do not ask."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from sched_world import World, four_nodes, jobspec

from headrace.engine.modules.sched import reasons as sched_reasons
from headrace.engine.modules.sched import service as sched_graph
from headrace.engine.modules.sched import simple as sched_simple
from headrace.engine.modules.sched.reasons import Reasons
from headrace.formats.spec.idset import Idset
from headrace.sched.queueing.forecast import Place
from waiting import until_in_loop

Run = Callable[..., None]
BOTH = pytest.mark.parametrize("module", [sched_graph, sched_simple])
HOUR = 3600.0


def world_of(broker: Any, module: Any, *args: str) -> World:
    return World(broker, "queue-depth=unlimited", *args, module=module)


async def reasons(broker: Any, *ids: int) -> dict[int, dict[str, Any]]:
    answer = await broker.client().rpc("sched.reasons", {"ids": list(ids)})
    return {id: notes for id, notes in answer["reasons"]}


@BOTH
def test_each_waiting_job_has_what_is_short_who_is_ahead_and_when_it_starts(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = world_of(broker, module)
        now = world.sched.now()
        world.submit(1, jobspec(nslots=7, duration=HOUR))
        world.submit(2, jobspec(nslots=8, duration=HOUR))
        world.submit(3, jobspec(nslots=1, duration=HOUR))
        world.submit(4, jobspec(nslots=1, duration=HOUR), priority=20)
        await world.settle()
        assert world.started(1, 2, 3, 4) == [1, 4]
        found = await reasons(broker, 1, 2, 3, 99)
        assert found.keys() == {2, 3}
        assert found[2]["reason_pending"].startswith("insufficient resources: ")
        assert [found[job]["jobs_ahead"] for job in (2, 3)] == [0, 1]
        assert found[3]["reason_pending"].endswith("; behind 1 job")
        ends = [found[job]["t_estimate"] - now for job in (2, 3)]
        assert ends == pytest.approx([HOUR, 2 * HOUR], abs=5)

    in_broker(scenario)


@BOTH
def test_a_job_that_came_after_the_estimates_were_made_has_its_place_too(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = world_of(broker, module)
        world.submit(1, jobspec(nslots=8, duration=HOUR))
        world.submit(2, jobspec(nslots=8, duration=HOUR))
        await world.settle()
        await reasons(broker, 2)
        world.submit(3, jobspec(duration=HOUR))
        await world.settle()
        found = await reasons(broker, 3)
        assert found[3]["jobs_ahead"] == 1 and found[3]["t_estimate"] > world.sched.now() + HOUR

    in_broker(scenario)


@BOTH
def test_whole_nodes_and_constraints_have_their_reasons_and_estimates(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-depth=unlimited", module=module, r=four_nodes(properties={"fast": "3"}))
        fast = {"constraints": {"properties": ["fast"]}}
        world.submit(1, jobspec(nslots=7, duration=HOUR))
        world.submit(2, jobspec(nslots=1, duration=2 * HOUR, **fast))
        world.submit(3, jobspec(nnodes=2, exclusive=True, duration=HOUR))
        world.submit(4, jobspec(nslots=1, duration=HOUR, **fast))
        await world.settle()
        found = await reasons(broker, 3, 4)
        now = world.sched.now()
        assert "node" in found[3]["reason_pending"] and found[3]["t_estimate"] > now
        # Nodes with the property have a queue of their own in an estimate.
        assert found[4]["jobs_ahead"] == 1 and found[4]["t_estimate"] > now

    in_broker(scenario)


@BOTH
def test_a_job_behind_others_is_told_what_no_node_meets_and_not_that_nodes_are_down(
    in_broker: Run, module: Any
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-depth=unlimited", module=module, r=four_nodes(properties={"fast": "3"}))
        world.submit(1, jobspec(nslots=8, duration=HOUR))
        world.submit(2, jobspec(nslots=8, duration=HOUR))
        world.submit(3, jobspec(constraints={"properties": ["nosuch"]}))
        world.submit(4, jobspec(constraints={"ranks": ["7"]}))
        world.submit(5, jobspec(constraints={"not": [{"ranks": ["0-3"]}]}))
        await world.settle()
        found = await reasons(broker, 3, 4, 5)
        assert [found[job]["reason_pending"] for job in (3, 4, 5)] == [
            "no node has property nosuch; behind 1 job",
            "no node has rank 7; behind 2 jobs",
            "every node has rank 0-3; behind 3 jobs",
        ]

    in_broker(scenario)


def fits(free: dict[int, int], nslots: int, cores: int) -> bool:
    return sum(count // cores for count in free.values()) >= nslots


def free_cores(world: World, running: list[int]) -> dict[int, int]:
    """Free cores by rank, from what the running jobs were given."""
    free = dict.fromkeys(range(4), 2)
    for job in running:
        for group in world.r_of(job)["execution"]["R_lite"]:
            for rank in Idset.parse(group["rank"]):
                free[rank] -= len(Idset.parse(group["children"]["core"]))
    return free


@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_every_pending_job_of_a_random_history_has_a_true_reason(in_broker: Run, module: Any, seed: int) -> None:
    draw = random.Random(seed)

    async def scenario(broker: Any) -> None:
        world = world_of(broker, module, *(["queue-policy=easy"] if module is sched_graph and seed % 2 else []))
        shapes: dict[int, tuple[int, int]] = {}
        places: dict[int, tuple[int, int]] = {}
        ended: set[int] = set()
        for job in range(1, 25):
            cores = draw.choice([1, 1, 2])
            shapes[job] = draw.randint(1, 8 // cores), cores
            places[job] = -draw.randint(1, 31), job
            spec = jobspec(*shapes[job], duration=draw.choice([60.0, HOUR]))
            world.submit(job, spec, priority=-places[job][0], t_submit=float(job))
            await world.settle()
            running = [job for job in world.started(*shapes) if job not in ended]
            if running and draw.random() < 0.3:
                ended.add(draw.choice(running))
                world.free(max(ended & set(running)))
                await world.settle()
        started = world.started(*shapes)
        free = free_cores(world, [job for job in started if job not in ended])
        pending = [job for job in shapes if job not in started]
        found = await reasons(broker, *pending)
        assert found.keys() == set(pending)
        for job, notes in found.items():
            ahead = sum(places[other] < places[job] for other in pending)
            assert notes["jobs_ahead"] == ahead
            assert ("insufficient resources" in notes["reason_pending"]) == (not fits(free, *shapes[job]))
            assert ahead or "insufficient" in notes["reason_pending"] or "promised" in notes["reason_pending"]
        if not pending:
            return
        # Without the jobs before it, a job starts at once unless something is short, and then when that is free.
        job = draw.choice(pending)
        for other in pending:
            if other != job:
                world.ctx.call("sched.cancel", {"id": other})
        await world.settle()
        assert bool(world.started(job)) == fits(free, *shapes[job])
        for other in started:
            if other not in ended:
                world.free(other)
        await world.settle()
        assert world.started(job)

    in_broker(scenario)


@BOTH
def test_an_answer_for_thousands_is_made_in_slices(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = world_of(broker, module)
        ids = range(2, 3002)
        world.submit(1, jobspec(nslots=8, duration=HOUR))
        await until_in_loop(lambda: world.started(1))
        for job in ids:
            world.submit(job, jobspec(duration=HOUR), t_submit=float(job))
        await world.settle()
        client = broker.client()
        tag = client.start("sched.reasons", {"ids": list(ids)})
        turns = 0
        while client.queues[tag].empty():
            turns += 1
            await asyncio.sleep(0)
        found = (await client.next(tag)).obj["reasons"]
        assert [notes["jobs_ahead"] for _, notes in found] == list(range(3000))
        # Eight jobs run at a time, an hour each.
        hours = [round((notes["t_estimate"] - found[0][1]["t_estimate"]) / HOUR) for _, notes in found]
        assert hours == [place // 8 for place in range(3000)]
        assert turns > 5

    in_broker(scenario)


class Scheduler:
    """What `Reasons` asks: jobs 1 to 3 wait; counts how often estimates are begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.waiting = [1, 2, 3]

    def explain(self, id: int, place: Place | None) -> dict[str, Any] | None:
        return {"ahead": place and place.ahead} if id in self.waiting else None

    def forecast(self) -> Iterator[tuple[int, Place] | None]:
        self.begun += 1
        for ahead, id in enumerate(list(self.waiting)):
            yield None
            yield id, Place(ahead, inf if id == 2 else 10.0 * id)


def test_estimates_serve_several_requests_and_are_forgotten(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sched_reasons, "_FRESH", 0.05)

    async def scenario(broker: Any) -> None:
        ctx, scheduler = broker.context("sched"), Scheduler()
        made = Reasons(ctx, scheduler.explain, scheduler.forecast)
        ctx.service("sched", {"reasons": made.ask})
        assert await reasons(broker, 2, 9, 1) == {2: {"ahead": 1}, 1: {"ahead": 0, "t_estimate": 10.0}}
        assert (await reasons(broker, 3))[3]["t_estimate"] == 30.0
        assert scheduler.begun == 1
        scheduler.waiting.append(4)
        assert await reasons(broker, 4, 3) == {4: {"ahead": 3, "t_estimate": 40.0}, 3: {"ahead": 2, "t_estimate": 30.0}}
        assert scheduler.begun == 2
        while made._places:
            await asyncio.sleep(0.01)
        await reasons(broker, 1)
        assert scheduler.begun == 3

    in_broker(scenario)


def test_nothing_is_asked_of_a_scheduler_whose_jobs_come_and_go(in_broker: Run) -> None:
    """The work of a job is the same with and without reasons: they are found for those who ask alone."""

    async def scenario(broker: Any) -> None:
        world = world_of(broker, sched_graph)
        for job in range(1, 40):
            world.submit(job, jobspec(duration=HOUR), t_submit=float(job))
        await world.settle()
        for job in range(1, 9):
            world.free(job)
        await world.settle()
        assert len(world.started(*range(1, 40))) == 16
        assert not any("behind" in str(answer) for answers in world.answers.values() for answer in answers)

    in_broker(scenario)
