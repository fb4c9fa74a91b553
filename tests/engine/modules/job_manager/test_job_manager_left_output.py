"""Output that a killed broker has left in files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import World, jobspec, pipeline_of

from headrace.engine.modules.job_manager.logs import KEEP, Log
from headrace.formats.spec import jobid

Run = Callable[..., None]
OUTPUT = "guest.output"


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("requeue", [False, True])
def test_the_output_of_a_job_that_ran_at_a_kill_is_there_after_it(
    in_broker: Run, tmp_path: Path, saved: bool, requeue: bool
) -> None:
    """`saved`: a checkpoint has the beginning of it."""
    state, left = tmp_path / "state", tmp_path / "left"
    state.mkdir()
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(jobspec(requeue=requeue))
        ids.append(id)
        await world.alloc(id)
        world.log(id, OUTPUT, [1.0, "header", {}])
        await world.client.rpc("job-manager.getinfo")
        if saved:
            await pipeline_of(world).checkpoint()
        for number in range(200):
            world.log(id, OUTPUT, [float(number + 2), "data", {"data": "x" * 1000}])
        await world.client.rpc("job-manager.getinfo")
        shutil.copytree(state, left)

    async def after(broker: Any) -> None:
        world = World(broker)
        if requeue:
            await world.begin()
            world.log(ids[0], OUTPUT, [500.0, "again", {}])
            await world.run(ids[0])
        await world.client.rpc("job-manager.drain")
        names = await world.watched(world.watch(ids[0], OUTPUT))
        assert names[:1] + names[-1:] == ["header", "again" if requeue else "data"]
        # What was in memory alone is lost, and half a line.
        assert (len(names) - 1 - requeue) * 1000 > 200_000 - KEEP - 2000
        body = {"age_limit": -1.0, "num_limit": 0, "batch": 50, "force": True}
        await world.client.rpc("job-manager.purge", body)
        await world.until(lambda: not list((left / "output").iterdir()))

    in_broker(scenario, statedir=str(state))
    (file,) = (left / "output").iterdir()
    with file.open("ab") as handle:
        handle.write(b'{"timestamp":')
    in_broker(after, statedir=str(left))


def test_files_of_jobs_that_are_not_known_are_removed(in_broker: Run, tmp_path: Path) -> None:
    folder = tmp_path / "output"
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        ids.append(await World(broker).job(urgency=0))

    async def after(broker: Any) -> None:
        await World(broker).all_events()

    in_broker(scenario, statedir=str(tmp_path))
    folder.mkdir()
    known = [f"{jobid.encode(ids[0], 'dothex')}.{OUTPUT}", "notes.txt", "0000.0000.0000.0001.other"]
    # Its number is above all that are known: it is another state's.
    known.append(f"{jobid.encode(ids[0] + 1, 'dothex')}.{OUTPUT}")
    for name in (*known, f"{jobid.encode(ids[0] - 1, 'dothex')}.{OUTPUT}"):
        (folder / name).write_text("no line")
    in_broker(after, statedir=str(tmp_path))
    assert sorted(path.name for path in folder.iterdir()) == sorted(known)


@pytest.mark.parametrize(
    ("there", "known", "text"),
    [
        (b"one\ntwo\nth", b"", b"one\ntwo\n"),
        (b"one\ntwo\nth", b"one\n", b"one\ntwo\n"),
        (b"one\ntw", b"one\ntwo\n", b"one\ntwo\n"),
        (b"half", b"", b""),
        (b"x" * 600_000 + b"\n" + b"y" * 600_000, b"", b"x" * 600_000 + b"\n"),
    ],
)
def test_whole_lines_beyond_what_is_known_are_taken_up(tmp_path: Path, there: bytes, known: bytes, text: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(there)
    log = Log(str(path))
    log.append_in_memory(known)
    log.take_up()
    assert log.text() == text
    log.append_in_memory(b"more\n")
    log.spill()
    assert log.text() == text + b"more\n"
