"""Back from the files: what was saved at an odd moment, and what of them cannot be used."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jobs_world import World, jobspec, pipeline_of

from headrace.broker.state.journal import Journal, JournalError
from headrace.modules.job_manager import service as job_manager

Run = Callable[..., None]


def test_a_job_that_is_saved_between_its_end_and_the_news_of_it_has_ended(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, left = tmp_path / "state", tmp_path / "left"
    state.mkdir()

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(flags=4)
        await world.alloc(id)
        pipeline = pipeline_of(world)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_sync", lambda: None)
            world.end(id)
            await world.until(lambda: id in pipeline.core.inactive)
            assert id in pipeline.store.active
            await pipeline.checkpoint()
            shutil.copytree(state, left)
        pipeline._sync()

    async def after(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.client.rpc("job-manager.drain")
        ((id, names),) = await world.all_events()
        assert names[-1] == "clean"
        assert (await world.client.rpc("job-manager.wait", {"id": id}))["success"]
        await pipeline_of(world).checkpoint()

    async def later(broker: Any) -> None:
        ((_, names),) = await World(broker).all_events()
        assert names[-1] == "clean"

    in_broker(scenario, statedir=str(state))
    in_broker(after, statedir=str(left))
    in_broker(later, statedir=str(left))


@pytest.mark.parametrize("told", ["before", "since", "not"])
def test_a_job_is_waited_for_again_after_a_checkpoint_only_if_nobody_was_told(
    told: str, in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, left = tmp_path / "state", tmp_path / "left"
    state.mkdir()

    def broken(_journal: Any, _batch: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(flags=4)
        await world.run(id)
        pipeline = pipeline_of(world)
        body = {"id": id}
        if told == "before":
            await world.client.rpc("job-manager.wait", body)
            await pipeline.checkpoint()
        elif told == "since":
            # The file is begun, the state is not saved, then it is.
            with monkeypatch.context() as patch:
                patch.setattr(Journal, "checkpoint", lambda journal, *_state: broken(journal, b""))
                await pipeline.checkpoint()
            await world.client.rpc("job-manager.wait", body)
            await pipeline.checkpoint()
        else:
            with monkeypatch.context() as patch:
                patch.setattr(Journal, "append", broken)
                asking = world.client.start("job-manager.wait", body)
                await world.until(lambda: pipeline.failing)
                await pipeline.checkpoint()
                assert world.client.queues[asking].empty()
                shutil.copytree(state, left)
            pipeline._retry()
            return
        shutil.copytree(state, left)

    async def after(broker: Any) -> None:
        world = World(broker)
        ((id, _),) = await world.all_events()
        reply = await world.client.call("job-manager.wait", {"id": id})
        assert reply.errnum == (0 if told == "not" else errno.ECHILD)

    in_broker(scenario, statedir=str(state))
    in_broker(after, statedir=str(left))


def test_a_job_that_was_waited_for_in_the_turn_of_its_end_is_not_waited_for_again(
    in_broker: Run, tmp_path: Path
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(flags=4)
        await world.alloc(id)
        world.end(id)
        assert (await world.client.rpc("job-manager.wait", {"id": id}))["success"]

    async def after(broker: Any) -> None:
        world = World(broker)
        ((id, _),) = await world.all_events()
        assert (await world.client.call("job-manager.wait", {"id": id})).errnum == errno.ECHILD

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_a_job_that_is_saved_before_an_end_that_nobody_heard_of_is_not_over(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, left = tmp_path / "state", tmp_path / "left"
    state.mkdir()

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(jobspec(requeue=True), flags=4)
        await world.alloc(id)
        pipeline = pipeline_of(world)
        meta = pipeline._meta

        def end_first() -> dict[str, bytes]:
            pipeline.core.exec_reply({"id": id, "type": "finish", "data": {"status": 0}})
            pipeline.core.exec_reply({"id": id, "type": "release", "data": {"ranks": "all", "final": True}})
            return meta()

        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_meta", end_first)
            await pipeline.checkpoint()
        shutil.copytree(state, left)
        pipeline.touch()

    async def after(broker: Any) -> None:
        world = World(broker)
        ((id, _),) = await world.all_events()
        await world.begin()
        asking = world.client.start("job-manager.wait", {"id": id})
        await world.run(id, 256)
        assert not (await world.client.next(asking)).obj["success"]

    in_broker(scenario, statedir=str(state))
    in_broker(after, statedir=str(left))


def test_jobs_that_need_a_lost_database_are_counted_the_others_are_there(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.job(urgency=0)
        await pipeline_of(world).checkpoint()
        await world.job(urgency=0)

    async def after(broker: Any) -> None:
        world = World(broker)
        assert await world.all_events() == []
        path = tmp_path / "jobs" / "jobs.sqlite"
        assert any(f"1 jobs are lost, which need what was in a lost {path}" in line for line in broker.logged)
        await world.begin()
        await world.run(await world.job())

    async def last(broker: Any) -> None:
        (_, names), *others = await World(broker).all_events()
        assert (names[-1], others) == ("clean", [])

    in_broker(scenario, statedir=str(tmp_path))
    for part in (tmp_path / "jobs").glob("jobs.sqlite*"):
        part.unlink()
    in_broker(after, statedir=str(tmp_path))
    in_broker(last, statedir=str(tmp_path))


def test_a_database_with_records_that_are_none_is_not_used(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.job(urgency=0)
        await pipeline_of(world).checkpoint()

    async def after(broker: Any) -> None:
        with pytest.raises(JournalError) as caught:
            broker.load(job_manager)
        assert "jobs.sqlite cannot be used: " in str(caught.value)
        assert "it is damaged and was left as it is" in str(caught.value)

    in_broker(scenario, statedir=str(tmp_path))
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs" / "jobs.sqlite")) as db:
        db.execute("UPDATE job SET record = x'c1'")
        db.commit()
    in_broker(after, statedir=str(tmp_path))


def test_a_journal_with_a_record_of_an_unknown_kind_is_not_used(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.job(urgency=0)

    async def after(broker: Any) -> None:
        with pytest.raises(JournalError) as caught:
            broker.load(job_manager)
        assert f"the journal in {tmp_path / 'jobs'} has a record that only another version" in str(caught.value)

    in_broker(scenario, statedir=str(tmp_path))
    journal = Journal(str(tmp_path / "jobs"))
    assert list(journal.replay())
    journal.append(msgspec.msgpack.encode([[99, 1, None]]))
    journal.close()
    in_broker(after, statedir=str(tmp_path))
