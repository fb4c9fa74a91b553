"""The journal of all jobs' events: what consumers ask for, and what they are told of while their past is sent."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from jobs_world import R, World

from headrace.engine.modules.job_manager import watch
from headrace.formats.spec.message import FLAG_STREAMING

Run = Callable[..., None]


def listen(world: World, **body: Any) -> int:
    tag: int = world.client.start("job-manager.events-journal", body, None, FLAG_STREAMING)
    return tag


async def past(world: World, tag: int) -> list[tuple[int, list[str]]]:
    """What comes until the end of the past is told."""
    found: list[tuple[int, list[str]]] = []
    while True:
        body = (await world.client.next(tag)).obj
        if not body["events"]:
            return found
        found.append((body["id"], [event["name"] for event in body["events"]]))


def test_consumers_get_the_events_that_they_allow_and_do_not_deny(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        names = {"allow": {"submit": 1, "priority": 1, "exception": 1}, "deny": ["priority"]}
        full, live = listen(world, full=True, **names), listen(world, full=False, allow=["clean"])
        assert await past(world, full) == [(id, ["submit"])]
        assert await past(world, live) == []
        await world.cancel(id)
        told = [(await world.client.next(tag)).obj["events"] for tag in (full, live)]
        assert [[event["name"] for event in events] for events in told] == [["exception"], ["clean"]]
        for wrong in ({"allow": "submit"}, {"deny": 3}):
            reply = await world.client.next(listen(world, full=True, **wrong))
            assert (reply.errnum, "expected object or array" in reply.text) == (errno.EPROTO, True)
        assert (await world.client.rpc("job-manager.stats-get"))["journal"]["listeners"] == 2

    in_broker(scenario)


def test_every_event_is_told_once_while_the_past_goes_out_in_slices(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SLICE", 1)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(urgency=0) for _ in range(6)]
        for id in ids[:2]:
            await world.cancel(id)
        await world.client.rpc("job-manager.idle")
        await asyncio.sleep(0)
        tag = listen(world, full=True)
        # Nobody's past was sent when the last one ends, everybody's when another ends and a new one comes.
        world.client.start("job-manager.raise", {"id": ids[5], "type": "cancel", "severity": 0})
        late = await world.job(urgency=0)
        await world.cancel(ids[2])
        told: dict[int, list[str]] = {}
        closed = 0
        while closed < 1 or len(told) < 7 or any(told[id][-1] != "clean" for id in (ids[2], ids[5])):
            body = (await world.client.next(tag)).obj
            closed += not body["events"]
            if body["events"]:
                told.setdefault(body["id"], []).extend(event["name"] for event in body["events"])
        waiting = ["submit", "validate", "depend", "priority"]
        assert told[late] == told[ids[3]] == told[ids[4]] == waiting
        assert told[ids[0]] == told[ids[2]] == told[ids[5]] == [*waiting, "exception", "clean"]

    in_broker(scenario)


def test_a_job_that_is_purged_before_its_past_was_sent_is_left_out(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SLICE", 1)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(urgency=0) for _ in range(8)]
        for id in ids:
            await world.cancel(id)
        tag = listen(world, full=True)
        purge = world.client.start("job-manager.purge-id", {"jobs": ids[-1:], "force": True})
        assert [id for id, _ in await past(world, tag)] == ids[:-1]
        assert (await world.client.next(purge)).obj == {"count": 1}

    in_broker(scenario)


def test_volatile_annotations_are_events_of_this_journal_only(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        tag = listen(world, full=True)
        await past(world, tag)
        note = {"sched": {"reason_pending": "full"}}
        world.ctx.respond(world.allocs[id], {"id": id, "type": 1, "annotations": note})
        body = (await world.client.next(tag)).obj
        assert [(event["name"], event["context"]) for event in body["events"]] == [
            ("annotations", {"annotations": note})
        ]
        later = listen(world, full=True)
        assert (await past(world, later))[-1] == (id, ["annotations"])
        assert "annotations" not in [name for name, _ in await world.events(id)]

    in_broker(scenario)


def test_annotations_of_an_allocation_are_told_and_counted_before_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job() for _ in range(2)]
        await world.until(lambda: all(id in world.allocs for id in ids))
        tag = listen(world, full=True)
        await past(world, tag)
        before = (await world.client.rpc("job-manager.stats-get"))["journal"]["events"]
        note = {"sched": {"resource_summary": "rank0/core0"}}
        for id, more in zip(ids, ({"annotations": note}, {})):
            world.ctx.respond(world.allocs[id], {"id": id, "type": 0, "R": R, **more})
        told: dict[int, list[tuple[str, Any]]] = {id: [] for id in ids}
        while not all(told.values()):
            body = (await world.client.next(tag)).obj
            told[body["id"]] += [(event["name"], event.get("context")) for event in body["events"]]
        assert told[ids[0]][:2] == [("annotations", {"annotations": note}), ("alloc", {"annotations": note})]
        assert told[ids[1]][0][0] == "alloc"
        # The journal counts what its consumers were told.
        after = (await world.client.rpc("job-manager.stats-get"))["journal"]["events"]
        assert after - before == sum(map(len, told.values()))
        assert "annotations" not in [name for name, _ in await world.events(ids[0])]

    in_broker(scenario)


def test_the_scheduler_has_the_resources_back_before_their_release_is_told(in_broker: Run) -> None:
    """Who asks the scheduler after an event what is allocated gets what holds since then."""

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        told: list[tuple[int, list[int]]] = []

        def hear(reply: Any) -> None:
            if reply.obj["events"]:
                told.append((reply.obj["id"], list(world.freed)))

        world.ctx.call("job-manager.events-journal", {"allow": ["free"]}, hear, streaming=True)
        ids = []
        for _ in range(2):
            ids.append(await world.job())
            await world.run(ids[-1])
        await world.until(lambda: len(told) == 2)
        assert told == [(ids[0], ids[:1]), (ids[1], ids)]

    in_broker(scenario)
