"""R of a running instance: hosts that are added and leave, before and after R is known, and who has jobs."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from resource_world import CONFIG, World, with_world

from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from waiting import stays_in_loop

Run = Callable[..., None]


def grow(world: World, hosts: str, ranks: str) -> None:
    """As the broker does when hosts were added to the tree."""
    world.broker.size = Idset.parse(ranks).last + 1
    world.broker.attrs.set("hostlist", hosts)
    for hook in world.broker.on_grown:
        hook(Idset.parse(ranks))


def allocated(world: World, ranks: str) -> None:
    """Let the scheduler say that jobs have core 0 of these ranks."""
    r_lite = [{"rank": ranks, "children": {"core": "0"}}] if ranks else []
    nodelist = [f"node[{ranks}]"] if ranks else []
    execution = {"R_lite": r_lite, "starttime": 0.0, "expiration": 0.0, "nodelist": nodelist}
    world.allocated = {"version": 1, "execution": execution}


def test_added_hosts_are_in_r_at_once_and_used_when_they_were_counted(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        offer = world.acquire()
        await world.take(offer)
        grow(world, "node[0-5]", "4-5")
        told = await world.take(offer)
        assert told["grow"]["execution"]["R_lite"] == [{"rank": "4-5", "children": {"core": "0-1"}}]
        assert told["grow"]["execution"]["nodelist"] == ["node[4-5]"]
        assert "shrink" not in told
        world.online("0-4")
        await world.settle()
        assert (await world.client.rpc("resource.status"))["offline"] == "5"
        await world.client.rpc("resource.gather", {"nodes": [[4, "node4", "0-1", ""]]})
        assert await world.take(offer) == {"up": "4"}
        # Named again: nothing new.
        grow(world, "node[0-5]", "0-5")
        await world.client.rpc("resource.gather", {"nodes": [[5, "node5", "0-7", ""]]})
        told = await world.take(offer)
        assert (told["shrink"], told["grow"]["execution"]["R_lite"][0]["children"]) == ("5", {"core": "0-7"})
        world.online("0-5")
        assert await world.take(offer) == {"up": "5"}
        methods = [
            event["context"]["method"]
            for event in (await world.client.next(world.client.start("resource.journal", flags=m.FLAG_STREAMING))).obj[
                "events"
            ]
            if event["name"] == "resource-define"
        ]
        assert methods == ["configuration", "grow", "dynamic-discovery"]

    with_world(in_broker, scenario)


def test_hosts_that_are_added_before_r_is_known_are_in_it(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        grow(world, "node[0-5]", "4-5")
        nodes = [[rank, f"node{rank}", "0-3", ""] for rank in range(1, 5)]
        await world.client.rpc("resource.gather", {"nodes": nodes})
        assert (await world.client.call("resource.get")).errnum == errno.EAGAIN
        await world.client.rpc("resource.gather", {"nodes": [[5, "node5", "0", ""]]})
        whole = (await world.client.rpc("resource.get"))["R"]["execution"]
        assert whole["nodelist"] == ["node[0-5]"]
        assert {"rank": "5", "children": {"core": "0"}} in whole["R_lite"]

    with_world(in_broker, scenario, None)


def test_ranks_with_jobs_do_not_leave_and_others_do(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        offer = world.acquire()
        await world.take(offer)
        allocated(world, "1-2")
        refused = await world.client.call("resource.shrink", {"targets": "2-3"})
        assert (refused.errnum, refused.text) == (errno.EBUSY, "rank 2 has jobs: drain it and wait, or cancel them")
        # Nothing began on them while the scheduler was asked.
        assert [await world.take(offer), await world.take(offer)] == [{"down": "2-3"}, {"up": "2-3"}]
        await world.client.rpc("resource.drain", {"targets": "3"})
        assert await world.take(offer) == {"down": "3"}
        await world.client.rpc("resource.shrink", {"targets": "node3"})
        assert await world.take(offer) == {"shrink": "3"}
        status = await world.client.rpc("resource.status")
        assert (status["R"]["execution"]["nodelist"], status["drain"]) == (["node[0-2]"], {})
        refused = await world.client.call("resource.shrink", {"targets": "9"})
        assert refused.errnum == errno.EINVAL
        allocated(world, "")
        refused = await world.client.call("resource.shrink", {"targets": "0-2"})
        assert refused.text == "invalid targets: nothing would be left"

    with_world(in_broker, scenario, CONFIG)


def test_who_has_jobs_is_told_at_each_change_while_somebody_asks(in_broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.engine.modules.resource.resize._LOOK_AGAIN", 0.0)

    async def scenario(world: World) -> None:
        followed: list[Any] = []
        ended: list[Any] = []
        manager = {"events-journal": followed.append, "events-journal-cancel": ended.append}
        world.broker.context("job-manager").service("job-manager", manager)
        allocated(world, "1-2")
        assert await world.client.rpc("resource.busy") == {"ranks": "1-2"}
        assert followed == []
        tag = world.client.start("resource.busy", flags=m.FLAG_STREAMING)
        assert await world.take(tag) == {"ranks": "1-2"}
        (journal,) = followed
        for ranks in ("2", ""):
            allocated(world, ranks)
            world.ctx.respond(journal, {"id": 1, "events": []})
            assert await world.take(tag) == {"ranks": ranks}
        # An event that changes nothing is not told.
        world.ctx.respond(journal, {"id": 1, "events": []})
        await stays_in_loop(world.client.queues[tag].empty, 0.05)
        world.client.disconnect("resource")
        await world.settle()
        assert len(ended) == 1

    with_world(in_broker, scenario)


def test_streams_follow_what_others_were_answered_between_two_looks(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        journals: list[Any] = []
        world.broker.context("job-manager").service("job-manager", {"events-journal": journals.append})
        allocated(world, "")
        tag = world.client.start("resource.busy", flags=m.FLAG_STREAMING)
        assert await world.take(tag) == {"ranks": ""}
        # A job begins and ends before the module looks again, and somebody asks while it runs.
        allocated(world, "1-2")
        assert await world.client.rpc("resource.busy") == {"ranks": "1-2"}
        assert await world.take(tag) == {"ranks": "1-2"}
        allocated(world, "")
        world.ctx.respond(journals[0], {"id": 1, "events": []})
        assert await world.take(tag) == {"ranks": ""}
        # So does a further stream.
        allocated(world, "3")
        other = world.client.start("resource.busy", flags=m.FLAG_STREAMING)
        assert [await world.take(other), await world.take(tag)] == [{"ranks": "3"}, {"ranks": "3"}]

    with_world(in_broker, scenario)


def test_a_change_while_the_scheduler_does_not_answer_is_told_when_it_does(in_broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.engine.modules.resource.resize._LOOK_AGAIN", 0.0)

    async def scenario(world: World) -> None:
        journals: list[Any] = []
        world.broker.context("job-manager").service("job-manager", {"events-journal": journals.append})
        allocated(world, "1-2")
        tag = world.client.start("resource.busy", flags=m.FLAG_STREAMING)
        assert await world.take(tag) == {"ranks": "1-2"}
        world.refusal, world.questions = errno.EAGAIN, 0
        world.ctx.respond(journals[0], {"id": 1, "events": []})
        while world.questions < 5:
            await asyncio.sleep(0)
        allocated(world, "")
        world.refusal = 0
        assert await world.take(tag) == {"ranks": ""}

    with_world(in_broker, scenario)
