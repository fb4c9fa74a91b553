"""The service `start` of `flux start`: brokers of a test instance are killed, awaited and started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from instance import FLUX, clean_env, start

# Prints what each request of the command line got: its answer, or the number of its error.
ASK = """
import json, os, sys, flux
with flux.Flux(os.environ["FLUX_START_URI"]) as handle:
    for text in sys.argv[1:]:
        method, _, body = text.partition(" ")
        try:
            answer = handle.rpc(method, json.loads(body) if body else None).get()
        except OSError as exc:
            answer = exc.errno
        print(json.dumps(answer))
"""
WHOLE = "flux overlay status --wait=full --timeout=30s >/dev/null"


@pytest.fixture
def ask(tmp_path: Path) -> str:
    path = tmp_path / "ask.py"
    path.write_text(ASK)
    return f"{sys.executable} {path}"


@pytest.fixture
def table(tmp_path: Path) -> list[str]:
    """Options for three brokers that boot from a table `[bootstrap]`, in a run directory that stays."""
    subprocess.run([FLUX, "keygen", f"{tmp_path}/cert"], check=True, env=clean_env())
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "conf.toml").write_text(
        f"""
        [bootstrap]
        curve_cert = "{tmp_path}/cert"
        default_bind = "ipc://{tmp_path}/run/tbon-%h"
        default_connect = "ipc://{tmp_path}/run/tbon-%h"
        hosts = [{{host = "fake[0-2]"}}]
        [resource]
        noverify = true
        """
    )
    return [
        *("-s3", "--test-hosts=fake[0-2]", "-c", f"{tmp_path}/conf.toml", f"--test-rundir={tmp_path}/run"),
        *("--test-exit-mode=leader", "--test-exit-timeout=0", "-Stbon.topo=custom"),
    ]


CYCLE = """
$ASK start.status 'start.kill {"rank": 2, "signum": 9}' 'start.wait {"rank": 2}' start.status \
    'start.kill {"rank": 2, "signum": 9}' 'start.run {"rank": 2}' 'start.run {"rank": 2}'
"""


def pids(line: str) -> list[int]:
    return [proc["pid"] for proc in json.loads(line)["procs"]]


@pytest.mark.parametrize("booted", ["forked", "from a table"])
def test_a_killed_broker_is_awaited_and_started_again(booted: str, ask: str, table: list[str]) -> None:
    options = table if booted == "from a table" else ["-s3"]
    done = start(*options, "sh", "-c", f"{CYCLE} {WHOLE} && flux run -N3 sh -c 'echo ran'", ASK=ask)
    assert done.rc == 0, done.err
    before, killed, code, after, *rest = done.out.splitlines()
    assert len(set(pids(before))) == 3
    assert min(pids(before)) > 0
    assert (killed, code) == ("{}", '{"exit_rc": 137}')
    assert pids(after) == [*pids(before)[:2], -1]
    # ESRCH, an answer, EEXIST
    assert rest == ["3", "{}", "17", "ran", "ran", "ran"]
    assert not done.left


def test_what_cannot_be_is_refused(ask: str) -> None:
    requests = ("start.kill {}", 'start.run {"rank": true}', 'start.wait {"rank": 7}', "start.nosuch", "kvs.get")
    done = start("-s2", "sh", "-c", f"{ask} {' '.join(repr(each) for each in requests)}")
    # EPROTO, EPROTO, EINVAL, ENOSYS, ENOSYS
    assert done.out.splitlines() == ["71", "71", "22", "38", "38"]


def test_brokers_of_a_table_know_their_hosts_and_leave_the_run_directory(table: list[str], tmp_path: Path) -> None:
    done = start(*table, "sh", "-c", "flux getattr hostlist; flux getattr broker.boot-method; flux exec -r2 printenv x")
    assert done.out.splitlines() == ["fake[0-2]", "config"], done.err
    assert (tmp_path / "run").is_dir()
    done = start(*table, "--test-rundir-cleanup", "true")
    assert done.rc == 0, done.err
    assert not (tmp_path / "run").exists()


def test_only_the_leader_is_started_where_that_is_asked_for(ask: str, table: list[str]) -> None:
    script = (
        f"{ask} start.status 'start.run {{\"rank\": 1}}'; flux overlay status --wait=partial --timeout=30s >/dev/null; "
    )
    script += "until flux exec -r1 flux getattr rank 2>/dev/null; do :; done"
    done = start(*table, "--test-start-mode=leader", "-Sbroker.quorum=1", "sh", "-c", script)
    lines = done.out.splitlines()
    assert pids(lines[0])[1:] == [-1, -1], done.err
    assert lines[1:] == ["{}", "1"]


@pytest.mark.parametrize(
    ("options", "waits", "status"),
    [
        # A follower that fails ends the others, and the largest status counts.
        (["--test-exit-timeout=0"], True, 137),
        (["--test-exit-mode=any", "--test-exit-timeout=100ms"], True, 137),
        # By default the program has 20 s to end.
        ([], False, 137),
        # The others go on, and the leader's status counts.
        (["--test-exit-mode=leader", "--test-exit-timeout=0"], False, 5),
        (["--test-exit-mode=leader"], False, 5),
    ],
)
def test_whose_end_ends_the_instance(options: list[str], waits: bool, status: int, ask: str) -> None:
    """The program ends when the killed broker is gone, or waits until it is killed."""
    script = f'{ask} \'start.kill {{"rank": 1, "signum": 9}}\' \'start.wait {{"rank": 1}}\'; '
    script += "sleep 300" if waits else "flux overlay status --wait=degraded --timeout=30s; exit 5"
    done = start("-s2", *options, "sh", "-c", script)
    assert done.rc == status, done.err
    assert "flux-start: 1 (pid " in done.err
    assert ("the instance ends in 20 s; with --test-exit-mode=leader it would continue" in done.err) == (options == [])
    assert not done.left


def test_brokers_that_met_by_pmi_cannot_be_started_again() -> None:
    """With `--wrap` brokers are programs that boot by PMI."""
    script = """
import os, flux
with flux.Flux(os.environ["FLUX_START_URI"]) as handle:
    handle.rpc("start.kill", {"rank": 1, "signum": 9}).get()
    handle.rpc("start.wait", {"rank": 1}).get()
    try:
        handle.rpc("start.run", {"rank": 1}).get()
    except OSError as exc:
        print(exc)
"""
    done = start("-s2", "--wrap=env", "--test-exit-mode=leader", sys.executable, "-c", script)
    assert "a broker that was started by PMI cannot be started again: give a table [bootstrap]" in done.out
    assert (done.rc, done.left) == (0, []), done.err


def test_clients_are_told_of_with_v() -> None:
    done = start("-s1", "-v", "sh", "-c", "flux python -c 'import os, flux; flux.Flux(os.environ[\"FLUX_START_URI\"])'")
    lines = [line for line in done.err.splitlines() if "flux broker" not in line]
    name = lines[0].rpartition(" ")[2]
    assert lines == [f"flux-start: {what} {name}" for what in ("hi", "bye", "disconnect from")]


def test_a_broker_of_ones_own_is_run(tmp_path: Path) -> None:
    broker = tmp_path / "flux-broker"
    broker.write_text(f'#!/bin/sh\necho broker >&2\nexec {FLUX} broker "$@"\n')
    broker.chmod(0o755)
    done = start("-s2", "flux getattr size", FLUX_EXEC_PATH_PREPEND=str(tmp_path))
    assert (done.rc, done.out, done.err) == (0, "2\n", "broker\nbroker\n")
    done = start("flux getattr size", FLUX_EXEC_PATH=str(tmp_path))
    assert (done.rc, done.out, done.err) == (0, "1\n", "broker\n")
    broker.write_text("#!/bin/sh\nexit 3\n")
    assert start("-s1", "true", FLUX_EXEC_PATH=str(tmp_path)).rc == 3


def test_a_start_of_programs_ends_when_one_of_them_fails_before_they_met(tmp_path: Path) -> None:
    broker = tmp_path / "flux-broker"
    broker.write_text(f'#!/bin/sh\ntest $PMI_RANK = 1 && exit 3\nexec {FLUX} broker "$@"\n')
    broker.chmod(0o755)
    done = start("-s2", "true", FLUX_EXEC_PATH=str(tmp_path), timeout=240)
    assert done.rc == 3
    assert "2 brokers are needed and 1 are left: ending the instance" in done.err
    assert not done.left
