"""Back from the files: what was saved at an odd moment, and what of them cannot be used."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import World, pipeline_of

from headrace.broker.journal import JournalError
from headrace.modules import job_manager

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
