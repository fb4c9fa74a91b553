"""The leader of an instance dies while that is starting: its followers wait for nobody, and nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from instance import FLUX, clean_env, processes_with, start

from headrace.engine.broker.boot.boot import free_port, new_keys
from headrace.engine.shell.pmi import PmiServer

# `flux start` whose broker is killed when its program runs and nobody was told.
_KILLED_TOO_SOON = """
import os, signal, sys
from headrace.engine.broker import program
from headrace.cli.main import flux
def spawn_and_die(*args, **more):
    real(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
real, program.spawn = program.spawn, spawn_and_die
sys.argv = ["flux", "start", *sys.argv[1:]]
flux()
"""
# Seconds after the leader has a process: while it loads, while brokers meet, while the program starts.
_MOMENTS = "0.02 0.1 0.15 0.2 0.25 0.3 0.4"
_SCRIPT = """
for moment in $MOMENTS; do
    id=$(flux batch -N2 -t 5m --output=/dev/null --wrap sleep 100)
    until pids=$(flux job hostpids $id 2>/dev/null); do :; done
    pid=${pids%%,*}; sleep $moment; kill -9 ${pid##*:}
    timeout 20 flux job status $id; echo $moment $?
    flux cancel $id 2>/dev/null
done
"""


def test_a_batch_job_ends_when_its_leader_is_killed_whenever_that_is() -> None:
    done = start("--test-size=2", _SCRIPT, MOMENTS=_MOMENTS, timeout=200)
    assert done.out.splitlines() == [f"{moment} 137" for moment in _MOMENTS.split()], done.err
    assert done.left == []


@pytest.mark.parametrize(("limit", "waits"), [("300ms", False), ("0", True)])
def test_a_broker_that_finds_no_parent_gives_up_after_the_connect_timeout(limit: str, waits: bool) -> None:
    ours, its = socket.socketpair()
    parent = f"tcp://127.0.0.1:{free_port()}"
    from zmq.utils import z85

    card = f"{os.uname().nodename},{z85.decode(new_keys()[0]).hex()},{parent}"
    threading.Thread(target=_serve, args=(ours, {"headrace.0": card}), daemon=True).start()
    broker = subprocess.Popen(
        [FLUX, "broker", f"-Stbon.connect_timeout={limit}"],
        env=clean_env(PMI_FD=str(its.fileno()), PMI_RANK="1", PMI_SIZE="2"),
        pass_fds=[its.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    its.close()
    if waits:
        with pytest.raises(subprocess.TimeoutExpired):
            broker.wait(1)
        broker.send_signal(signal.SIGTERM)
    _out, err = broker.communicate(timeout=60)
    text = f"the parent broker at {parent} has not answered within tbon.connect_timeout=300ms: giving up"
    assert (text in err, broker.returncode) == ((False, 0) if waits else (True, 1)), err


def _serve(sock: socket.socket, pairs: dict[str, str]) -> None:
    """PMI for one task, whose barriers are complete at once."""
    server = PmiServer("a", 2, 1, pairs, lambda _kvs: server.complete({}), lambda *_what: None, lambda _note: None)
    with sock, sock.makefile("rb") as lines:
        for line in lines:
            server.line(line.decode(), 0, sock.sendall)


def test_no_run_directory_is_left_by_a_broker_that_is_killed_while_it_waits_for_others(tmp_path) -> None:
    ours, its = socket.socketpair()
    broker = subprocess.Popen(
        [FLUX, "broker"],
        env=clean_env(PMI_FD=str(its.fileno()), PMI_RANK="1", PMI_SIZE="2", TMPDIR=str(tmp_path)),
        pass_fds=[its.fileno()],
    )
    its.close()
    # It asks, and gets no answer.
    assert ours.recv(1)
    broker.kill()
    broker.wait()
    assert os.listdir(tmp_path) == []


def test_a_program_whose_broker_was_killed_as_it_started_is_killed(tmp_path) -> None:
    env = clean_env(HR_TEST=str(tmp_path), TMPDIR=str(tmp_path))
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED_TOO_SOON, "sleep 1000; true"], env=env, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while left := [*processes_with(f"HR_TEST={tmp_path}"), *os.listdir(tmp_path)]:
        if time.monotonic() > deadline:
            for line in left:
                if "sleep" in line:
                    os.kill(int(line.split()[0]), signal.SIGKILL)
            pytest.fail(f"left: {left}")
        time.sleep(0.02)
