"""Back from the files: what was saved at an odd moment, and what of them cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jobs_world import World, jobspec, pipeline_of
from kvs_world import commit, store, val

from headrace.engine.broker.state.journal import Journal, JournalError
from headrace.engine.jobs.pack import Submission, unpack
from headrace.engine.modules.job_manager import service as job_manager
from headrace.engine.modules.job_manager.records import EventsPosted, JobSubmitted, TextAdded
from headrace.formats.spec import jobid
from headrace.formats.spec.kvs_flags import APPEND

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
        assert any(f"1 jobs are lost: their data was in {path}, which is lost" in line for line in broker.logged)
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


def journalled(folder: Path, *batches: bytes) -> None:
    """Append batches to the journal, as an earlier version may have written them."""
    journal = Journal(str(folder / "jobs"))
    assert list(journal.replay())
    for batch in batches:
        journal.append(batch)
    journal.close()


# Objects in objects, as msgpack.
DEEP = b"\x81\xa1a" * 975 + b"\x01"


def test_a_job_with_a_note_that_cannot_be_read_back_is_left_out_alone(in_broker: Run, tmp_path: Path) -> None:
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids.extend([await world.job(urgency=0), await world.job(urgency=0)])

    async def after(broker: Any) -> None:
        world = World(broker)
        found = [id for id, _ in await world.all_events()]
        left_out = sys.version_info < (3, 12)
        assert found == (ids[1:] if left_out else ids), "later Pythons count the frames of C apart"
        assert any("cannot be rebuilt and is left out" in line for line in broker.logged) == left_out
        await world.begin()
        for id in found:
            await world.cancel(id)
        await world.client.rpc("job-manager.drain")

    in_broker(scenario, statedir=str(tmp_path))
    note = msgspec.msgpack.encode([2, ids[0], [5, [[1.0, "memo", None]]]])
    assert note.endswith(b"\xc0")
    journalled(tmp_path, b"\x91" + note[:-1] + DEEP)
    in_broker(after, statedir=str(tmp_path))


def test_a_job_of_which_earlier_events_are_missing_is_left_out_alone(in_broker: Run, tmp_path: Path) -> None:
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids.extend([await world.job(urgency=0), await world.job(urgency=0)])

    async def after(broker: Any) -> None:
        world = World(broker)
        assert [id for id, _ in await world.all_events()] == ids[1:]
        (said,) = (line for line in broker.logged if "is left out" in line)
        assert "some of its events were in a damaged part of the journal" in said
        await world.begin()

    in_broker(scenario, statedir=str(tmp_path))
    journalled(tmp_path, msgspec.msgpack.encode([[2, ids[0], [99, [[1.0, "memo", None]]]]]))
    in_broker(after, statedir=str(tmp_path))


def test_jobs_with_a_text_that_was_lost_are_counted_and_those_with_later_texts_are_there(
    in_broker: Run, tmp_path: Path
) -> None:
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids.append(await world.job(urgency=0))

    async def after(broker: Any) -> None:
        world = World(broker)
        assert sorted(id for id, _ in await world.all_events()) == [ids[0], ids[0] + 2]
        assert any("1 jobs are lost" in line for line in broker.logged)
        await world.begin()

    in_broker(scenario, statedir=str(tmp_path))
    # The first job has the texts 0 and 1; text 2 was in a frame that is passed over.
    text = json.dumps(jobspec()).encode()
    events = [[1.0, "submit", {"userid": 0, "urgency": 0, "flags": 0}], [1.0, "validate", None]]
    batch: list[Any] = [TextAdded(3, text)]
    for number in (2, 3):
        id = ids[0] + number - 1
        batch += [JobSubmitted(id, Submission(b"", (number, len(text), 0, b""), b"")), EventsPosted(id, (0, events))]
    journalled(tmp_path, msgspec.msgpack.encode(batch))
    in_broker(after, statedir=str(tmp_path))


@pytest.mark.parametrize("attributes", ["null", '{"a":' * 100_000 + "1" + "}" * 100_000])
@pytest.mark.parametrize("saved", [False, True])
def test_a_job_that_an_earlier_version_should_have_refused_is_left_out_alone(
    saved: bool, attributes: str, in_broker: Run, tmp_path: Path
) -> None:
    """`saved`: a checkpoint has the job, else the journal."""
    ids: list[int] = []
    text = json.dumps({**jobspec(), "attributes": "@"}).replace('"@"', attributes).encode()

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids.append(await world.job(urgency=0))
        if saved:
            ids.append(await world.job(urgency=0))
            await pipeline_of(world).checkpoint()

    async def after(broker: Any) -> None:
        world = World(broker)
        assert [id for id, _ in await world.all_events()] == ids[:1]
        assert sum("cannot be rebuilt and is left out" in line for line in broker.logged) == 1
        await world.begin()
        assert await world.job(urgency=0) > ids[1], "its id is not given again"

    in_broker(scenario, statedir=str(tmp_path))
    if saved:
        put_text_in_database(tmp_path, ids[1], text)
    else:
        ids.append(ids[0] + 1)
        # The first job has the texts 0 and 1, before its environment and after.
        batch = [TextAdded(2, text), JobSubmitted(ids[1], Submission(b"", (2, len(text), 0, b""), b""))]
        journalled(tmp_path, msgspec.msgpack.encode(batch))
    in_broker(after, statedir=str(tmp_path))


def put_text_in_database(folder: Path, id: int, text: bytes) -> None:
    """Give a saved job another jobspec."""
    with contextlib.closing(sqlite3.connect(folder / "jobs" / "jobs.sqlite")) as db:
        ((number,),) = db.execute("SELECT count(*) FROM text").fetchall()
        ((record,),) = db.execute("SELECT record FROM job WHERE id = ?", (id,)).fetchall()
        packed = unpack(record)
        packed.submission.text = (number, len(text), 0, b"")
        packed.submission.environment = None
        db.execute("INSERT INTO text VALUES (?, ?)", (number, text))
        db.execute("UPDATE job SET record = ? WHERE id = ?", (msgspec.msgpack.encode(packed), id))
        db.commit()


@pytest.mark.parametrize("seed", range(8))
def test_each_acknowledged_append_to_a_log_is_there_once_and_in_order_whatever_came_between(
    seed: int, in_broker: Run, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    appended: dict[int, list[str]] = {}
    running: list[int] = []

    async def life(broker: Any, left: Path | None) -> None:
        store(broker)
        world = World(broker)
        await world.begin()
        # Those that ran when the last broker was killed are over.
        await world.until(lambda: not set(running) & set(pipeline_of(world).store.active))
        running.clear()
        while len(appended) < 4 or dice.random() < 0.3:
            hold = dice.random() < 0.5
            id = await world.job(urgency=0 if hold else 16)
            appended[id] = []
            if not hold:
                running.append(id)
                await world.alloc(id)
                world.say(id, "start")
        saving = asyncio.ensure_future(asyncio.sleep(0))
        for _ in range(30):
            id = dice.choice(list(appended))
            deed = dice.choice(("append", "append", "append", "log", "checkpoint", "end"))
            if deed == "append":
                event = {"timestamp": 1.0, "name": f"mine-{len(appended[id])}", "context": {"a": "x" * size()}}
                op = {"key": "exec.eventlog", "flags": APPEND, "dirent": val(json.dumps(event).encode() + b"\n")}
                await world.client.rpc("kvs.commit", commit(op, namespace=f"job-{id}"))
                appended[id].append(event["name"])
            elif deed == "log" and id in running:
                world.log(id, "guest.exec.eventlog", [1.0, "output", {"a": "x" * size()}])
            elif deed == "checkpoint":
                # What is appended while it is made may be in it, in the journal that follows, or in both.
                await saving
                saving = asyncio.ensure_future(pipeline_of(world).checkpoint())
            elif deed == "end" and id in running:
                running.remove(id)
                world.end(id)
                if dice.random() < 0.5:
                    await world.until(lambda id=id: id not in pipeline_of(world).store.active)
        await check(world)
        await saving
        if left is not None:
            shutil.copytree(broker.attrs.get("statedir"), left)

    def size() -> int:
        return dice.choice((10, 1000, 40_000, 70_000))

    async def check(world: World) -> None:
        for id, names in appended.items():
            key = f"{jobid.encode(id, 'dothex')}.guest.exec.eventlog"
            found = await world.client.call("job-store.lookup", {"path": key})
            log = [] if found.errnum else [json.loads(line) for line in found.obj["val"].splitlines()]
            assert [event["name"] for event in log if event["name"].startswith("mine")] == names

    async def last(broker: Any) -> None:
        await check(World(broker))

    state = tmp_path / "state-0"
    state.mkdir()
    for number in range(1, 5):
        left = tmp_path / f"state-{number}" if dice.random() < 0.7 else None
        in_broker(lambda broker, left=left: life(broker, left), statedir=str(state))
        state = left or state
        in_broker(last, statedir=str(state))


def test_a_text_that_is_not_whole_events_is_not_appended_to_a_log(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        store(broker)
        world = World(broker)
        id = await world.job()
        for text, why in (
            (b"text\n", "line 1: event 'text' is not JSON"),
            (b'{"timestamp":1.0,"name":"a"}', "the last line has no newline"),
            (b"\xff", "line 1: event"),
        ):
            op = {"key": "exec.eventlog", "flags": APPEND, "dirent": val(text)}
            other = {"key": "mine", "flags": APPEND, "dirent": val(text)}
            reply = await world.client.call("kvs.commit", commit(other, op, namespace=f"job-{id}"))
            assert reply.errnum == errno.EINVAL
            assert reply.text.startswith(f"guest.exec.eventlog: only events can be appended to a log of a job: {why}")
        # Nothing of the transactions was committed.
        body = {"key": "mine", "namespace": f"job-{id}", "flags": 0}
        assert (await world.client.call("kvs.lookup", body)).errnum == errno.ENOENT
        await world.client.rpc("kvs.commit", commit(other, namespace=f"job-{id}"))
        assert not (await world.client.call("kvs.lookup", body)).errnum

    in_broker(scenario)


def test_the_log_says_that_a_checkpoint_or_a_journal_is_missing(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await world.job(urgency=0)
        await pipeline_of(world).checkpoint()

        assert any(f"{path.parent} is new: there are no jobs" in line for line in broker.logged)

    async def without_database(broker: Any) -> None:
        broker.load(job_manager)
        assert not any("is new" in line for line in broker.logged)
        assert any(f"{path} is missing, and the jobs in it are lost" in line for line in broker.logged)

    async def without_journal(broker: Any) -> None:
        broker.load(job_manager)
        assert any("journal.00000001 is empty or missing" in line for line in broker.logged)

    path = tmp_path / "jobs" / "jobs.sqlite"
    in_broker(scenario, statedir=str(tmp_path))
    for file in path.parent.glob("jobs.sqlite*"):
        file.unlink()
    in_broker(without_database, statedir=str(tmp_path))
    os.truncate(path.parent / "journal.00000001", 0)
    in_broker(without_journal, statedir=str(tmp_path))
