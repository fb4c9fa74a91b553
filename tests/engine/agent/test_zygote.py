"""The agents of a test instance: born when they are needed, each its broker's alone; the zygote outlives them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from agent_world import PATIENCE

from headrace.engine.process import linux
from waiting import stays, until

# Stands for flux-start: forks a zygote for three agents and two brokers. Those have their agents run a program, or not,
# say who they are, and wait until nobody writes to them. The third broker never comes.
_START = """
import os, sys, time
from headrace.engine.agent.zygote import fork_zygote
from headrace.engine.agent.protocol import Reader, frame
zygote = fork_zygote(3, sys.argv[1])
brokers = set()
for rank in range(2):
    brokers.add(os.fork())
    if 0 in brokers:
        sock, agent, reader = zygote.take(rank), 0, Reader()
        if rank < int(sys.argv[2]):
            exec = {"op": "exec", "handle": 1, "cmd": {"cmdline": ["sleep", "1000"], "env": {}, "cwd": "/"}}
            sock.sendall(frame([exec]))
            said = {}
            while "exec-started" not in said:
                said.update((op["op"], op) for op in reader.feed(sock.recv(4096)))
            agent = said["hello"]["pid"]
        os.write(1, f"{rank} {os.getpid()} {agent}\\n".encode())
        sys.stdin.read()
        os._exit(0)
    zygote.taken(rank)
zygote.close()
os.write(1, f"{zygote.pid}\\n".encode())
while brokers:
    brokers.discard(os.wait()[0])
zygote.wait(60)
"""


class Start:
    """The process, its zygote, and by rank the pids of its brokers and of their agents (0: unborn)."""

    def __init__(self, rundir: Path, born: int) -> None:
        argv = [sys.executable, "-c", _START, str(rundir), str(born)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(3)]
        self.zygote = next(int(line[0]) for line in lines if len(line) == 1)
        self.brokers = {int(line[0]): int(line[1]) for line in lines if len(line) > 1}
        self.agents = {int(line[0]): int(line[2]) for line in lines if len(line) > 1}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        for each in (*self.brokers.values(), *self.agents.values(), self.zygote):
            until(partial(ended, each))


def ended(pid: int) -> bool:
    return not pid or not linux.is_running(pid)


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    (tmp_path / "run").mkdir()
    made = Start(tmp_path / "run", getattr(request, "param", 2))
    yield made
    made.end()


@pytest.mark.parametrize("start", [0, 1, 2], indirect=True)
def test_those_are_born_that_have_something_to_do(start: Start, request: pytest.FixtureRequest) -> None:
    born = [agent for agent in start.agents.values() if agent]
    assert len(born) == request.node.callspec.params["start"]
    assert sorted(linux.children_of(start.zygote)) == sorted(born)
    until(lambda: linux.name_of(start.zygote) == "flux-zygote")
    for rank, agent in start.agents.items():
        assert not agent or linux.name_of(agent) == f"flux-agent-{rank}"


@pytest.mark.parametrize("start", [1, 2], indirect=True)
def test_each_ends_with_its_own_broker_and_what_it_has_started(start: Start) -> None:
    (program,) = linux.children_of(start.agents[0])
    os.kill(start.brokers[0], signal.SIGKILL)
    until(partial(ended, start.agents[0]))
    until(partial(ended, program))
    stays(lambda: not start.agents[1] or not ended(start.agents[1]))
    os.kill(start.brokers[1], signal.SIGKILL)
    until(partial(ended, start.zygote))


def test_one_that_is_stopped_goes_on(start: Start) -> None:
    agent = start.agents[1]
    (program,) = linux.children_of(agent)
    os.kill(agent, signal.SIGSTOP)
    # Only an agent that runs takes the exit status of what it has started.
    os.kill(program, signal.SIGKILL)
    until(lambda: not linux.children_of(agent))
    assert not ended(agent)


def test_what_a_task_may_send_its_parent_ends_none(start: Start) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        os.kill(start.agents[0], number)
        os.kill(start.zygote, number)
    stays(lambda: not ended(start.agents[0]) and not ended(start.zygote))


@pytest.mark.parametrize("start", [0, 2], indirect=True)
def test_agents_outlive_their_zygote_and_the_unborn_end_for_their_brokers(start: Start) -> None:
    os.kill(start.zygote, signal.SIGKILL)
    until(partial(ended, start.zygote))
    for agent in start.agents.values():
        assert not agent or not ended(agent)
        # They have come to the reaper.
        assert not agent or agent in linux.children_of(start.process.pid)


def test_what_a_killed_agent_has_left_comes_to_the_zygote_and_ends_with_it(start: Start) -> None:
    (program,) = linux.children_of(start.agents[1])
    os.kill(start.agents[1], signal.SIGKILL)
    until(partial(ended, start.agents[1]))
    assert program in linux.children_of(start.zygote)
    start.end()
    assert ended(program)


@pytest.mark.parametrize("start", [0, 2], indirect=True)
def test_the_run_directory_goes_when_nobody_else_is_left_who_could_remove_it(start: Start, tmp_path: Path) -> None:
    os.kill(start.brokers[0], signal.SIGKILL)
    until(partial(ended, start.agents[0]))
    assert (tmp_path / "run").exists()
    start.end()
    assert not (tmp_path / "run").exists()


def test_the_run_directory_stays_while_a_broker_lives(start: Start, tmp_path: Path) -> None:
    start.process.kill()
    start.process.wait()
    for agent in start.agents.values():
        os.kill(agent, signal.SIGKILL)
        until(partial(ended, agent))
    stays((tmp_path / "run").exists, 0.2)
    start.end()
    assert not (tmp_path / "run").exists()


def test_one_that_cannot_be_forked_has_ended_for_its_broker() -> None:
    code = """
import os, socket
from headrace.engine.agent import zygote
def fails():
    raise BlockingIOError(11, "Resource temporarily unavailable")
ours, theirs = socket.socketpair()
ours.send(b"x")
fork, os.fork = os.fork, fails
if not fork():
    ours.close()
    zygote._serve([theirs.detach()])
    print("ended", flush=True)
    os._exit(0)
theirs.close()
try:
    print(ours.recv(1), flush=True)
except ConnectionResetError:
    # There was something that nobody has read.
    print(b"", flush=True)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE)
    assert sorted(done.stdout.split()) == ["b''", "ended"]
