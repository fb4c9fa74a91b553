"""What the agent asks of Linux: names, children, environments and states of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headrace.engine.process import linux


def test_a_process_is_named_and_has_the_title_that_fits() -> None:
    script = (
        "import os, sys; from headrace.engine.process import linux;"
        "linux.name_process('a-name-of-more-than-15', sys.argv[1]);"
        "print(open('/proc/self/comm').read().strip()); print(open('/proc/self/cmdline').read().rstrip('\\0'));"
        "print(sys.argv[1]); print(os.environ['AFTER'])"
    )
    title = "flux-broker: rank 7"
    env = {**os.environ, "AFTER": "as it was"}
    ran = subprocess.run([sys.executable, "-c", script, title], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["a-name-of-more-", title, title, "as it was"]


def test_a_title_longer_than_the_arguments_is_cut() -> None:
    script = (
        "import os; from headrace.engine.process import linux; linux.name_process('n', 't' * 100000);"
        "line = open('/proc/self/cmdline').read();"
        "print(set(line.rstrip('\\0')), len(line) < 1000, os.environ['AFTER'])"
    )
    env = {**os.environ, "AFTER": "as it was"}
    ran = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "{'t'} True as it was\n"


def test_children_and_what_they_started_are_found_parents_first() -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 100 & wait"], start_new_session=True)
    try:
        while not linux.children_of(parent.pid):
            time.sleep(0.01)
        found = linux.descendants_of(os.getpid())
        assert parent.pid in linux.children_of(os.getpid())
        assert found.index(parent.pid) < found.index(linux.children_of(parent.pid)[0])
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    assert linux.children_of(parent.pid) == []


def test_a_process_that_ended_does_not_run_even_before_it_is_collected() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert not linux.is_running(child.pid)
    child.wait()
    assert not linux.is_running(child.pid)
    assert linux.is_running(os.getpid())


def test_the_environment_of_a_process_is_read_as_it_was_started_with() -> None:
    # Until it has begun, there is nothing to read.
    argv = ["/bin/sh", "-c", "echo up; read line"]
    child = subprocess.Popen(argv, env={"A": "b=c", "N": "one\ntwo"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert linux.environment_of(child.pid) == {"A": "b=c", "N": "one\ntwo"}
    finally:
        child.communicate(b"end\n")
    assert linux.environment_of(child.pid) == {}


def test_short_slices_change_nothing_else_and_are_not_inherited() -> None:
    script = (
        "import os, re, sys; from headrace.engine.process import linux; os.nice(3); linux.ask_for_short_slices()\n"
        "for _ in range(2):\n"
        "    with open('/proc/self/sched') as file: slices = re.findall(r'slice\\s*:\\s*(\\d+)', file.read())\n"
        "    print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0) & 0xFF, *slices, flush=True)\n"
        "    if os.fork(): sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours, its = (line.split() for line in ran.stdout.splitlines())
    nice = os.getpriority(os.PRIO_PROCESS, 0) + 3
    assert ours[:2] == its[:2] == [str(nice), "0"]
    if ours[2:]:
        assert its[2:] != ["100000"]


def test_a_process_that_executes_a_program_again_and_again_always_has_an_environment() -> None:
    """For a moment within execve(2) the kernel shows none."""
    script = "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-E', '-I', *sys.orig_argv[4:]])"
    command = [sys.executable, "-S", "-E", "-I", "-c", script]
    with subprocess.Popen(command, env={**os.environ, "MARK": "here"}) as child:
        try:
            seen = [linux.environment_of(child.pid).get("MARK") for _ in range(5000)]
        finally:
            child.kill()
    assert set(seen) == {"here"}
