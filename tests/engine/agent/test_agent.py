"""The agent as a process: what ends it, and that it leaves nothing when it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import PATIENCE, Job, World

from headrace.engine.agent.agent import Agent
from headrace.engine.process import linux


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[World]:
    """An agent for this test only."""
    made = World(1, str(tmp_path))
    yield made
    made.close()


def begin(world: World, script: str, tmp_path: Path) -> int:
    """Start a job that writes its pid to a file; returns that when it runs."""
    path = tmp_path / "pid"
    world.start(["sh", "-c", f"{script} echo $$ > {path}.new; mv {path}.new {path}; exec sleep 1000"])
    limit = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
    return int(path.read_text())


def test_when_the_broker_is_gone_its_jobs_are_killed_wherever_they_went(alone: World, tmp_path: Path) -> None:
    begin(alone, "setsid sleep 1000 &", tmp_path)
    everything = linux.descendants_of(alone.processes[0].pid)
    assert len(everything) >= 2
    alone.sockets[0].close()
    assert alone.processes[0].wait(PATIENCE) == 0
    assert [pid for pid in everything if linux.is_running(pid)] == []
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


def test_the_initial_program_of_a_killed_broker_goes_with_it(alone: World, tmp_path: Path) -> None:
    # The broker started it, so it is nobody's child that the agent knows of.
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 1000 & wait"], dict(os.environ), setpgroup=0)
    alone.send({"op": "program", "pid": pid})
    alone.sockets[0].close()
    alone.processes[0].wait(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_terminals_processes_does_not_end_it(alone: World, tmp_path: Path, number: int) -> None:
    assert alone.shell("true").status == 0
    os.kill(alone.processes[0].pid, number)
    assert alone.shell("echo still here").text() == "still here\n"


@pytest.mark.parametrize(
    "op", [{"op": "nosuch"}, {}, {"op": "kill", "id": 5, "signum": 9}, {"op": "rpc"}, {"op": "exec", "handle": 1}]
)
def test_an_operation_that_makes_no_sense_costs_nothing_else(alone: World, op: dict[str, object]) -> None:
    alone.send(op)
    assert alone.shell("echo still here").text() == "still here\n"


@pytest.mark.parametrize("jobspec", [7, {"attributes": 7}, {"attributes": {"system": {"shell": {"options": 7}}}}])
def test_a_job_that_cannot_be_read_ends(alone: World, jobspec: object) -> None:
    alone.ids += 1
    job = alone.jobs[alone.ids] = Job(alone.ids, 1)
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["host0"]}}
    place = {"R": r, "nodeid": 0, "nnodes": 1, "rank": 0, "hosts": ["host0"], "ranks": [0], "rundir": alone.rundir}
    more = {"idpath": "/f", "jobspec": jobspec, "service": "s", "uri": "", "instance_level": 0, "expiration": 0.0}
    alone.send({"op": "start", "id": job.id, "userid": 0, **place, **more})
    alone.finish(job)
    assert job.status == 256 and job.exceptions[0]["severity"] == 0
    assert alone.shell("echo still here").text() == "still here\n"


def test_a_request_for_a_job_that_is_gone_is_answered(alone: World) -> None:
    job = alone.shell("true")
    token = alone.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "data": "x"})
    alone.pump(lambda: bool(alone.replies[token]))
    assert alone.replies[token][0]["errnum"]


def test_what_was_ready_before_its_number_was_given_away_is_not_read() -> None:
    ours, its = socket.socketpair()
    agent = Agent(its)
    first, second = os.pipe(), os.pipe()
    done: list[str] = []

    def close_both_and_begin_anew() -> None:
        # The order of events is the kernel's: whichever comes first closes the other.
        done.append("closed")
        for pair in (first, second):
            agent.unwatch(pair[0])
            os.close(pair[0])
        fresh = os.pipe()[0]
        for pair in (first, second):
            os.dup2(fresh, pair[0])
            agent.watch(pair[0], lambda: done.append("read"))

    for read, write in (first, second):
        os.write(write, b"x")
        agent.watch(read, close_both_and_begin_anew)
    agent._turn()
    assert done == ["closed"]
    ours.close()
    its.close()


def test_a_job_with_an_alarm_in_a_year_runs_as_any_other(alone: World) -> None:
    job = alone.start(["true"], options={"signal": {"signum": 10, "timeleft": 10}}, expiration=time.time() + 3e7)
    assert alone.finish(job).status == 0
    assert alone.shell("true").status == 0


_ASKS = """
import os
fd = int(os.environ["PMI_FD"])
os.set_blocking(fd, False)
try:
    for _ in range(100_000): os.write(fd, b"cmd=get_maxes\\n" * 10)
except (BlockingIOError, BrokenPipeError):
    pass
"""


def test_a_task_that_asks_and_never_listens_holds_up_nobody(alone: World) -> None:
    deaf = alone.start([sys.executable, "-c", f"{_ASKS}\nimport time; time.sleep(1000)"])
    for _ in range(20):
        assert alone.shell("true").status == 0
    alone.send({"op": "kill", "id": deaf.id, "signum": 9})
    alone.finish(deaf)
