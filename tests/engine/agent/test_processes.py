"""Plain subprocesses (RFC 42) under a real agent: input, output, signals, and what is said when they cannot start."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from agent_world import World

_handles = itertools.count(1)


class Run:
    """One subprocess, and what the agent said of it."""

    def __init__(self, world: World, *argv: str, job: int = 0, **cmd: Any) -> None:
        self.world, self.handle = world, next(_handles)
        self.send("exec", cmd={"cmdline": list(argv), "env": {"PATH": os.environ["PATH"]}, **cmd}, job=job)

    def send(self, op: str, **fields: Any) -> None:
        self.world.send({"op": op, "handle": self.handle, **fields})

    def said(self, op: str) -> list[dict[str, Any]]:
        return [each for each in self.world.exec_ops if each["handle"] == self.handle and each["op"] == op]

    def output(self, stream: str = "stdout") -> bytes:
        return b"".join(each["data"] for each in self.said("exec-output") if each["stream"] == stream)

    def until(self, op: str, count: int = 1) -> None:
        self.world.pump(lambda: len(self.said(op)) >= count)

    def end(self) -> int:
        """Wait for its end and that of its streams; returns the wait status."""
        self.until("exec-finished")
        self.world.pump(lambda: sum(each["eof"] for each in self.said("exec-output")) == 2)
        (finished,) = self.said("exec-finished")
        return int(finished["status"])


def test_streams_stay_apart_and_the_status_is_its_own(world: World) -> None:
    run = Run(world, "sh", "-c", "echo out; echo err >&2; pwd; exit 3", cwd="/usr")
    assert os.waitstatus_to_exitcode(run.end()) == 3
    assert (run.output(), run.output("stderr")) == (b"out\n/usr\n", b"err\n")
    assert run.said("exec-started")[0]["pid"] > 0


def test_it_starts_in_the_directory_that_has_the_path_now(world: World, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("first", "second"):
        work.mkdir()
        assert os.waitstatus_to_exitcode(Run(world, "touch", name, cwd=str(work)).end()) == 0
        assert os.listdir(work) == [name]
        work.rename(tmp_path / name)


def test_it_reads_what_is_written_to_it_until_the_end(world: World) -> None:
    run = Run(world, "sort")
    text = b"".join(b"%06d\n" % number for number in range(30_000, 0, -1))
    for begin in range(0, len(text), 10_000):
        run.send("exec-write", data=text[begin : begin + 10_000])
    run.send("exec-write", eof=True)
    assert run.end() == 0
    assert run.output() == b"".join(sorted(text.splitlines(keepends=True)))


def test_a_signal_reaches_it_and_what_it_started(world: World) -> None:
    run = Run(world, "sh", "-c", "sleep 1000 & echo $!; wait")
    run.until("exec-output")
    run.send("exec-kill", signum=int(signal.SIGTERM))
    assert os.waitstatus_to_exitcode(run.end()) == -signal.SIGTERM


def test_what_it_leaves_in_its_group_is_killed_at_its_end(world: World) -> None:
    # Its streams would stay open, and their end never come.
    run = Run(world, "sh", "-c", "sleep 1000 & exit 0")
    assert run.end() == 0


def test_output_that_is_held_comes_when_it_is_wanted_again(world: World) -> None:
    run = Run(world, "sh", "-c", "read line; echo $line")
    run.until("exec-started")
    run.send("exec-hold", on=True)
    run.send("exec-write", data=b"word\n", eof=True)
    run.until("exec-finished")
    assert run.output() == b""
    run.send("exec-hold", on=False)
    assert run.end() == 0
    assert run.output() == b"word\n"


@pytest.mark.parametrize(
    ("argv", "cmd", "number"),
    [
        (["/no/such/program"], {}, errno.ENOENT),
        (["/etc/passwd"], {}, errno.EACCES),
        ([], {}, errno.EINVAL),
        (["true"], {"cwd": "/no/such/folder"}, errno.ENOENT),
        (["true", "a\0b"], {}, errno.EINVAL),
    ],
)
def test_what_cannot_start_is_refused_with_the_reason(
    world: World, argv: list[str], cmd: dict[str, str], number: int
) -> None:
    run = Run(world, *argv, **cmd)
    run.until("exec-error")
    said = run.said("exec-error")[0]
    assert said["errnum"] == number
    assert ("cannot change to /no/such/folder" in said["text"]) is ("cwd" in cmd)
    assert not run.said("exec-started")


def test_nobody_minds_operations_on_a_process_that_ended(world: World) -> None:
    run = Run(world, "true")
    run.end()
    for op, fields in (("exec-write", {"data": b"x"}), ("exec-kill", {"signum": 9}), ("exec-hold", {"on": True})):
        run.send(op, **fields)
    assert Run(world, "true").end() == 0


# -- those that belong to a job


def test_a_job_is_over_when_what_ran_beside_its_tasks_has_been_told_and_is_gone(world: World) -> None:
    job = world.start(["sh", "-c", "read line"])
    script = "trap 'sleep 0.1; echo told; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    beside, other = Run(world, "sh", "-c", script, job=job.id), Run(world, "sleep", "60")
    world.pump(lambda: b"ready" in beside.output())
    world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    world.pump(lambda: job.done)
    assert os.waitstatus_to_exitcode(beside.said("exec-finished")[0]["status"]) == 7 and job.status != 7 << 8
    assert os.waitstatus_to_exitcode(beside.end()) == 7 and beside.output() == b"ready\ntold\n"
    assert not other.said("exec-finished")
    other.send("exec-kill", signum=9)
    other.until("exec-finished")


@pytest.mark.parametrize("how", ["time", "kill"])
def test_what_ran_beside_a_job_and_will_not_end_is_killed(world: World, how: str) -> None:
    grace = {"rexec-shutdown-timeout": "0.1s" if how == "time" else "10m"}
    job = world.start(["sh", "-c", "read line"], options=grace)
    beside = Run(world, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done", job=job.id)
    world.pump(lambda: b"ready" in beside.output())
    if how == "time":
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    else:
        world.send({"op": "kill", "id": job.id, "signum": int(signal.SIGKILL), "all": True})
    world.pump(lambda: job.done)
    assert beside.end() == signal.SIGKILL


def test_nothing_is_started_for_a_job_that_is_over(world: World) -> None:
    job = world.run(["true"])
    run = Run(world, "true", job=job.id)
    run.until("exec-error")
    assert run.said("exec-error")[0]["errnum"] == errno.ESRCH
