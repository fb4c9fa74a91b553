"""The job manager on a disk that fails at any one call of its journal, for once or for good, and is killed then.

Every call of a short life is tried. Whatever fails: ids that were printed are there after a restart, what was told of a
job is still so, none runs twice, and once the disk works everything comes to its end. So it is with what was asked for
and answered about jobs that are there.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import R, World, pipeline_of

from headrace.engine.broker.state import journal
from headrace.engine.modules.job_manager import pipeline as jobs_pipeline

Run = Callable[..., None]

WAITABLE = 4
JOBS = 3
# Seconds that things have after the first fault where that does not end, and where it does.
SHORT, LONG = 0.05, 5.0


class Disk:
    """`os` as the journal sees it: from call `first` on, `count` calls fail."""

    CALLS = ("pwrite", "fdatasync", "fsync", "ftruncate", "posix_fallocate")

    def __init__(self) -> None:
        self.calls = 0
        self.first, self.count = 1 << 30, 0
        self.error = 0
        self.met_at = 0.0

    def fail(self, first: int, count: int, error: int) -> None:
        self.calls, self.first, self.count, self.error, self.met_at = 0, first, count, error, 0.0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CALLS:
            return real

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.first < self.calls <= self.first + self.count:
                self.met_at = self.met_at or time.monotonic()
                if name == "pwrite":
                    # Some of it is written all the same.
                    fd, data, place = args
                    real(fd, bytes(data[: len(data) // 2]), place)
                raise OSError(self.error, os.strerror(self.error))
            return real(*args)

        return call


class Life:
    """What the world outside has seen of one life of the manager."""

    def __init__(self) -> None:
        self.printed: list[int] = []
        self.started: list[int] = []
        self.events: dict[int, list[Any]] = {}
        self.waited: dict[int, bool] = {}
        self.refused = 0


async def live(world: World, life: Life, jobs: int, disk: Disk, patience: float) -> None:
    """Submit jobs, play scheduler and exec service, watch and wait; until all ended or the time is over."""
    begin = time.monotonic()
    watched: dict[int, int] = {}

    async def one(flags: int) -> None:
        while True:
            reply = await world.submit(flags=flags)
            if not reply.errnum:
                break
            assert reply.errnum in (errno.ENOSPC, errno.EIO)
            life.refused += 1
            await asyncio.sleep(0.01)
        id = reply.obj["id"]
        life.printed.append(id)
        life.events[id] = []
        watched[id] = world.watch(id)
        if flags & WAITABLE:
            body = await world.client.rpc("job-manager.wait", {"id": id})
            life.waited[id] = body["success"]

    tasks = [asyncio.ensure_future(one(WAITABLE if number % 2 == 0 else 0)) for number in range(jobs)]
    checkpoint: asyncio.Future[None] | None = None
    while time.monotonic() < (disk.met_at + patience if disk.met_at else begin + LONG):
        for id, msg in list(world.allocs.items()):
            del world.allocs[id]
            world.ctx.respond(msg, {"id": id, "type": 0, "annotations": {}, "R": R})
        for id in [id for id in world.starts if id not in life.started]:
            life.started.append(id)
            world.say(id, "start")
            world.log(id, "guest.output", [1.0, "header", {}], [1.0, "data", {"data": "x" * 100}])
            world.end(id, 256 if id % 2 else 0)
            if checkpoint is None:
                checkpoint = asyncio.ensure_future(pipeline_of(world).checkpoint())
        for id, tag in watched.items():
            queue = world.client.queues[tag]
            while not queue.empty():
                reply = queue.get_nowait()
                if not reply.errnum:
                    life.events[id].append(json.loads(reply.obj["event"]))
        over = sum(bool(events) and events[-1]["name"] == "clean" for events in life.events.values())
        if over == jobs and all(task.done() for task in tasks) and checkpoint is not None and checkpoint.done():
            break
        await asyncio.sleep(0.001)
    if checkpoint is not None:
        # Its thread would change files while they are copied.
        await checkpoint
    for task in tasks:
        if task.done():
            task.result()
        else:
            task.cancel()


async def eventlog(world: World, id: int) -> list[Any]:
    body = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0})
    return [json.loads(line) for line in body["eventlog"].splitlines()]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    faulty = Disk()
    monkeypatch.setattr(journal, "os", faulty)
    monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.005)
    return faulty


def killed_and_restarted(
    in_broker: Run, disk: Disk, folder: Path, fault: tuple[int, int, int], patience: float, held: bool = True
) -> bool:
    """One life with a fault, and one after it with none; whether the fault was met.

    `held` says that news waited for the disk.
    """
    before = Life()
    state, left = folder / "state", folder / "left"
    state.mkdir(parents=True)
    met = False

    async def first(broker: Any) -> None:
        nonlocal met
        world = World(broker)
        await world.begin()
        disk.fail(*fault)
        await live(world, before, JOBS, disk, patience)
        met = disk.met_at > 0
        shutil.copytree(state, left)
        # To let it end in peace; what it does now nobody reads.
        disk.fail(0, 0, 0)

    async def second(broker: Any) -> None:
        world = World(broker)
        known = dict(await world.all_events())
        assert set(before.printed) <= set(known)
        for id, events in before.events.items() if held else ():
            assert (await eventlog(world, id))[: len(events)] == events
            if events and events[-1]["name"] == "clean":
                assert known[id][-1] == "clean"
        for id, success in before.waited.items() if held else ():
            finish = next(event for event in await eventlog(world, id) if event["name"] == "finish")
            assert (finish["context"]["status"] == 0) == success
        await world.begin()
        after = Life()
        await live(world, after, 1, disk, LONG)
        assert not set(before.started) & set(after.started), "a job ran twice"
        ended = dict(await world.all_events())
        assert {names[-1] for names in ended.values()} == {"clean"}
        if before.waited and held:
            reply = await world.client.call("job-manager.wait", {"id": next(iter(before.waited))})
            assert reply.errnum == errno.ECHILD, "waited for twice"

    in_broker(first, statedir=str(state))
    in_broker(second, statedir=str(left))
    if patience == LONG or not met:
        assert len(before.printed) == JOBS and len(before.started) == JOBS
    return met


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_once_holds_things_up_and_loses_nothing(
    error: int, in_broker: Run, disk: Disk, tmp_path: Path
) -> None:
    call = 0
    while killed_and_restarted(in_broker, disk, tmp_path / str(call), (call, 1, error), LONG):
        call += 1
    assert call > 5


def test_a_disk_that_fails_for_long_starts_no_job_twice_and_takes_back_no_id(
    in_broker: Run, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told of a job after such a time may be forgotten."""
    monkeypatch.setattr(jobs_pipeline, "_HOLD", 0.0)
    call = 0
    while killed_and_restarted(in_broker, disk, tmp_path / str(call), (call, 1 << 30, errno.EIO), SHORT, False):
        call += 1
    assert call > 5


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_for_good_takes_back_nothing_that_was_told(
    error: int, in_broker: Run, disk: Disk, tmp_path: Path
) -> None:
    call = 0
    while killed_and_restarted(in_broker, disk, tmp_path / str(call), (call, 1 << 30, error), SHORT):
        call += 1
    assert call > 5


# What is asked for in one life, one after the other: (topic, job, the rest of the request).
ORDERS: list[tuple[str, int, dict[str, Any]]] = [
    ("urgency", 0, {"urgency": 5}),
    ("memo", 0, {"volatile": False, "memo": {"note": "kept"}}),
    ("urgency", 1, {"urgency": 0}),
    ("wait", 3, {}),
    ("raise", 0, {"type": "odd", "severity": 3, "note": "seen"}),
    ("update", 1, {"updates": {"attributes.system.duration": 60.0}}),
    ("raise", 2, {"type": "cancel", "severity": 0}),
    ("purge-id", 4, {"force": True}),
    ("queue-enable", 0, {"all": True, "enable": False, "reason": "closed"}),
    ("queue-start", 0, {"all": True, "start": False, "reason": "stopped"}),
]


class Orders:
    """Three jobs that wait and two that are over; how many of ORDERS were asked for, and how many answered."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.asked = self.answered = 0

    async def give(self, world: World) -> None:
        for topic, job, rest in ORDERS:
            id = self.jobs[job]
            body = {"jobs": [id], **rest} if topic == "purge-id" else {"id": id, **rest}
            self.asked += 1
            reply = await world.client.call(f"job-manager.{topic}", body)
            assert not reply.errnum, (topic, reply.text)
            self.answered += 1

    async def check(self, world: World) -> None:
        """Nothing that was answered is forgotten, nothing that nobody asked for was done."""
        assert (await world.client.rpc("job-manager.getinfo"))["max_jobid"] == max(self.jobs)
        for count, order in enumerate(ORDERS):
            if not self.answered <= count < self.asked:
                assert await self._done(world, *order) == (count < self.answered), order

    async def _done(self, world: World, topic: str, job: int, rest: dict[str, Any]) -> bool:
        id = self.jobs[job]
        if topic == "wait":
            return bool((await world.client.call("job-manager.wait", {"id": id})).errnum)
        if topic == "purge-id":
            return id not in dict(await world.all_events())
        if topic in ("queue-enable", "queue-start"):
            return rest["reason"] in (await world.client.rpc("job-manager.queue-status", {})).values()
        if topic in ("raise", "update"):
            expected = rest.get("updates", rest).items()
            return any(expected <= (event.get("context") or {}).items() for event in await eventlog(world, id))
        found = next(
            job for job in (await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"] if job["id"] == id
        )
        if topic == "urgency":
            return bool(found["urgency"] == found["priority"] == rest["urgency"])
        return bool(found.get("annotations", {}).get("user") == rest["memo"])


@pytest.mark.parametrize("saved_after", range(0, len(ORDERS), 4))
def test_what_was_answered_before_the_disk_failed_for_good_is_so_after_a_restart(
    saved_after: int, in_broker: Run, disk: Disk, tmp_path: Path
) -> None:
    """The state is saved while orders are given, beginning when `saved_after` of them were answered."""

    def met_at(call: int) -> bool:
        orders = told = Orders()
        met = False
        state, left = tmp_path / str(call) / "state", tmp_path / str(call) / "left"
        state.mkdir(parents=True)

        async def first(broker: Any) -> None:
            nonlocal told, met
            world = World(broker)
            await world.begin()
            orders.jobs = [await world.job(flags=WAITABLE) for _ in range(5)]
            pipeline = pipeline_of(world)
            for id in orders.jobs[3:]:
                await world.alloc(id)
                world.end(id)
                await world.until(lambda id=id: id in pipeline.store.places)
            await pipeline.checkpoint()
            disk.fail(call, 1 << 30, errno.EIO)
            giving = asyncio.ensure_future(orders.give(world))
            await world.until(lambda: orders.answered >= saved_after or disk.met_at > 0)
            await pipeline.checkpoint()
            await world.until(lambda: giving.done() or disk.met_at > 0)
            if disk.met_at:
                await asyncio.sleep(0.02)
            shutil.copytree(state, left)
            told, met = copy.copy(orders), disk.met_at > 0
            disk.fail(0, 0, 0)
            await giving

        async def second(broker: Any) -> None:
            await told.check(World(broker))

        in_broker(first, statedir=str(state))
        in_broker(second, statedir=str(left))
        assert met or told.answered == len(ORDERS)
        return met

    call = 0
    while met_at(call):
        call += 1
    assert call > len(ORDERS)
