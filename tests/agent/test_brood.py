"""The agents of a test instance, forked together: each is its broker's alone, and the keeper of all sees to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from agent_world import PATIENCE

from headrace.agent import linux

# Stands for flux-start: forks three agents, then two brokers, which say who they are and wait until nobody writes to
# them; then they go, and are so kind to dismiss their agents or not.
_START = """
import os, sys, time
from headrace.agent.brood import fork_agents
from headrace.agent.protocol import frame
brood = fork_agents(3, sys.argv[1])
brood.meet()
for rank in range(2):
    if not os.fork():
        pid, sock = brood.take(rank)
        os.write(1, f"{rank} {os.getpid()} {pid}\\n".encode())
        sys.stdin.read()
        if sys.argv[2] == "kind":
            sock.sendall(frame([{"op": "shutdown"}]))
        os._exit(0)
    brood.taken(rank)
brood.close()
while True:
    try:
        pid, status = os.waitpid(-1, os.WUNTRACED)
    except ChildProcessError:
        break
    if os.WIFSTOPPED(status):
        brood.go_on(pid)
"""


class Start:
    """The process, and by rank the pids of its brokers and their agents."""

    def __init__(self, rundir: Path, manners: str) -> None:
        argv = [sys.executable, "-u", "-c", _START, str(rundir), manners]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(2)]
        self.brokers = {int(rank): int(pid) for rank, pid, _agent in lines}
        self.agents = {int(rank): int(agent) for rank, _pid, agent in lines}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        for each in (*self.brokers.values(), *self.agents.values()):
            until(partial(ended, each))


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(pid: int) -> bool:
    return not linux.is_running(pid)


def named(pid: int, name: str) -> bool:
    return linux.name_of(pid) == name


def third_is_gone(start: Start) -> bool:
    """It has no broker."""
    return len(linux.children_of(start.process.pid)) == 4


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    (tmp_path / "run").mkdir()
    made = Start(tmp_path / "run", getattr(request, "param", "unkind"))
    yield made
    made.end()


def test_each_is_named_for_its_rank_and_is_a_child_of_the_keeper(start: Start) -> None:
    for rank, agent in start.agents.items():
        until(partial(named, agent, f"flux-agent-{rank}"))
        assert agent in linux.children_of(start.process.pid)
    until(partial(third_is_gone, start))


def test_each_ends_with_its_own_broker(start: Start) -> None:
    os.kill(start.brokers[1], signal.SIGKILL)
    until(lambda: ended(start.agents[1]))
    time.sleep(0.1)
    assert not ended(start.agents[0])


def test_one_that_is_stopped_goes_on(start: Start) -> None:
    agent = start.agents[0]
    until(lambda: named(agent, "flux-agent-0"))
    os.kill(agent, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[0] == "S")


def test_what_a_task_may_send_its_parent_ends_none(start: Start) -> None:
    agent = start.agents[0]
    until(lambda: named(agent, "flux-agent-0"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        os.kill(agent, number)
    time.sleep(0.1)
    assert not ended(agent)


@pytest.mark.parametrize("start", ["kind", "unkind"], indirect=True)
def test_the_run_directory_goes_when_nobody_else_is_left_who_could_remove_it(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    until(partial(third_is_gone, start))
    start.end()
    # Whoever dismisses his agent removes it himself.
    assert (tmp_path / "run").exists() == ("[kind]" in request.node.name)


def test_a_fork_that_fails_ends_those_before_it(tmp_path: Path) -> None:
    code = """
import os, sys
from headrace.agent import brood
own, fork = os.getpid(), os.fork
def few():
    if os.getpid() != own:
        few.left -= 1
        if few.left < 0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
few.left = 2
os.fork = few
made = brood.fork_agents(4, "")
try:
    made.meet()
except OSError as exc:
    print(exc)
made.close()
print(*made.pids)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE)
    why, pids = done.stdout.splitlines()
    assert "the exec agent of rank 2 cannot be forked: Resource temporarily unavailable" in why
    assert len(pids.split()) == 2 and all(ended(int(pid)) for pid in pids.split())
