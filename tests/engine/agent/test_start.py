"""An agent as its broker makes it: kept, named, and the one who removes the run directory when nobody else can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_world import PATIENCE

from headrace.engine.process import linux
from waiting import until

# Stands for the broker of a follower: has an agent, or just its reaper, says so, and waits until it is killed.
_BROKER = """
import os, sys, time
from headrace.engine.agent.start import spawn_agent, spawn_another
from headrace.engine.agent.protocol import frame
pid, sock = spawn_agent(sys.argv[1], int(sys.argv[2]), 7)
if sys.argv[3:] == ["another"]:
    sock.close()
    os.waitpid(pid, 0)
    pid, sock = spawn_another(sys.argv[1], int(sys.argv[2]), 7)
if sys.argv[3:] != ["idle"]:
    sock.sendall(frame([]))
print(pid, flush=True)
time.sleep(1000)
"""


def broker(rundir: Path, starter: int, *more: str) -> tuple[subprocess.Popen[str], int]:
    argv = [sys.executable, "-c", _BROKER, str(rundir), str(starter), *more]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def state(pid: int) -> str:
    """The letter of proc(5): S for a process that sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while linux.is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("which", ["first", "another"])
def test_it_has_a_reaper_and_both_say_whose_they_are(tmp_path: Path, which: str) -> None:
    process, reaper = broker(tmp_path, 0, which)
    deadline = time.monotonic() + PATIENCE
    # Each names itself, in any order, and the reaper has a child before that.
    while {name(pid) for pid in (reaper, *linux.children_of(reaper))} != {"flux-reaper-7", "flux-agent-7"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (agent,) = linux.children_of(reaper)
    process.kill()
    process.wait()
    gone(reaper)
    gone(agent)


def test_a_broker_that_asks_for_nothing_has_no_agent(tmp_path: Path) -> None:
    process, reaper = broker(tmp_path, 0, "idle")
    # Asleep in its read: it has done all that it does by itself.
    until(lambda: name(reaper) == "flux-reaper-7" and state(reaper) == "S")
    assert not linux.children_of(reaper)
    process.kill()
    process.wait()
    gone(reaper)


@pytest.mark.parametrize("asks", ["idle", "busy"])
@pytest.mark.parametrize("started_by", ["nobody", "one who lives"])
def test_the_run_directory_of_a_killed_broker_goes_unless_who_started_it_can_see_to_that(
    tmp_path: Path, started_by: str, asks: str
) -> None:
    rundir = tmp_path / "run"
    rundir.mkdir()
    (rundir / "file").touch()
    process, reaper = broker(rundir, 0 if started_by == "nobody" else os.getpid(), asks)
    process.kill()
    process.wait()
    gone(reaper)
    assert rundir.exists() == (started_by != "nobody")


def test_the_run_directory_of_a_broker_that_lives_stays_when_its_agent_is_killed(tmp_path: Path) -> None:
    rundir = tmp_path / "run"
    rundir.mkdir()
    process, reaper = broker(rundir, 0)
    until(lambda: bool(linux.children_of(reaper)))
    os.kill(linux.children_of(reaper)[0], signal.SIGKILL)
    gone(reaper)
    assert rundir.exists()
    process.kill()
    process.wait()
