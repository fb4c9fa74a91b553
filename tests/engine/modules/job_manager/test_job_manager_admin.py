"""Requests about all jobs: limits on finished ones, history, lists and counts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from jobs_world import World

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.job_manager import admin

Run = Callable[..., None]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"inactive-num-limit": "many"}, "job-manager.inactive-num-limit: must be a number"),
        ({"inactive-num-limit": True}, "job-manager.inactive-num-limit: must be a number"),
        ({"inactive-num-limit": -1}, "job-manager.inactive-num-limit: must be >= 0"),
        ({"inactive-age-limit": 5}, "job-manager.inactive-age-limit: Expected string, not 5"),
        ({"inactive-age-limit": "x"}, "job-manager.inactive-age-limit: invalid FSD: "),
        ([], "job-manager: must be a table"),
    ],
)
def test_limits_that_are_none_are_refused_by_their_key(in_broker: Run, table: Any, text: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        with pytest.raises(RpcError) as caught:
            await world.manager.reconfigure({"job-manager": table})
        assert (caught.value.errnum, caught.value.text.startswith(text)) == (errno.EINVAL, True)

    in_broker(scenario)


def test_a_configured_number_of_finished_jobs_is_kept_the_newest(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "_PURGE_PERIOD", 0.01)
    monkeypatch.setattr(admin, "_PURGE_BATCH", 1)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(urgency=0) for _ in range(5)]
        for id in ids:
            await world.cancel(id)
        await world.client.rpc("job-manager.drain")
        await world.manager.reconfigure({"job-manager": {"inactive-num-limit": 2}})
        purged: list[list[int]] = []
        world.ctx.subscribe("job-purge-inactive", lambda msg: purged.append(msg.obj["jobs"]))
        await world.until(lambda: purged == [[id] for id in ids[:3]])
        # Lifted, it purges nothing more.
        await world.manager.reconfigure({})
        await world.cancel(await world.job(urgency=0))
        await world.client.rpc("job-manager.drain")
        assert len(await world.all_events()) == 3

    in_broker(scenario)


def test_a_purge_by_id_takes_finished_jobs_only_and_all_or_none(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        done, held = await world.job(), await world.job(urgency=0)
        await world.alloc(done)
        world.end(done)
        await world.client.rpc("job-manager.idle")
        for jobs, errnum, text in (
            ([done, held], errno.EINVAL, "cannot purge active job"),
            ([done, 5], errno.ENOENT, "id not found"),
        ):
            reply = await world.client.call("job-manager.purge-id", {"jobs": jobs, "force": True})
            assert (reply.errnum, reply.text) == (errnum, text)
        for one in ({"jobs": [done]}, {"id": done}):
            assert await world.client.rpc("job-manager.purge-id", one) == {"count": 1}
        assert await world.client.rpc("job-manager.purge-id", {"jobs": [done], "force": True}) == {"count": 1}
        assert [id for id, _ in await world.all_events()] == [held]

    in_broker(scenario)


def test_history_and_lists_know_whose_and_how_urgent_jobs_are(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        done, held, low, high = [await world.job(urgency=urgency) for urgency in (20, 0, 1, 31)]
        await world.alloc(done)
        world.end(done)
        await world.client.rpc("job-manager.idle")
        for text, jobs in {"[:]": [high, low, held, done], "[:1]": [high], "[-1::-2]": [done, low], "[9:]": []}.items():
            assert (await world.client.rpc("job-manager.history.get", {"slice": text}))["jobs"] == jobs
        assert (await broker.client(guest=True).rpc("job-manager.history.get", {"slice": "[:]"}))["jobs"] == []
        assert (await world.client.call("job-manager.history.get", {"slice": "1"})).errnum == errno.EINVAL
        listed = (await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]
        assert [job["id"] for job in listed] == [high, low, held]
        assert [job["id"] for job in (await world.client.rpc("job-manager.list", {"max_entries": 2}))["jobs"]] == [
            high,
            low,
        ]
        counts = await world.client.rpc("job-manager.alloc-query")
        assert counts == {"queue_length": 0, "alloc_pending": 2, "running": 0}
        assert await world.client.rpc("job-manager.getinfo") == {"max_jobid": high}

    in_broker(scenario)


def test_who_left_is_not_waited_for(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        other = broker.client()
        drain, stays = other.start("job-manager.drain"), world.client.start("job-manager.drain")
        other.disconnect("job-manager")
        await world.cancel(id)
        assert (await world.client.next(stays)).errnum == 0
        assert other.queues[drain].empty()

    in_broker(scenario)
