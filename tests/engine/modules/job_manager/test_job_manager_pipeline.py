"""From what was decided to the disk and the world: failing disks, order, and what is kept for the next checkpoint."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import R, World, pipeline_of

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager import pipeline as jobs_pipeline
from headrace.engine.modules.job_manager.effects import Answer
from headrace.engine.modules.job_manager.pipeline import Batch
from headrace.engine.modules.job_manager.records import JobSubmitted
from headrace.formats.spec.message import REQUEST, Message
from waiting import stays_in_loop

Run = Callable[..., None]
SYNC = "headrace.engine.broker.state.journal.Journal.sync"


def broken(_journal: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("error", "why"), [(errno.EIO, "Input/output error"), (errno.ENOSPC, "the disk is full: make room there")]
)
def test_what_a_failed_sync_leaves_in_doubt_is_written_again_and_read_once(
    error: int, why: str, in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_journal: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.02)
    expected: dict[int, list[str]] = {}

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        done = await world.job()
        await world.run(done)
        with monkeypatch.context() as patch:
            patch.setattr(SYNC, fail)
            submitted = asyncio.ensure_future(world.job(urgency=0))
            purged = asyncio.ensure_future(
                world.client.rpc("job-manager.purge-id", {"jobs": [done], "force": True}),
            )
            await world.until(lambda: any("no job is accepted" in line for line in broker.logged))
            refused = await world.submit(urgency=0)
            assert (refused.errnum, refused.text) == (error, f"the journal in {tmp_path}/jobs cannot be written: {why}")
            assert not (submitted.done() or purged.done()), "nobody hears of what is not on the disk"
            assert not any("jobs are accepted" in line for line in broker.logged)
        await asyncio.gather(submitted, purged)
        assert any("jobs are accepted" in line for line in broker.logged)
        assert pipeline_of(world)._pending == []
        await world.job(urgency=0)
        expected.update(await world.all_events())
        assert len(expected) == 2

    async def after(broker: Any) -> None:
        found = dict(await World(broker).all_events())
        assert {id: names[: len(expected[id])] for id, names in found.items()} == expected

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_idle_is_answered_when_the_end_of_the_last_job_is_kept_and_published(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.alloc(id)
        go = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(SYNC, lambda _journal: go.wait(60))
            world.end(id)
            # Nobody has been told yet that the job runs no more.
            await world.until(lambda: pipeline_of(world)._syncing)
            idle = world.client.start("job-manager.idle")
            await stays_in_loop(world.client.queues[idle].empty, 0.05)
            go.set()
            assert (await world.client.next(idle)).obj == {"pending": 0}

    in_broker(scenario, statedir=str(tmp_path))


def test_what_was_written_during_a_sync_that_fails_is_written_again_after_what_that_was_for(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        go = threading.Event()

        def slow(_journal: Any) -> None:
            go.wait(60)
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(SYNC, slow)
            first = asyncio.ensure_future(world.job(urgency=0))
            await world.until(lambda: pipeline_of(world)._syncing)
            second = asyncio.ensure_future(world.job(urgency=0))
            await world.until(lambda: bool(pipeline_of(world)._unsynced))
            go.set()
            await world.until(lambda: pipeline_of(world).failing)
            batches = pipeline_of(world)._pending
            again = [entry.id for batch in batches for entry in batch.entries if isinstance(entry, JobSubmitted)]
        monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.02)
        pipeline_of(world)._retry()
        assert again == [await first, await second]

    in_broker(scenario, statedir=str(tmp_path))


def test_a_disk_that_failed_when_there_was_nothing_to_write_is_used_again(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.02)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        with monkeypatch.context() as patch:
            patch.setattr(SYNC, broken)
            # An answer without a record.
            body = {"age_limit": -1.0, "num_limit": 1, "batch": 50, "force": False}
            first = asyncio.ensure_future(world.client.rpc("job-manager.purge", body))
            await world.until(lambda: pipeline_of(world).failing)
            assert await world.client.rpc("job-manager.purge", body) == {"count": 0}
            assert not first.done()
        assert await first == {"count": 0}
        assert not pipeline_of(world).failing
        told = [line for line in broker.logged if "the journal" in line]
        assert len(told) == 2, told
        await world.job(urgency=0)

    in_broker(scenario, statedir=str(tmp_path))


def test_a_disk_that_fails_for_long_holds_up_nothing_but_starts_and_ids(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.02)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        runs, waits, canceled = [await world.job() for _ in range(3)]
        await world.alloc(runs)
        await world.until(lambda: len(world.allocs) == 2)
        with monkeypatch.context() as patch:
            patch.setattr("headrace.engine.broker.state.journal.Journal.append", lambda _journal, _batch: broken(None))
            late = asyncio.ensure_future(world.job(urgency=0))
            await world.until(lambda: pipeline_of(world).failing)
            world.end(runs)
            for id in (waits, canceled):
                world.ctx.respond(world.allocs.pop(id), {"id": id, "type": 0, "annotations": {}, "R": R})
            assert (await world.client.call("job-manager.memo", {"id": runs, "memo": {"a": 1}})).errnum == errno.EIO
            cancel = {"id": canceled, "severity": 0, "type": "cancel"}
            request = asyncio.ensure_future(world.client.rpc("job-manager.raise", cancel))
            await stays_in_loop(lambda: not request.done())
            before = dict(await world.all_events())
            assert "finish" not in before[runs] and not request.done(), "nobody hears of what is not on the disk"
            patch.setattr(jobs_pipeline, "_HOLD", 0.0)
            await request
            await world.until(lambda: runs not in pipeline_of(world).core.active)
            await world.until(lambda: canceled not in pipeline_of(world).core.active)
            assert world.starts.keys() == {runs}
            assert not late.done(), "no id is printed that may be forgotten"
        await world.until(lambda: waits in world.starts)
        assert canceled not in world.starts
        await world.cancel(await late)
        world.end(waits)
        await world.client.rpc("job-manager.drain")

    async def after(broker: Any) -> None:
        found = dict(await World(broker).all_events())
        assert {names[-1] for names in found.values()} == {"clean"}
        assert len(found) == 4

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_an_exec_service_that_comes_while_the_disk_fails_starts_jobs_later(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_pipeline, "_RETRY", 0.02)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.ctx.rpc("job-manager.sched-ready", {"mode": "unlimited"})
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        with monkeypatch.context() as patch:
            patch.setattr("headrace.engine.broker.state.journal.Journal.append", lambda _journal, _batch: broken(None))
            world.ctx.respond(world.allocs.pop(id), {"id": id, "type": 0, "annotations": {}, "R": R})
            await world.until(lambda: pipeline_of(world).failing)
            await world.ctx.rpc("job-manager.exec-hello", {"service": "exec"})
            await stays_in_loop(lambda: world.starts == {}, 0.05)
        await world.until(lambda: id in world.starts)
        world.end(id)
        await world.client.rpc("job-manager.drain")

    in_broker(scenario, statedir=str(tmp_path))


def test_jobs_that_are_purged_before_a_checkpoint_are_not_kept_for_it(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        pipeline = pipeline_of(world)
        ids = []
        for _ in range(2):
            ids.append(await world.job())
            await world.run(ids[-1])
        assert list(pipeline._unsaved) == ids
        await world.client.rpc("job-manager.purge-id", {"jobs": ids[:1], "force": True})
        assert list(pipeline._unsaved) == ids[1:]
        await pipeline.checkpoint()
        assert (list(pipeline._unsaved), list(pipeline._purged)) == ([], [])
        await world.client.rpc("job-manager.purge-id", {"jobs": ids[1:], "force": True})

    async def after(broker: Any) -> None:
        world = World(broker)
        assert (pipeline_of(world)._unsaved, await world.all_events()) == ({}, [])

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_a_record_that_cannot_be_written_takes_no_others_with_it(in_broker: Run, tmp_path: Path) -> None:
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        pipeline = pipeline_of(world)
        ids.append(await world.job(urgency=0))
        core = pipeline.core
        core.memo(core.active[ids[0]], {"a": 10**30}, False)
        # It is in the same batch.
        ids.append(await world.job(urgency=0))
        assert any("journal: EventsPosted is not recorded: OverflowError" in line for line in broker.logged)
        del core.active[ids[0]].events[-1]

    async def after(broker: Any) -> None:
        assert [id for id, _ in await World(broker).all_events()] == ids

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_requests_that_are_refused_reserve_no_room(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        world.infeasible = "never"
        pipeline = pipeline_of(world)
        id = await world.job(urgency=0)
        note = {"a": "x" * 10_000}
        update = {"id": id, "updates": {"attributes.system.constraints": note}}
        for topic, body, error in (
            ("memo", {"id": 1, "memo": note}, errno.ENOENT),
            ("memo", {"id": id, "memo": {**note, "b": 10**30}}, errno.EINVAL),
            # It is refused only when the scheduler has been asked.
            ("update", update, errno.EINVAL),
            ("update", update, errno.EINVAL),
        ):
            payload = json.dumps(body).encode() + b"\0"
            assert (await world.client.call(f"job-manager.{topic}", None, payload)).errnum == error
            assert pipeline._promised <= len(payload)
            assert pipeline.refusal(0, 0) is None
            assert pipeline._promised == 0
        pipeline.refusal(0, 5)
        assert pipeline._promised == 5

    in_broker(scenario, statedir=str(tmp_path))


def test_a_checkpoint_that_cannot_be_made_is_made_later(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        with monkeypatch.context() as patch:
            patch.setattr("headrace.engine.broker.state.journal.Journal.checkpoint", lambda *_args: broken(None))
            await pipeline_of(world).checkpoint()
        assert any("the journal grows until it can be made" in line for line in broker.logged)
        await world.cancel(id)
        await world.client.rpc("job-manager.drain")
        await pipeline_of(world).checkpoint()
        await world.job(urgency=0)

    async def after(broker: Any) -> None:
        (ended, names), (_, waiting) = await World(broker).all_events()
        assert (names[-1], "clean" in waiting) == ("clean", False), ended

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_checkpoints_write_no_more_than_the_journal_had(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_pipeline, "_CHECKPOINT_AT", 1)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        journal = pipeline_of(world).journal
        assert journal is not None
        for _ in range(40):
            await world.job(urgency=0)
            await world.until(lambda: not pipeline_of(world)._busy())
        # Each checkpoint has all waiting jobs, so their number may grow only with the logarithm of that of the jobs.
        assert 2 <= journal.number <= 8

    in_broker(scenario, statedir=str(tmp_path))


def test_a_checkpoint_for_which_there_is_no_room_is_made_when_there_is(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_pipeline, "_CHECKPOINT_AT", 1)
    monkeypatch.setattr(jobs_pipeline, "_CHECKPOINT_AGAIN", 0.0)

    def full(_fd: int, _place: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario(broker: Any) -> None:
        world = World(broker)
        journal = pipeline_of(world).journal
        assert journal is not None
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            await world.begin()
            for _ in range(3):
                await world.run(await world.job())
            assert sum("checkpoint: " in line for line in broker.logged) == 1
            assert (journal.number, journal.load().texts) == (0, [])
        await world.run(await world.job())
        await world.until(lambda: journal.load().texts != [])
        assert journal.number > 0

    async def after(broker: Any) -> None:
        assert len(await World(broker).all_events()) == 4

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_several_batches_are_one_with_each_jobs_news_in_a_row() -> None:
    spec: dict[str, Any] = {"attributes": {}}
    first, second = Answer(Message(REQUEST), None), Answer(Message(REQUEST), {})
    one, other = Job(1, spec), Job(2, spec)
    events: list[Any] = [(float(n), f"e{n}", None) for n in range(4)]
    whole = jobs_pipeline._merged(
        [
            Batch([], [first], [(one, 0, events[:2]), (other, 0, events[:1])], []),
            Batch([], [second], [(one, 2, events[2:])], [one]),
        ]
    )
    assert whole.effects == [first, second]
    assert whole.news == [(other, 0, events[:1]), (one, 0, events)], "in the order of their last events"
    assert whole.finished == [one]


def test_after_a_restart_idle_is_answered_when_the_ends_of_jobs_that_ran_are_kept_and_published(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, left = tmp_path / "state", tmp_path / "left"
    state.mkdir()
    ids: dict[str, int] = {}

    async def first(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        for name in ("saved", "journaled"):
            ids[name] = await world.job()
            await world.alloc(ids[name])
            world.say(ids[name], "start")
            await world.until(lambda name=name: pipeline_of(world).store.active[ids[name]].shown == 6)
            if name == "saved":
                await pipeline_of(world).checkpoint()
        # One that ends: its end is told by the exec service, but its resources are not released.
        world.say(ids["saved"], "finish", status=0)
        await world.until(lambda: pipeline_of(world).store.active[ids["saved"]].shown == 7)
        shutil.copytree(state, left)
        for id in ids.values():
            world.end(id)

    async def killed(broker: Any) -> None:
        go = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(SYNC, lambda _journal: go.wait(60))
            # Neither the scheduler nor the exec service have said hello.
            world = World(broker)
            idle = world.client.start("job-manager.idle")
            await world.until(lambda: pipeline_of(world)._syncing)
            await stays_in_loop(world.client.queues[idle].empty, 0.05)
            for id in ids.values():
                assert (await world.events(id))[-1][0] in ("start", "finish")
            go.set()
            assert (await world.client.next(idle)).obj == {"pending": 0}
            for _id, names in await world.all_events():
                assert names[-1] == "clean"

    in_broker(first, statedir=str(state))
    in_broker(killed, statedir=str(left))
