"""Starts that an agent was handed out ahead of the time: in the place of a job that ends, in order, until recalled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from agent_world import Job, World

from headrace.agent import begun
from headrace.spec import jobspec_build


def hand_out(world: World, scripts: list[str], after: list[Job], first: bool = True, **more: Any) -> list[Job]:
    jobs = []
    starts = []
    for script in scripts:
        spec = jobspec_build.from_command(["sh", "-c", script], 1, environment={"PATH": "/usr/bin:/bin"}, cwd="/tmp")
        world.ids += 1
        job = world.jobs[world.ids] = Job(world.ids, 1)
        jobs.append(job)
        start = {
            "id": job.id,
            "jobspec": spec,
            "userid": 0,
            "uri": "local:///nowhere",
            "rundir": world.rundir,
            "idpath": f"/f{job.id}",
            "instance_level": 0,
            "service": f"0-shell-f{job.id}",
            "duration": 0.0,
            "expiration": 0.0,
            **more,
        }
        starts.append({"id": job.id, "start": msgspec.msgpack.encode(start)})
    ids = [job.id for job in after]
    world.send({"op": "ahead", "jobs": starts, "after": ids, "first": first, "traces": more.get("traces", "")})
    return jobs


def recalled(world: World) -> list[int]:
    seen = len(world.recalled)
    world.send({"op": "recall", "by": "us"})
    world.pump(lambda: len(world.recalled) > seen)
    return world.recalled[-1]


def test_each_starts_when_the_one_before_has_ended_and_in_its_place(world: World, tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = f"echo {{}} $(taskset -cp $$ | sed s/.*://) >> {log}"
    first = world.start(["sh", "-c", "read line; " + note.format("first")], cores="0")
    second, third = hand_out(world, [note.format("second"), note.format("third")], [first])
    # The agent has taken what was sent before this one.
    world.finish(world.start(["true"], cores="1"))
    assert not second.started and not log.exists()
    world.rpc(first, "stdin", {"stream": "stdin", "rank": "all", "data": "go\n", "eof": True})
    world.finish(third)
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["first", "second", "third"]
    assert {line.split()[1] for line in log.read_text().splitlines()} == {"0"}
    assert (first.heir, second.heir, third.heir) == (second.id, third.id, 0)
    assert recalled(world) == []


def test_what_is_recalled_is_never_started(world: World) -> None:
    first = world.start(["cat"])
    second, third = hand_out(world, ["true", "true"], [first])
    assert recalled(world) == [second.id, third.id]
    world.rpc(first, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.finish(first)
    assert first.heir == 0 and not second.started
    assert world.shell("echo still here").text() == "still here\n"
    assert not second.started and not third.started


def test_only_the_end_of_those_that_were_named_starts_somebody(world: World) -> None:
    first, other = world.start(["cat"]), world.start(["cat"])
    (second,) = hand_out(world, ["true"], [first])
    for job in (other, first):
        assert not second.started
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
        world.finish(job)
    world.finish(second)
    assert (other.heir, first.heir) == (0, second.id)


def test_a_start_that_fails_leaves_its_place_to_the_next(world: World) -> None:
    first = world.start(["cat"])
    bad, good = hand_out(world, ["true", "echo good"], [first])
    world.send({"op": "recall", "by": "us"})
    bad, good = hand_out(world, ["true", "echo good"], [first], rundir="/nonexistent/folder")
    world.rpc(first, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.finish(good)
    assert bad.status == good.status == 256
    assert "cannot prepare" in bad.logs()[0]


def test_a_trace_is_left_before_the_start(world: World, tmp_path: Path) -> None:
    path = str(tmp_path / "begun")
    begun.reserve(path)
    first = world.start(["cat"])
    second, third = hand_out(world, ["sleep 60", "true"], [first], traces=path)
    world.rpc(first, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.finish(first)
    assert begun.read(path) == {second.id}
    assert recalled(world) == [third.id]
    world.kill(second, 9)
    world.finish(second)


def test_where_no_traces_can_be_left_jobs_start_and_are_given_back_all_the_same(world: World, tmp_path: Path) -> None:
    first = world.start(["cat"])
    second, third = hand_out(world, ["cat", "true"], [first], traces=str(tmp_path / "cleaned away"))
    world.rpc(first, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.pump(lambda: bool(second.started))
    assert recalled(world) == [third.id]
    world.rpc(second, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    assert world.finish(second).status == 0
