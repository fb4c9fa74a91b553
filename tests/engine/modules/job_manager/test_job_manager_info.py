"""Lookups and watches of a job's data (RFC 41), while it runs and after."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import R, World

from headrace.engine.modules.job_manager import store
from headrace.formats.spec import jobid

Run = Callable[..., None]
OUTPUT = "guest.output"


def test_r_is_there_once_it_is_allocated(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        body = {"id": id, "keys": ["R"], "flags": 0}
        assert (await world.client.call("job-info.lookup", body)).errnum == errno.ENOENT
        await world.alloc(id)
        assert json.loads((await world.client.rpc("job-info.lookup", body))["R"]) == R
        assert (await world.client.rpc("job-info.lookup", {**body, "flags": 1})) == {"id": id, "R": R}
        world.end(id)

    in_broker(scenario)


def test_what_is_not_there_is_enoent(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        for job, key, text in (
            (1, "eventlog", "invalid job id"),
            (id, "nosuch", "nosuch: key not found"),
        ):
            reply = await world.client.call("job-info.lookup", {"id": job, "keys": ["jobspec", key], "flags": 0})
            assert (reply.errnum, reply.text) == (errno.ENOENT, text)
        for job, path in ((1, "eventlog"), (id, "guest.nosuch")):
            reply = await world.client.next(world.watch(job, path))
            assert reply.errnum == errno.ENOENT

    in_broker(scenario)


def test_the_logs_of_a_job_that_never_started_are_complete_and_empty(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        started = await world.job()
        await world.run(started)
        refused = await world.job()
        await world.cancel(refused)
        for id in (started, refused):
            assert (await world.watched(world.watch(id)))[-1] == "clean"
        for path in ("guest.exec.eventlog", "guest.output", "nosuch"):
            assert (await world.client.next(world.watch(refused, path))).errnum == errno.ENODATA
        assert (await world.client.next(world.watch(started, "nosuch"))).errnum == errno.ENOENT

    in_broker(scenario)


def test_a_log_that_is_too_long_for_one_answer_is_refused_and_can_be_watched(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_TEXT", 2 << 20)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.alloc(id)
        body = {"id": id, "keys": [OUTPUT], "flags": 0}
        for number in range(3):
            world.log(id, OUTPUT, [float(number), "data", {"data": "x" * (1 << 20)}])
            await world.client.rpc("job-manager.stats-get")
            reply = await world.client.call("job-info.lookup", body)
            assert reply.errnum == (errno.EFBIG if number else 0)
        assert reply.text == "guest.output has 3 MiB, more than one answer may (2 MiB): watch it instead"
        path = f"{jobid.encode(id, 'dothex')}.{OUTPUT}"
        assert (await world.client.call("job-store.lookup", {"path": path})).errnum == errno.EFBIG
        watch = world.watch(id, OUTPUT)
        for _ in range(3):
            assert json.loads((await world.client.next(watch)).obj["event"])["name"] == "data"
        world.end(id)

    in_broker(scenario)


def test_a_guest_log_is_followed_until_the_job_is_finished(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        early = world.watch(id, OUTPUT)
        events = world.watch(id, "guest.exec.eventlog")
        await world.alloc(id)
        world.log(id, OUTPUT, [1.0, "header", {}], [2.0, "data", {"data": "é"}])
        world.log(id, "guest.exec.eventlog", [1.0, "init", None], [2.0, "done", None])
        assert await world.watched(events) == ["init", "done"]
        late = world.watch(id, OUTPUT)
        assert json.loads((await world.client.next(late)).obj["event"])["name"] == "header"
        world.log(id, OUTPUT, [3.0, "log", {}])
        world.end(id)
        assert await world.watched(early) == ["header", "data", "log"]
        assert await world.watched(late) == ["data", "log"]
        await world.client.rpc("job-manager.drain")
        assert await world.watched(world.watch(id, OUTPUT)) == ["header", "data", "log"]

    in_broker(scenario)


def test_a_job_that_never_runs_ends_the_watch_of_its_output(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        tag = world.watch(id, OUTPUT)
        await world.cancel(id)
        assert await world.watched(tag) == []

    in_broker(scenario)


def test_long_output_goes_through_a_file_and_comes_back_whole(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.alloc(id)
        for number in range(400):
            world.log(id, OUTPUT, [float(number + 1), "data", {"data": "x" * 1000}])
        await world.client.rpc("job-manager.getinfo")
        assert list(tmp_path.glob("output-*/*"))
        tag = world.watch(id, OUTPUT)
        world.end(id)
        assert await world.watched(tag) == ["data"] * 400
        await world.client.rpc("job-manager.drain")
        assert await world.watched(world.watch(id, OUTPUT)) == ["data"] * 400
        body = {"age_limit": -1.0, "num_limit": 0, "batch": 50, "force": True}
        await world.client.rpc("job-manager.purge", body)
        await world.until(lambda: not list(tmp_path.glob("output-*/*")))

    in_broker(scenario, rundir=str(tmp_path))


@pytest.mark.parametrize(("cut", "error"), [(False, errno.ENOENT), (True, errno.EIO)])
def test_output_that_cannot_be_read_ends_its_own_stream_alone(
    in_broker: Run, tmp_path: Path, cut: bool, error: int
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(), await world.job()]
        for id in ids:
            await world.alloc(id)
        for number in range(400):
            world.log(ids[0], OUTPUT, [float(number + 1), "data", {"data": "x" * 1000}])
        await world.client.rpc("job-manager.getinfo")
        (path,) = tmp_path.glob("output-*/*")
        if cut:
            # In the middle of a line.
            os.truncate(path, 500)
        else:
            path.unlink()
        lost, main, other = (world.watch(ids[0], OUTPUT), world.watch(ids[0]), world.watch(ids[1], OUTPUT))
        for id in ids:
            world.end(id)
        assert (await world.client.next(lost)).errnum == error
        assert (await world.watched(main))[-1] == "clean"
        assert await world.watched(other) == []
        await world.client.rpc("job-manager.drain")

    in_broker(scenario, rundir=str(tmp_path))


def test_a_slow_reader_gets_a_portion_at_a_time(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        asked: list[Any] = []
        tree = broker.context("overlay")
        tree.service("overlay", {"drained": asked.append})
        id = await world.job()
        await world.alloc(id)
        for number in range(4000):
            world.log(id, OUTPUT, [float(number + 1), "data", {"data": "x" * 1000}])
        tag = world.watch(id, OUTPUT)
        await world.until(lambda: asked)
        await world.client.rpc("job-manager.getinfo")
        sent = world.client.queues[tag].qsize()
        assert 1000 < sent < 1500
        assert asked[0].obj == {"route": [world.client.uuid]}
        world.end(id)
        await world.client.rpc("job-manager.getinfo")
        assert world.client.queues[tag].qsize() == sent
        while len(asked) < 3:
            tree.respond(asked[-1])
            count = len(asked)
            await world.until(lambda count=count: len(asked) > count)
        tree.respond(asked[-1])
        assert await world.watched(tag) == ["data"] * 4000

    in_broker(scenario, rundir=str(tmp_path))


def test_a_canceled_watch_ends_and_a_disconnected_one_is_forgotten(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        tag = world.watch(id)
        assert (await world.client.next(tag)).errnum == 0
        world.client.start("job-info.eventlog-watch-cancel", {"matchtag": tag})
        assert (await world.watched(tag))[-1] == "priority"
        world.watch(id)
        world.watch(id, OUTPUT)
        world.client.disconnect("job-info")
        await world.client.rpc("job-manager.getinfo")
        manager = broker.contexts["job-manager"]
        assert len(manager.streams("eventlog-watch")) == 0

    in_broker(scenario)


def test_updates_can_be_looked_up(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        await world.client.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 5.0}})
        found = await world.client.rpc("job-info.update-lookup", {"id": id, "key": "jobspec", "flags": 0})
        assert found["jobspec"]["attributes"]["system"]["duration"] == 5.0
        reply = await world.client.call("job-info.update-lookup", {"id": id, "key": "eventlog", "flags": 0})
        assert reply.errnum == errno.EINVAL

    in_broker(scenario)
