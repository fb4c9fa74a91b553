"""Ctrl-C and SIGTERM whenever they come: an instance ends soon, says so, and leaves neither processes nor folders."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from instance import FLUX, processes_with, start
from terminal import Terminal, terminal

from headrace.engine.process import linux

RANDOM = random.Random(20)
# Seconds after the run directory was made: while brokers are forked, while they meet, while the program runs.
MOMENTS = [round(RANDOM.uniform(low, low + 0.08), 3) for low in (0.0, 0.08, 0.16, 0.24, 0.32)]


def end(screen: Terminal, how: str) -> int:
    """Press Ctrl-C, or SIGTERM to the outer process alone; returns the exit code."""
    if how == "int":
        screen.type("\x03")
    else:
        os.kill(screen.pid, signal.SIGTERM)
    return screen.wait()


def left(folder: os.PathLike[str]) -> list[str]:
    return [*os.listdir(folder), *processes_with(f"HR_TEST={folder}")]


@pytest.mark.parametrize("size", [(), ("-s4",)], ids=["one", "four"])
@pytest.mark.parametrize("how", ["int", "term"])
def test_an_instance_that_is_still_starting_ends_and_leaves_nothing(how, size, tmp_path):
    for moment in MOMENTS:
        with terminal(FLUX, "start", *size, "sleep", "1000", TMPDIR=str(tmp_path), HR_TEST=str(tmp_path)) as screen:
            while not os.listdir(tmp_path):
                time.sleep(0.001)
            time.sleep(moment)
            code = end(screen, how)
            assert code == (130 if how == "int" else 143), f"{how} after {moment} s: {screen.text}"
        assert left(tmp_path) == [], f"{how} after {moment} s"


def test_what_has_begun_ends_when_who_starts_it_is_killed(tmp_path):
    """Some brokers are not there yet, some have not found their parent, which ends."""
    for moment in (0.1, 0.25, 0.4, 0.55, 0.7, 0.85):
        environment = {**os.environ, "TMPDIR": str(tmp_path), "HR_TEST": str(tmp_path)}
        starter = subprocess.Popen([FLUX, "start", "-s24", "sleep", "1000"], env=environment, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        starter.kill()
        starter.wait()
        limit = time.monotonic() + 60
        while left(tmp_path):
            assert time.monotonic() < limit, f"after {moment} s: {left(tmp_path)}"
            time.sleep(0.05)


@pytest.mark.parametrize("others", ["agents", "agents and zygote", "agents and leader", "agents and followers"])
def test_jobs_end_when_who_started_the_instance_is_killed_and_others_with_it(others, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HR_TEST": str(tmp_path)}
    # In a session of their own, where no signal to a group reaches them.
    script = "flux run -N3 sh -c 'echo running; exec setsid sleep 1000'; sleep 1000"
    starter = subprocess.Popen([FLUX, "start", "-s3", "sh", "-c", script], env=environment, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    with starter.stdout:
        for _ in range(3):
            starter.stdout.readline()
        names = {pid: linux.name_of(pid) for pid in linux.descendants_of(starter.pid)}
        begin = {
            "leader": ("flux-broker-0",),
            "followers": ("flux-broker-1", "flux-broker-2"),
            "zygote": ("flux-zygote",),
        }
        killed = [
            pid for pid, name in names.items() if name.startswith(("flux-agent-", *begin.get(others.split()[-1], ())))
        ]
        assert len(killed) >= 3
        for pid in RANDOM.sample([starter.pid, *killed], len(killed) + 1):
            # One may have ended by the end of another.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        starter.wait()
    limit = time.monotonic() + 60
    while left(tmp_path):
        assert time.monotonic() < limit, left(tmp_path)
        time.sleep(0.05)


@pytest.mark.parametrize("size", [(), ("-s2",)], ids=["one", "two"])
def test_sigterm_ends_a_program_its_children_and_its_jobs(size, tmp_path):
    script = "flux run sh -c 'echo run''ning; exec sleep 1000' & sleep 1000; true"
    with terminal(FLUX, "start", *size, "sh", "-c", script, TMPDIR=str(tmp_path), HR_TEST=str(tmp_path)) as screen:
        screen.expect("running")
        assert end(screen, "term") == 143
    assert left(tmp_path) == []


@pytest.mark.parametrize("how", ["int", "term"])
def test_a_queue_that_waits_for_running_jobs_holds_up_no_end(how, tmp_path):
    jobs = len(os.sched_getaffinity(0)) + 5
    submit = f"flux submit --quiet --cc=1-{jobs} sleep 1000; flux job wait-event -q $(flux job last) depend; sleep 1"
    script = f"{submit}; echo wait''ing; exec sleep 1000"
    with terminal(FLUX, "start", "sh", "-c", script, TMPDIR=str(tmp_path), HR_TEST=str(tmp_path)) as screen:
        screen.expect("waiting")
        assert end(screen, how) == (130 if how == "int" else 143)
    assert left(tmp_path) == []


def test_an_interrupt_reaches_a_program_that_has_a_process_group_of_its_own(tmp_path):
    script = f"exec </dev/null; exec {FLUX} start sh -c 'echo run''ning; exec sleep 1000'"
    with terminal("sh", "-c", script, TMPDIR=str(tmp_path), HR_TEST=str(tmp_path)) as screen:
        screen.expect("running")
        assert end(screen, "int") == 130
    assert left(tmp_path) == []


def test_ctrl_c_twice_cancels_the_job_that_is_followed_and_ends_its_instance(tmp_path):
    argv = (FLUX, "start", "-s2", "flux", "run", "sh", "-c", "echo run''ning; exec sleep 1000")
    with terminal(*argv, TMPDIR=str(tmp_path), HR_TEST=str(tmp_path)) as screen:
        screen.expect("running")
        screen.type("\x03")
        screen.expect("one more ctrl-C")
        assert end(screen, "int") != 0
    assert left(tmp_path) == []


# Runs a program that begins with SIGINT ignored, as a shell without job control runs `program &`, and interrupts it
# until it ends: it may not wait yet when it is first interrupted.
IN_BACKGROUND = """
import os, signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
while process.poll() is None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(0.1)
    except subprocess.TimeoutExpired:
        pass
print(process.returncode, process.stdout.read().strip())
"""
WAITING = """
import flux
handle = flux.Flux()
call = handle.rpc("job-manager.events-journal", {}, flags=flux.constants.FLUX_RPC_STREAMING)
call.get()
"""


@pytest.mark.parametrize(
    ("wait", "status", "told"),
    [
        ("call.reset(); call.get()", -signal.SIGINT, ""),
        ("call.reset(); call.wait_for(300)", -signal.SIGINT, ""),
        (
            "try:\n    call.reset(); call.then(lambda call: call.reset()); handle.reactor_run()\n"
            "except KeyboardInterrupt:\n    print('interrupted'); raise SystemExit(7)",
            7,
            "interrupted",
        ),
    ],
)
def test_a_program_in_the_background_can_be_interrupted_while_it_waits(wait, status, told):
    done = start("-s1", sys.executable, "-c", IN_BACKGROUND, sys.executable, "-c", WAITING + wait)
    assert done.out.strip() == f"{status} {told}".strip(), done.err


def test_an_allocation_in_the_background_is_canceled():
    """`sh` without job control starts it with SIGINT ignored."""
    script = (
        "flux queue stop; flux alloc --bg -n1 & until flux jobs -no '{id}' | grep -q .; do :; done; "
        "kill -INT $!; wait $!; echo $?; flux jobs -ano '{id} {status}'"
    )
    done = start("-s1", "sh", "-c", script)
    status, job = done.out.splitlines()[-2:]
    assert (status, job.split()[1]) == ("1", "CANCELED")
    assert done.err == f"{job.split()[0]}: Interrupt: canceling job\n"
