"""The job manager by its messages: what clients of flux-core send, and what they are answered."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import R, World, jobspec, shown

from headrace.spec import jobid
from headrace.spec.message import FLAG_STREAMING

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


def test_requests_about_jobs_that_are_not_there(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.run(id)
        for topic, body in (
            ("raise", {"type": "cancel", "severity": 0}),
            ("kill", {"signum": 15}),
            ("urgency", {"urgency": 3}),
            ("memo", {"volatile": False, "memo": {"foo": "bar"}}),
            ("update", {"updates": {"attributes.system.duration": 1.0}}),
        ):
            await fails(world, f"job-manager.{topic}", {"id": id, **body}, errno.ENOENT, "job is inactive")
            await fails(world, f"job-manager.{topic}", {"id": 1, **body}, errno.ENOENT, "unknown job id")

    in_broker(scenario)


def test_raise_posts_the_exception_and_publishes_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        seen: list[Any] = []
        world.ctx.subscribe("job-exception", lambda msg: seen.append(msg.obj))
        id = await world.job()
        await world.alloc(id)
        await world.client.rpc("job-manager.raise", {"id": id, "type": "test", "severity": 1, "note": "why"})
        userid = world.client.userid
        assert (await world.events(id))[-1] == (
            "exception",
            {"type": "test", "severity": 1, "note": "why", "userid": userid},
        )
        assert seen == [{"id": id, "type": "test", "severity": 1}]
        world.end(id)

    in_broker(scenario)


def test_guests_reach_their_own_jobs_only(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        guest = broker.client(guest=True)
        reply = await guest.call("job-manager.raise", {"id": id, "type": "cancel", "severity": 0})
        assert (reply.errnum, reply.text) == (errno.EPERM, "guests can only raise exceptions on their own jobs")
        reply = await guest.call("job-manager.wait", {"id": -1})
        assert reply.errnum == errno.EPERM
        reply = await guest.call("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": 0})
        assert reply.errnum == errno.EPERM
        reply = await guest.call("job-manager.submit", {"jobs": []})
        assert reply.errnum == errno.EPERM

    in_broker(scenario)


def test_urgency_answers_the_old_one_and_checks_the_new(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        assert await world.client.rpc("job-manager.urgency", {"id": id, "urgency": 20}) == {"old_urgency": 0}
        text = "urgency value is out of range"
        await fails(world, "job-manager.urgency", {"id": id, "urgency": 32}, errno.EINVAL, text)
        await world.alloc(id)
        text = "urgency cannot be changed once resources are allocated"
        await fails(world, "job-manager.urgency", {"id": id, "urgency": 3}, errno.EINVAL, text)
        world.end(id)

    in_broker(scenario)


def test_signals_go_to_the_exec_service(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await fails(world, "job-manager.kill", {"id": id, "signum": 15}, errno.EINVAL, "job is not running")
        await world.alloc(id)
        await world.client.rpc("job-manager.kill", {"id": id, "signum": 15})
        body = {"dry_run": False, "userid": -1, "signum": 10}
        assert await world.client.rpc("job-manager.killall", body) == {"count": 1, "errors": 0}
        await world.until(lambda: world.kills == [(id, 15), (id, 10)])
        world.end(id)

    in_broker(scenario)


def test_raiseall_counts_and_spares_on_a_dry_run(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job() for _ in range(3)]
        await world.alloc(ids[0])
        body = {"dry_run": True, "userid": -1, "states": 8, "type": "cancel", "severity": 0}
        assert await world.client.rpc("job-manager.raiseall", body) == {"count": 2, "errors": 0}
        assert len((await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]) == 3
        await world.client.rpc("job-manager.raiseall", {**body, "dry_run": False})
        await world.until(lambda: not world.allocs)
        world.end(ids[0])
        await world.client.rpc("job-manager.drain")

    in_broker(scenario)


def test_memo_is_an_event_unless_it_is_volatile(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        tag = world.client.start("job-manager.events-journal", {"full": False}, None, FLAG_STREAMING)
        while (await world.client.next(tag)).obj["events"]:
            pass
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": False, "memo": {"uri": "x"}})
        (event,) = (await world.client.next(tag)).obj["events"]
        assert (event["name"], event["context"]) == ("memo", {"uri": "x"})
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": True, "memo": {"p": 1}})
        (event,) = (await world.client.next(tag)).obj["events"]
        assert event["context"] == {"annotations": {"user": {"uri": "x", "p": 1}}}
        assert [name for name, _ in await world.events(id)][-1] == "memo"

    in_broker(scenario)


def test_a_new_listener_hears_what_the_scheduler_says_of_waiting_jobs(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": True, "memo": {"p": 1}})
        tag = world.client.start("job-manager.events-journal", {"full": True}, None, FLAG_STREAMING)
        heard = [(await world.client.next(tag)).obj["events"][-1] for _ in range(2)]
        assert heard[1]["context"] == {"annotations": {"user": {"p": 1}}}

    in_broker(scenario)


def test_update_of_a_pending_and_of_a_running_job(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        await world.client.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 1200.0}})
        assert (await world.events(id))[-2:] == [
            ("jobspec-update", {"attributes.system.duration": 1200.0}),
            ("priority", {"priority": 0}),
        ]
        for flags, duration in ((0, 0), (2, 1200.0)):
            body = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": flags})
            assert json.loads(body["jobspec"])["attributes"]["system"]["duration"] == duration
        await fails(
            world,
            "job-manager.update",
            {"id": id, "updates": {"attributes.system.job.name": "x"}},
            errno.EINVAL,
            "update of attributes.system.job.name not supported",
        )
        await world.client.rpc("job-manager.urgency", {"id": id, "urgency": 16})
        await world.alloc(id, expiration=broker.contexts["job-manager"].now() + 1200)
        world.say(id, "start")
        tag = world.client.start("job-info.update-watch", {"id": id, "key": "R", "flags": 0}, None, FLAG_STREAMING)
        first = (await world.client.next(tag)).obj["R"]["execution"]["expiration"]
        await world.client.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 60.0}})
        second = (await world.client.next(tag)).obj["R"]["execution"]["expiration"]
        assert 1130 < first - second < 1141
        await world.until(lambda: world.expirations == [(id, second)])
        world.end(id)
        await world.client.rpc("job-manager.drain")
        assert (await world.client.next(tag)).errnum == errno.ENODATA

    in_broker(scenario)


CONFIG = {
    "policy": {"jobspec": {"defaults": {"system": {"queue": "batch"}}}},
    "queues": {"batch": {"requires": ["batch"]}, "debug": {"requires": ["debug"]}},
}


def test_a_job_moves_to_another_queue_if_it_fits_there(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        world.infeasible = "unsatisfiable request: need 2 exclusive node(s), only 1 eligible"
        body = {"id": id, "updates": {"attributes.system.queue": "debug"}}
        await fails(world, "job-manager.update", body, errno.EINVAL, world.infeasible)
        world.infeasible = ""
        await world.client.rpc("job-manager.update", body)
        found = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": 3})
        system = found["jobspec"]["attributes"]["system"]
        assert (system["queue"], system["constraints"]) == ("debug", {"properties": ["debug"]})

    in_broker(scenario, CONFIG)


def test_another_queue_and_a_running_job_keep_their_limits(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        updates = {"attributes.system.queue": "short", "attributes.system.duration": 120.0}
        text = "requested duration (2m) exceeds policy limit of 1m for queue short"
        await fails(world, "job-manager.update", {"id": id, "updates": updates}, errno.EINVAL, text)
        updates["attributes.system.duration"] = 60.0
        await world.client.rpc("job-manager.queue-start", {"all": True, "start": True, "nocheckpoint": True})
        await world.client.rpc("job-manager.update", {"id": id, "updates": updates})
        await world.alloc(id)
        text = "update of queue for running job not supported"
        await fails(world, "job-manager.update", {"id": id, "updates": updates}, errno.EINVAL, text)
        world.end(id)

    short = {"policy": {"limits": {"duration": "1m"}}}
    in_broker(scenario, {**CONFIG, "queues": {**CONFIG["queues"], "short": short}})


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

    in_broker(scenario, CONFIG)


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
        await world.client.rpc("job-manager.raise", {"id": held, "type": "cancel", "severity": 0})
        reply = await world.client.next(drain)
        assert (reply.errnum, reply.has_payload) == (0, False)

    in_broker(scenario)


def test_waitable_jobs_are_waited_for_once(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await fails(world, "job-manager.wait", {"id": -1}, errno.ECHILD, "there are no more waitable jobs")
        ids = [await world.job(flags=4) for _ in range(2)]
        first, other = (
            world.client.start("job-manager.wait", {"id": ids[0]}),
            world.client.start("job-manager.wait", {"id": -1}),
        )
        for id, status in zip(ids, (256, 0)):
            await world.alloc(id)
            world.end(id, status)
        text = "task(s) exited with exit code 1"
        assert (await world.client.next(first)).obj == {"id": ids[0], "success": False, "errstr": text}
        assert (await world.client.next(other)).obj == {"id": ids[1], "success": True, "errstr": ""}
        text = "invalid job id, or job may be inactive and not waitable"
        await fails(world, "job-manager.wait", {"id": ids[0]}, errno.ECHILD, text)

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
        assert ([event["name"] for event in body["events"]], body["R"]) == (["alloc"], R)
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
    monkeypatch.setattr("headrace.modules.jobs_pipeline._CHECKPOINT_AT", 4000)
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


def test_a_full_disk_refuses_jobs_and_keeps_those_that_run(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        ids.append(id)
        await world.alloc(id)

        def full(self: Any, batch: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("headrace.broker.journal.Journal.append", full)
            world.say(id, "start")
            await world.until(lambda: any("no job is accepted" in line for line in broker.logged))
            reply = await world.submit()
            assert (reply.errnum, reply.text) == (errno.ENOSPC, "the journal cannot be written: the disk is full")
            world.end(id)
            await world.until(lambda: id in world.freed)
        await world.until(lambda: any("jobs are accepted" in line for line in broker.logged))
        ids.append(await world.job(urgency=0))

    async def after(broker: Any) -> None:
        world = World(broker)
        assert [name for name, _ in await world.events(ids[0])] == LIFE
        assert (await world.events(ids[1]))[0][0] == "submit"

    monkeypatch.setattr("headrace.modules.jobs_pipeline._RETRY", 0.05)
    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))
