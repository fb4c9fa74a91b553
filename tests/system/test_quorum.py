"""Brokers that never come: an instance that cannot begin without them says so, and ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from bootstrapped import cluster, until
from instance import FLUX, clean_env, start

_FAILS = "test $(flux getattr rank) != {} || { echo no luck; exit 7; }"
_DIES = "test $(flux getattr rank) != {} || kill -9 $(flux getattr broker.pid)"


@pytest.mark.parametrize(
    ("script", "how", "code"), [(_FAILS, "exited with rc=7", 7), (_DIES, "killed by signal 9", 137)]
)
@pytest.mark.parametrize(("rank", "topology"), [(1, "kary:32"), (3, "kary:2")])
def test_an_instance_that_can_never_have_its_quorum_ends(
    script: str, how: str, code: int, rank: int, topology: str
) -> None:
    options = ["--test-size=4", f"-Stbon.topo={topology}", "-Sbroker.rc3_path="]
    done = start(*options, f"-Sbroker.rc1_path={script.replace('{}', str(rank), 1)}", "echo", "never", timeout=240)
    assert (done.rc, done.out.replace("no luck\n", ""), done.left) == (code, "", [])
    assert re.search(rf"flux-start: {rank} \(pid \d+\) {how}\n", done.err)
    assert "flux-start: 4 brokers are needed and 3 are left: ending the instance\n" in done.err


def test_it_begins_with_those_it_needs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    # The program waits for the end of the one it does not need, or all could be over before.
    tried = f"flux getattr broker.pid > {pid}.new; mv {pid}.new {pid}"
    script = _FAILS.replace("{}", "1", 1).replace("exit", f"{tried}; exit")
    options = ["--test-size=3", "--test-exit-mode=leader", "-Sbroker.quorum=2", "-Sbroker.rc3_path="]
    options.append(f"-Sbroker.rc1_path={script}")
    program = f"until test -s {pid}; do sleep 0.05; done; while kill -0 $(cat {pid}); do sleep 0.05; done; echo here"
    done = start(*options, "sh", "-c", program, timeout=240)
    assert (done.rc, sorted(done.out.splitlines()), done.left) == (0, ["here", "no luck"], [])
    assert "rc1.0: " in done.err and "Exited (rc=7)" in done.err


def test_a_follower_that_is_lost_later_ends_nothing_where_the_leader_counts() -> None:
    lost = "until flux overlay status | grep -q lost; do sleep 0.05; done"
    script = f"kill -9 $(flux exec -r2 flux getattr broker.pid); {lost}; flux run -N2 true"
    done = start("--test-size=3", "--test-exit-mode=leader", script, timeout=240)
    assert (done.rc, done.left) == (0, [])
    assert "are needed" not in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_for_the_quorum_is_told_again_and_can_be_stopped_at_once(number: signal.Signals) -> None:
    waits = "test $(flux getattr rank) = 0 || sleep 100"
    options = ["-Sbroker.quorum-warn=100ms", f"-Sbroker.rc1_path={waits}", "-Sbroker.rc3_path="]
    line = [FLUX, "start", "--test-size=2", "--test-hosts=n[0-1]", *options, "true"]
    with subprocess.Popen(line, env=clean_env(), stderr=subprocess.PIPE, text=True, start_new_session=True) as flux:
        assert flux.stderr is not None
        for _ in range(2):
            while "quorum delayed: waiting for n1 (rank 1)" not in flux.stderr.readline():
                pass
        begin = time.monotonic()
        # As a terminal does; a service manager tells one process.
        (os.killpg if number == signal.SIGINT else os.kill)(flux.pid, number)
        flux.communicate(timeout=60)
    assert flux.returncode == 128 + number
    # The script would take 100 s.
    assert time.monotonic() - begin < 60


def test_a_broker_whose_leader_never_comes_says_so_and_can_be_interrupted() -> None:
    with cluster(2) as brokers:
        follower = brokers.broker(1)
        until(lambda: "which has not answered yet" in brokers.log(1), "a word")
        assert f"waiting for the parent broker at ipc://{brokers.folder}/fake0" in brokers.log(1)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == 0
        assert brokers.left() == []
