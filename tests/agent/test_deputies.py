"""Two places and many starts ahead: deputies take them over, and nobody can tell that it was not one agent."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import agent_world
import pytest
from agent_world import PATIENCE, Job, World
from test_agent_ahead import hand_out, recalled

from headrace.agent import begun, linux

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor needs no deputies")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(1, str(tmp_path))
    yield made
    made.close()


def two_places(world: World) -> list[Job]:
    return [world.start(["cat"], cores=cores) for cores in ("0", "1")]


def let_go(world: World, jobs: list[Job]) -> None:
    for job in jobs:
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})


def deputies(world: World) -> list[int]:
    return [pid for pid in linux.children_of(world.processes[0].pid) if name(pid).startswith("flux-deputy")]


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def until(done: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_many_jobs_run_once_each_in_order_and_one_place_has_one_at_a_time(world: World, tmp_path: Path) -> None:
    log, traces = tmp_path / "log", str(tmp_path / "begun")
    begun.reserve(traces)
    first = two_places(world)
    script = f"exec >>{log}; echo + $(taskset -cp $$ | sed s/.*://); echo - $(taskset -cp $$ | sed s/.*://)"
    jobs = hand_out(world, [script] * 100, first, traces=traces)
    let_go(world, first)
    world.pump(lambda: all(job.done for job in jobs))
    assert [job.status for job in jobs] == [0] * 100
    assert len(deputies(world)) == 2
    lines = log.read_text().split("\n")[:-1]
    assert len(lines) == 200
    for place in ("0", "1"):
        mine = [line[0] for line in lines if line.endswith(f" {place}")]
        assert mine and mine == ["+", "-"] * (len(mine) // 2)
    heirs = {job.id: job.heir for job in [*first, *jobs] if job.heir}
    assert sorted(heirs.values()) == [job.id for job in jobs]
    assert begun.read(traces) == set(heirs.values())
    # Each place went on with later ones only.
    assert all(id < heir for id, heir in heirs.items())
    assert recalled(world) == []


def test_what_is_sent_to_a_job_reaches_it_wherever_it_runs(world: World) -> None:
    first = two_places(world)
    jobs = hand_out(world, ["read word; echo got $word; exec sleep 600"] * 2, first)
    let_go(world, first)
    world.pump(lambda: all(job.started for job in jobs))
    token = world.rpc(jobs[1], "stdin", {"stream": "stdin", "rank": "all", "data": "this\n", "eof": True})
    world.pump(lambda: jobs[1].text() == "got this\n" and bool(world.replies[token]))
    world.rpc(jobs[0], "stdin", {"stream": "stdin", "rank": "all", "data": "that\n", "eof": True})
    world.pump(lambda: jobs[0].text() == "got that\n")
    for job in jobs:
        world.kill(job, signal.SIGTERM)
        world.finish(job)
        assert job.status == (128 + 15) << 8


def test_what_runs_beside_a_job_is_started_by_whoever_runs_the_job(world: World) -> None:
    first = two_places(world)
    jobs = hand_out(world, ["sleep 600"] * 2, first)
    let_go(world, first)
    world.pump(lambda: all(job.started for job in jobs))
    command = {
        "cmdline": ["sh", "-c", "read word; echo $word; sleep 600"],
        "cwd": "/",
        "env": {"PATH": "/usr/bin:/bin"},
    }
    for handle, job in enumerate((*jobs, first[0])):
        world.send({"op": "exec", "handle": handle, "cmd": command, "job": job.id})
    world.pump(lambda: len(world.exec_ops) == 3)
    said = {op["handle"]: op for op in world.exec_ops}
    assert [said[handle]["op"] for handle in range(3)] == ["exec-started", "exec-started", "exec-error"]
    assert said[2]["errnum"] == errno.ESRCH
    assert any(said[1]["pid"] in linux.children_of(deputy) for deputy in deputies(world))
    for handle in range(2):
        world.send({"op": "exec-write", "handle": handle, "data": b"word\n"})
        world.pump(lambda: sum(op.get("data") == b"word\n" for op in world.exec_ops) > handle)  # noqa: B023
    world.send({"op": "exec-kill", "handle": 0, "signum": 9})
    world.pump(lambda: any(op["op"] == "exec-finished" for op in world.exec_ops))
    world.kill(jobs[1], signal.SIGTERM)
    world.finish(jobs[1])
    assert [op["handle"] for op in world.exec_ops if op["op"] == "exec-finished"] == [0, 1]


def test_a_recall_names_exactly_those_that_never_start(world: World) -> None:
    first = two_places(world)
    jobs = hand_out(world, ["true"] * 40, first)
    let_go(world, first)
    world.pump(lambda: sum(job.done for job in jobs) > 5)
    back = recalled(world)
    # What was started was told before.
    started = {job.heir for job in [*first, *jobs] if job.heir}
    assert started | set(back) == {job.id for job in jobs} and not started & set(back)
    world.pump(lambda: all(job.done for job in jobs if job.id in started))
    assert recalled(world) == []
    again = two_places(world)
    more = hand_out(world, ["true"] * 10, again)
    let_go(world, again)
    world.pump(lambda: all(job.done for job in more))
    assert not any(job.started for job in jobs if job.id in back)


def test_deputies_end_with_their_agent_and_their_agent_with_them(world: World, tmp_path: Path) -> None:
    first = two_places(world)
    jobs = hand_out(world, [f"echo $$ >>{tmp_path}/pids; setsid sleep 600"] * 2, first)
    let_go(world, first)
    world.pump(lambda: all(job.started for job in jobs))
    # The agent may have started one of the jobs itself, and the deputy of its place not have its name yet.
    until(lambda: len(deputies(world)) == 2)
    mine = deputies(world)
    tasks = [pid for deputy in mine for pid in linux.descendants_of(deputy)]
    assert tasks
    os.kill(mine[0], signal.SIGKILL)
    world.processes[0].wait(PATIENCE)
    until(lambda: not any(linux.is_running(pid) for pid in [*mine, *tasks]))


def test_nothing_is_left_when_the_broker_goes(tmp_path: Path) -> None:
    world = World(1, str(tmp_path))
    first = two_places(world)
    jobs = hand_out(world, ["setsid sleep 600"] * 2, first)
    let_go(world, first)
    world.pump(lambda: all(job.started for job in jobs))
    mine = linux.descendants_of(world.processes[0].pid)
    assert len(mine) >= 4
    world.close()
    assert not any(linux.is_running(pid) for pid in mine)
    assert os.listdir(tmp_path) == []


def test_deputies_with_nothing_to_do_end_and_come_again_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = "from headrace.agent import deputies; deputies._KEPT = 0.1; "
    monkeypatch.setattr(agent_world, "_MAIN", soon + agent_world._MAIN)
    world, traces = World(1, str(tmp_path)), str(tmp_path / "begun")
    begun.reserve(traces)
    begun_by_now: set[int] = set()
    for _ in range(3):
        first = two_places(world)
        jobs = hand_out(world, ["sleep 0.3", *["true"] * 20], first, traces=traces)
        let_go(world, first)
        world.pump(lambda: all(job.done for job in jobs))  # noqa: B023
        assert [job.status for job in jobs] == [0] * 21
        until(lambda: not deputies(world))
        # There is nobody to answer, but nobody need.
        assert recalled(world) == []
        begun_by_now |= {job.id for job in jobs}
        # Who comes later writes over nothing that was written by who went.
        assert begun.read(traces) == begun_by_now
    world.close()


def test_deputies_that_have_been_asked_whether_they_are_idle_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = "from headrace.agent import deputies; deputies._KEPT = 0.001; "
    monkeypatch.setattr(agent_world, "_MAIN", often + agent_world._MAIN)
    world = World(1, str(tmp_path))
    back: set[int] = set()
    ended: set[int] = set()
    for turn in range(8):
        first = two_places(world)
        jobs = hand_out(world, ["true"] * 10, first)
        let_go(world, first)
        world.pump(lambda: sum(job.done for job in jobs) > turn)  # noqa: B023
        taken_back = set(recalled(world))
        rest = [job for job in jobs if job.id not in taken_back]
        world.pump(lambda: all(job.done for job in rest))  # noqa: B023
        assert {job.heir for job in [*first, *jobs] if job.heir} == {job.id for job in rest}
        back |= taken_back
        ended |= {job.id for job in jobs if job.done}
    assert not back & ended
    world.close()


@pytest.mark.parametrize("possible", [0, 1])
def test_without_processes_for_deputies_all_jobs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, possible: int
) -> None:
    # As under RLIMIT_NPROC, which does not hold for root.
    few = f"""
import errno, os
fork, left = os.fork, [{possible}]
def maybe():
    if not left[0]:
        raise BlockingIOError(errno.EAGAIN, "no more")
    left[0] -= 1
    return fork()
os.fork = maybe
"""
    monkeypatch.setattr(agent_world, "_MAIN", few + agent_world._MAIN)
    world = World(1, str(tmp_path))
    first = two_places(world)
    jobs = hand_out(world, ["true"] * 30, first)
    let_go(world, first)
    world.pump(lambda: all(job.done for job in jobs))
    assert [job.status for job in jobs] == [0] * 30
    assert len(deputies(world)) == possible
    assert {job.heir for job in [*first, *jobs] if job.heir} == {job.id for job in jobs}
    world.close()
