"""The job manager by its messages: what clients of flux-core send, and what they are answered."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import QUEUES, R, World, jobspec, pipeline_of, shown

from headrace.engine.jobs.record import Job
from headrace.formats.spec import jobid
from headrace.formats.spec.message import FLAG_STREAMING

Run = Callable[..., None]
LIFE = ["submit", "validate", "depend", "priority", "alloc", "start", "finish", "release", "free", "clean"]


async def fails(world: World, topic: str, body: Any, errnum: int, text: str, client: Any = None) -> None:
    reply = await (client or world.client).call(topic, body)
    assert (reply.errnum, reply.text) == (errnum, text)


def test_a_job_lives_from_submit_to_clean(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        tag = world.watch(id)
        await world.run(id, 768)
        assert await world.watched(tag) == LIFE
        assert dict(await world.events(id))["finish"] == {"status": 768}
        assert await world.watched(world.watch(id)) == LIFE
        assert world.freed == [id]

    in_broker(scenario)


def test_start_requests_carry_jobspec_and_r(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(jobspec("hostname"))
        await world.alloc(id)
        body = world.starts[id].obj
        assert body["jobspec"] == jobspec("hostname")
        assert (body["R"], body["userid"], body["reattach"]) == (R, world.client.userid, False)
        world.end(id)

    in_broker(scenario)


def test_a_started_queue_without_scheduler_is_told_as_stopped(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        status = await world.client.rpc("job-manager.queue-status", {})
        assert status == {"enable": True, "start": False, "stop_reason": "Scheduler is offline"}
        await world.begin()
        assert await world.client.rpc("job-manager.queue-status", {}) == {"enable": True, "start": True}

    in_broker(scenario)


def test_queues_are_listed_switched_and_told(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        rpc = world.client.rpc
        assert await rpc("job-manager.queue-list") == {"queues": ["batch", "debug"]}
        assert await rpc("job-manager.queue-status", {"name": "batch"}) == {"enable": True, "start": False}
        id = await world.job()
        assert await rpc("job-manager.alloc-query") == {"queue_length": 0, "alloc_pending": 0, "running": 0}
        await rpc("job-manager.queue-start", {"start": True, "all": True})
        await world.until(lambda: id in world.allocs)
        await rpc("job-manager.queue-start", {"start": False, "name": "batch", "reason": "repair", "all": False})
        status = await rpc("job-manager.queue-status", {"name": "batch"})
        assert status == {"enable": True, "start": False, "stop_reason": "repair"}
        await world.until(lambda: not world.allocs)
        await fails(
            world,
            "job-manager.queue-status",
            {"name": "nosuch"},
            errno.EINVAL,
            "'nosuch' is not a valid queue",
        )
        reply = await world.client.call("job-manager.queue-start", {"start": True, "all": False})
        assert reply.errnum == errno.EINVAL

    in_broker(scenario, QUEUES)


def test_a_disabled_queue_takes_no_jobs(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.client.rpc("job-manager.queue-enable", {"enable": False, "reason": "closing", "all": False})
        reply = await world.submit()
        assert (reply.errnum, reply.text) == (errno.EINVAL, "job submission is disabled: closing")

    in_broker(scenario)


def test_drain_and_idle_wait_for_the_right_thing(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        assert await world.client.rpc("job-manager.idle") == {"pending": 0}
        held = await world.job(urgency=0)
        id = await world.job()
        await world.alloc(id)
        idle, drain = world.client.start("job-manager.idle"), world.client.start("job-manager.drain")
        world.end(id)
        assert (await world.client.next(idle)).obj == {"pending": 1}
        await world.cancel(held)
        reply = await world.client.next(drain)
        assert (reply.errnum, reply.has_payload) == (0, False)

    in_broker(scenario)


def test_purge_counts_and_removes(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        purged: list[Any] = []
        world.ctx.subscribe("job-purge-inactive", lambda msg: purged.append(msg.obj["jobs"]))
        ids = [await world.job() for _ in range(3)]
        for id in ids:
            await world.alloc(id)
            world.end(id)
        await world.client.rpc("job-manager.drain")
        body = {"age_limit": -1.0, "num_limit": 1, "batch": 50, "force": False}
        assert await world.client.rpc("job-manager.purge", body) == {"count": 2}
        for batch in (0, 1001):
            reply = await world.client.call("job-manager.purge", {**body, "batch": batch})
            assert (reply.errnum, reply.text) == (errno.EINVAL, "batch must be from 1 to 1000")
        assert await world.client.rpc("job-manager.purge", {**body, "force": True}) == {"count": 2}
        await world.until(lambda: purged == [ids[:2]])
        reply = await world.client.call("job-info.lookup", {"id": ids[0], "keys": ["eventlog"], "flags": 0})
        assert reply.errnum == errno.ENOENT
        stats = await world.client.rpc("job-manager.stats-get")
        assert (stats["active_jobs"], stats["inactive_jobs"], stats["max_jobid"]) == (0, 1, ids[2])
        assert set(stats) == {"journal", "active_jobs", "inactive_jobs", "max_jobid", "housekeeping"}

    in_broker(scenario)


def test_a_time_limit_ends_a_job(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        seen: list[Any] = []
        world.ctx.subscribe("job-exception", lambda msg: seen.append(msg.obj["type"]))
        await world.alloc(id, expiration=broker.contexts["job-manager"].now() + 0.05)
        world.say(id, "start")
        await world.until(lambda: seen == ["timeout"])
        world.end(id, 14)

    in_broker(scenario)


def test_the_events_journal_tells_the_past_and_the_present(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        done = await world.job()
        await world.run(done)
        now = await world.job()
        tag = world.client.start("job-manager.events-journal", {"full": True}, None, FLAG_STREAMING)
        past = [(await world.client.next(tag)).obj for _ in range(3)]
        assert [body["id"] for body in past] == [done, now, -1]
        assert [event["name"] for event in past[0]["events"]] == LIFE
        assert (past[0]["jobspec"]["tasks"], past[0]["R"]) == (jobspec()["tasks"], R)
        assert past[2]["events"] == []
        await world.alloc(now)
        body = (await world.client.next(tag)).obj
        assert ([event["name"] for event in body["events"]], body["R"]) == (["annotations", "alloc"], R)
        world.end(now)

    in_broker(scenario)


def test_the_events_journal_has_finished_jobs_by_their_end_also_after_a_restart(in_broker: Run, tmp_path: Path) -> None:
    ids: list[int] = []

    async def first(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids.extend([await world.job(), await world.job()])
        for id in ids:
            await world.alloc(id)
        tag = world.client.start("job-manager.events-journal", {"full": False}, None, FLAG_STREAMING)
        # In one turn the first job starts, the second ends, the first ends.
        world.say(ids[0], "start")
        world.end(ids[1])
        world.end(ids[0])
        told: list[int] = []
        while len(told) < 2:
            body = (await world.client.next(tag)).obj
            told += [body["id"] for event in body["events"] if event["name"] == "clean"]
        assert told == [ids[1], ids[0]]

    async def second(broker: Any) -> None:
        assert [id for id, _ in await World(broker).all_events()] == [ids[1], ids[0]]

    in_broker(first, statedir=str(tmp_path))
    in_broker(second, statedir=str(tmp_path))


def test_the_store_is_looked_up_by_path(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.alloc(id)
        world.log(id, "guest.exec.eventlog", [1.5, "init", None])
        world.end(id)
        await world.client.rpc("job-manager.drain")
        path = jobid.encode(id, "dothex")

        async def look(path: str) -> Any:
            return await world.client.rpc("job-store.lookup", {"path": path})

        parts = path.split(".")
        assert await look("") == {"dir": [parts[0]]}
        assert await look(".".join(parts[:3])) == {"dir": [parts[3]]}
        assert await look(path) == {"dir": ["J", "R", "eventlog", "guest", "jobspec"]}
        assert await look(f"{path}.guest") == {"dir": ["exec"]}
        assert (await look(f"{path}.guest.exec.eventlog"))["val"] == '{"timestamp":1.5,"name":"init"}\n'
        assert json.loads((await look(f"{path}.jobspec"))["val"]) == shown()
        await fails(world, "job-store.lookup", {"path": f"{path}.nosuch"}, errno.ENOENT, "")

    in_broker(scenario)


def test_a_restart_finds_every_job(in_broker: Run, tmp_path: Path) -> None:
    ids: dict[str, int] = {}

    async def first(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids["done"] = await world.job(jobspec("done"), flags=4)
        await world.alloc(ids["done"])
        world.log(ids["done"], "guest.output", [1.0, "data", {"data": "hi\n"}])
        world.end(ids["done"], 256)
        await world.until(lambda: ids["done"] in world.freed)
        ids["ran"] = await world.job()
        await world.alloc(ids["ran"])
        world.say(ids["ran"], "start")
        ids["held"] = await world.job(urgency=0)
        await world.client.rpc("job-manager.queue-start", {"start": False, "all": True})

    async def second(broker: Any) -> None:
        world = World(broker)
        rpc = world.client.rpc
        assert [name for name, _ in await world.events(ids["done"])][-1] == "clean"
        found = await rpc("job-info.lookup", {"id": ids["done"], "keys": ["guest.output", "jobspec"], "flags": 1})
        assert "hi" in found["guest.output"] and found["jobspec"] == shown("done")
        text = "task(s) exited with exit code 1"
        assert await rpc("job-manager.wait", {"id": -1}) == {"id": ids["done"], "success": False, "errstr": text}
        assert [name for name, _ in await world.events(ids["ran"])][-4:] == [
            "flux-restart",
            "exception",
            "free",
            "clean",
        ]
        assert [name for name, _ in await world.events(ids["held"])][-2:] == ["flux-restart", "priority"]
        assert await rpc("job-manager.queue-status", {}) == {"enable": True, "start": False}
        assert await world.job(urgency=0) > max(ids.values())

    in_broker(first, statedir=str(tmp_path))
    in_broker(second, statedir=str(tmp_path))


def test_a_checkpoint_and_what_came_after_it_make_the_whole(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.modules.job_manager.pipeline._CHECKPOINT_AT", 4000)
    expected: dict[int, list[str]] = {}

    async def first(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        for number in range(30):
            id = await world.job(jobspec("x" * number), urgency=0 if number % 5 == 4 else 16)
            if number % 5 != 4:
                await world.alloc(id)
                world.end(id)
                await world.until(lambda id=id: id in world.freed)  # type: ignore[misc]
            if number == 20:
                await world.client.rpc(
                    "job-manager.purge", {"age_limit": -1.0, "num_limit": 10, "batch": 50, "force": True}
                )
        for entry in await world.all_events():
            expected[entry[0]] = entry[1]

    async def second(broker: Any) -> None:
        world = World(broker)
        found = dict(await world.all_events())
        assert set(found) == set(expected)
        assert all(events[: len(expected[id])] == expected[id] for id, events in found.items())
        assert min(path.name for path in (tmp_path / "jobs").glob("journal.0*")) > "journal.00000000"

    in_broker(first, statedir=str(tmp_path))
    in_broker(second, statedir=str(tmp_path))
    assert len(expected) == 23


def test_a_begin_time_that_comes_while_the_module_is_away_is_met_at_its_return(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ctx, begin = world.manager, world.manager.now() + 10_000
        id = await world.job(jobspec(dependencies=[{"scheme": "begin-time", "value": str(begin)}]))
        monkeypatch.setattr(ctx, "suspended", object())
        pipeline = pipeline_of(world)
        manager = pipeline.release.__self__
        manager._timer.cancel()
        manager._expire()
        assert id not in world.asked
        monkeypatch.setattr(ctx, "now", lambda: begin + 1)
        monkeypatch.setattr(ctx, "suspended", None)
        assert ctx.resumption is not None
        ctx.resumption.resume([])
        await world.until(lambda: id in world.allocs)
        await world.cancel(id)

    in_broker(scenario)


def test_a_job_that_is_queued_again_leaves_the_instance_idle(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(jobspec(requeue=True))
        await world.alloc(id)
        await world.client.rpc("job-manager.queue-start", {"start": False, "all": True})
        idle = world.client.start("job-manager.idle")
        world.say(id, "finish", status=9, requeue=True)
        world.say(id, "release", ranks="all", final=True, requeue=True)
        assert (await world.client.next(idle)).obj == {"pending": 1}
        await world.cancel(id)

    in_broker(scenario)


def test_an_error_in_one_job_keeps_back_nothing_of_the_others(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job() for _ in range(3)]
        for id in ids:
            await world.alloc(id)
        store = pipeline_of(world).store
        finish = store.finish

        def fail_once(job: Job) -> None:
            if job.id == ids[0]:
                raise ValueError(job.id)
            finish(job)

        monkeypatch.setattr(store, "finish", fail_once)
        for id in ids:
            world.end(id)
        assert await world.client.rpc("job-manager.idle") == {"pending": 0}
        assert list(store.places) == ids[1:]
        assert any(f"ValueError: {ids[0]}" in line for line in broker.logged)
        broker.logged.clear()

    in_broker(scenario)
