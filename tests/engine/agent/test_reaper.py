"""The reaper: what an agent leaves behind is killed, and nothing else is. Each case forks a process to be it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As a child of `python -c`: become a reaper, start what the case says, and print what is left.
_BEGIN = """
import os, subprocess, sys, time
from headrace.engine.agent import reaper
from headrace.engine.process import linux
def start(script, **env):
    child = subprocess.Popen(["sh", "-c", script], env={**os.environ, **env}, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"up\\n"
    return child
"""


def outcome(script: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", _BEGIN + script], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return ran.stdout.split()


def test_orphans_of_an_agent_that_died_are_killed_with_their_own() -> None:
    script = """
own = os.getpid()
linux.become_subreaper()
ready, tell = os.pipe()
agent = os.fork()
if agent == 0:
    # A task in a session of its own, and what that started.
    task = subprocess.Popen(["sh", "-c", "sleep 1000 & echo up; wait"], start_new_session=True, stdout=subprocess.PIPE)
    task.stdout.readline()
    os.write(tell, b"x")
    os._exit(7)
os.read(ready, 1)
print(os.waitstatus_to_exitcode(reaper.keep(agent)), linux.descendants_of(own))
"""
    assert outcome(script) == ["7", "[]"]


def test_strays_of_one_broker_are_told_by_their_environment() -> None:
    script = """
reaper.become_reaper()
assert reaper.reapers() == (os.getpid(),)
mine = start("echo up; exec sleep 1000", FLUX_URI="local:///a", FLUX_JOB_ID="f1")
other = start("echo up; exec sleep 1000", FLUX_URI="local:///b", FLUX_JOB_ID="f1")
program = start("echo up; exec sleep 1000", FLUX_URI="local:///a")
known = start("echo up; exec sleep 1000", FLUX_URI="local:///a", FLUX_JOB_ID="f1")
print(reaper.kill_strays([known.pid], "local:///a"))
print(*[linux.is_running(child.pid) for child in (mine, other, program, known)])
print(reaper.kill_strays([known.pid]))
print(*[linux.is_running(child.pid) for child in (mine, other, program, known)])
known.kill()
"""
    assert outcome(script) == ["True", "False", "True", "True", "True", "True", "False", "False", "False", "True"]


def test_an_agent_hears_that_its_reaper_is_gone() -> None:
    script = """
import signal
ready, tell = os.pipe()
linux.become_subreaper()
keeping = os.fork()
if keeping == 0:
    own = os.getpid()
    if os.fork() == 0:
        signal.signal(reaper.ORPHANED, lambda *_: (os.write(tell, b"told"), os._exit(0)))
        reaper.follow(own)
        os.write(tell, b"up")
        time.sleep(30)
        os._exit(1)
    time.sleep(30)
assert os.read(ready, 2) == b"up"
os.kill(keeping, signal.SIGKILL)
print(os.read(ready, 4).decode())
"""
    assert outcome(script) == ["told"]


def test_whoever_follows_a_reaper_that_is_gone_already_is_told_so() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    script = f"""
try:
    reaper.follow({gone.pid})
except ProcessLookupError:
    print("gone")
"""
    assert outcome(script) == ["gone"]


@pytest.mark.parametrize("by", ["reapers", "reaper of its own"])
def test_tasks_whose_reapers_are_gone_are_found_wherever_they_went(by: str) -> None:
    script = (
        f"by = {by!r}"
        + """
linux.become_subreaper()
gone = subprocess.Popen(["true"])
gone.wait()
mine = start("echo up; exec sleep 1000", FLUX_URI="local:///a", FLUX_JOB_ID="f1")
other = start("echo up; exec sleep 1000", FLUX_URI="local:///b", FLUX_JOB_ID="f1")
program = start("echo up; exec sleep 1000", FLUX_URI="local:///a")
agent = os.fork()
if agent == 0:
    time.sleep(1000)
os.kill(agent, 9)
if by == "reapers":
    os.waitpid(agent, 0)
# They stay until somebody collects them.
import threading
threading.Thread(target=mine.wait).start()
reaper.kill_remains(agent, [gone.pid] if by == "reapers" else [], "local:///a")
print(*[linux.is_running(child.pid) for child in (mine, other, program)])
other.kill()
program.kill()
"""
    )
    assert outcome(script) == ["False", "True", "True"]


@pytest.mark.parametrize("parent", ["broker", "reaper"])
def test_what_a_dead_agent_left_to_the_reaper_of_many_is_killed_for_its_broker(parent: str) -> None:
    script = (
        f"parent = {parent!r}"
        + """
reaper.become_reaper()
own = os.getpid()
agent = os.fork() if parent == "reaper" else -1
broker = os.fork() if agent else 0
if broker == 0:
    if agent == -1:
        agent = os.fork()
    if agent == 0:
        start("echo up; exec sleep 1000", FLUX_URI="local:///a", FLUX_JOB_ID="f1")
        start("echo up; exec sleep 1000", FLUX_URI="local:///b", FLUX_JOB_ID="f1")
        os._exit(9)
    reaper.kill_remains(agent, [own], "local:///a")
    os._exit(0)
while True:
    pid, status = os.waitpid(-1, 0)
    if pid == broker:
        break
# A killed task may be a zombie still, as nothing says when its parent's wait for any child comes to it.
left = [pid for pid in linux.children_of(own) if linux.is_running(pid)]
print(*[linux.environment_of(pid).get("FLUX_URI") for pid in left])
reaper.kill_children(5)
"""
    )
    assert outcome(script) == ["local:///b"]


def test_the_reaper_of_an_instance_in_a_job_removes_what_its_broker_left_before_it_is_killed() -> None:
    script = """
linux.become_subreaper()
def reaper_of(name, seconds):
    child = os.fork()
    if child == 0:
        linux.name_process(name)
        print(name, flush=True)
        time.sleep(seconds)
        print("removed", name, flush=True)
        os._exit(0)
reaper_of("flux-reaper-0", 0.2)
reaper_of("flux-zygote", 1000)
while len([pid for pid in linux.children_of(os.getpid()) if linux.name_of(pid).startswith("flux-")]) < 2:
    time.sleep(0.01)
print(reaper.kill_children(2.0), linux.children_of(os.getpid()))
"""
    told = outcome(script)
    assert told[2:] == ["removed", "flux-reaper-0", "True", "[]"]
