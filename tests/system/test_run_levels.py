"""What runs before and after the initial program, what its environment is, and when an instance is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from instance import start


def test_scripts_run_on_every_broker_before_and_after_the_program(tmp_path: Path) -> None:
    script = f"echo $(flux getattr rank) $(flux getattr local-uri | grep -c ^local:) >>{tmp_path}/"
    done = start(
        "--test-size=2", f"-Sbroker.rc1_path={script}rc1", f"-Sbroker.rc3_path={script}rc3", f"cat {tmp_path}/rc1"
    )
    assert (sorted(done.out.split("\n")), done.rc) == (["", "0 1", "1 1"], 0)
    assert sorted((tmp_path / "rc3").read_text().split("\n")) == ["", "0 1", "1 1"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["-Sbroker.rc1_path=exit 3"], 3),
        (["-Sbroker.rc1_path=exit 3", "-Sbroker.exit-norestart=99"], 99),
        (["-Sbroker.rc1_path=/nonexistent"], 127),
        (["-Sbroker.rc3_path=exit 4"], 4),
    ],
)
def test_a_script_that_fails_is_the_exit_code(options: list[str], status: int) -> None:
    done = start(*options, "echo ran")
    assert done.rc == status
    assert done.out == ("ran\n" if status == 4 else "")


def test_an_instance_in_a_job_does_not_have_the_jobs_environment() -> None:
    names = "FLUX_JOB_ID= FLUX_JOB_SIZE= FLUX_JOB_TMPDIR= FLUX_TASK_RANK= FLUX_URI="
    pattern = "|".join(names.split())
    done = start(f"flux run flux start env | grep -E '^({pattern})'")
    assert [line.split("=")[0] for line in done.out.split()] == ["FLUX_URI"]


@pytest.mark.parametrize("quorum", ["9-10", "99", "x"])
def test_a_quorum_that_never_comes_is_refused(quorum: str) -> None:
    done = start("--test-size=1", f"-Sbroker.quorum={quorum}", "true")
    assert done.rc == 1
    assert "Error parsing broker.quorum attribute" in done.err


@pytest.mark.parametrize("ranks", ["x", "0-2"])
def test_critical_ranks_that_there_are_not_are_refused(ranks: str) -> None:
    done = start("--test-size=2", f"-Sbroker.critical-ranks={ranks}", "true")
    assert done.rc == 1
    assert "Error parsing broker.critical-ranks attribute" in done.err


def test_the_configuration_may_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[tbon]\ntorpid_min = '3s'\n")
    script = "flux getattr config.path; flux getattr tbon.torpid_min; flux setattr log-stderr-level 7"
    done = start(f"{script}; flux logger -s debug x", FLUX_CONF_DIR=str(tmp_path))
    assert done.out == f"{tmp_path}\n3s\n"
    assert "logger.debug[0]: x" in done.err


def test_who_is_late_is_named(tmp_path: Path) -> None:
    late = "test $(flux getattr rank) = 0 || sleep 1"
    options = ["-Sbroker.quorum-warn=200ms", "-Sbroker.shutdown-warn=200ms", "--test-hosts=n[0-1]"]
    done = start("--test-size=2", *options, f"-Sbroker.rc1_path={late}", f"-Sbroker.rc3_path={late}", "true")
    assert "quorum delayed: waiting for n1 (rank 1)" in done.err
    assert "quorum reached" in done.err
    assert "shutdown delayed: waiting for n1 (rank 1)" in done.err


def test_brokers_are_in_a_group_as_long_as_their_clients_join_it() -> None:
    script = """
import flux
h = flux.Flux()
def members(call):
    if call.get()["members"] == "0-2":
        call.flux_handle.reactor_stop()
    else:
        call.reset()
h.rpc("groups.get", {"name": "g"}, nodeid=0, flags=flux.constants.FLUX_RPC_STREAMING).then(members)
h.rpc("groups.join", {"name": "g"}).get()
h.reactor_run()
print("all")
"""
    get = "import flux; print(flux.Flux().rpc('groups.get', {'name': 'g'}, nodeid=0).get())"
    done = start("--test-size=3", f'flux exec flux python -c "$SCRIPT"; flux python -c "{get}"', SCRIPT=script)
    assert done.out == "all\n" * 3 + "{'members': ''}\n"


def test_paths_may_be_put_in_front_of_those_that_commands_get() -> None:
    names = ("PYTHONPATH", "FLUX_EXEC_PATH", "FLUX_MODULE_PATH", "FLUX_CONNECTOR_PATH")
    given = " ".join(f"FLUX_{name.replace('FLUX_', '')}_PREPEND=/x:/y" for name in names)
    done = start(f"{given} FLUX_MODULE_PATH=/z flux env printenv {' '.join(names)}")
    found = dict(zip(names, done.out.split()))
    assert all(text.startswith("/x:/y:/") for text in found.values())
    assert found["FLUX_MODULE_PATH"].endswith(":/z")


def test_a_broker_that_is_told_to_go_takes_those_below_it_along_in_order() -> None:
    script = (
        "kill $(flux exec -r1 flux getattr broker.pid); flux overlay status --timeout=0 --summary --wait=partial; "
        "while flux overlay status --no-pretty | grep -q '1 n1: [pf]'; do sleep 0.1; done; "
        "flux overlay status --no-pretty; flux dmesg | grep -o '[[][134][]]: builtins-done: .*exit' | sort"
    )
    done = start("--test-size=7", "-Stbon.topo=kary:2", "--test-hosts=n[0-6]", script)
    left = [f"{rank} n{rank}: offline" for rank in (1, 3, 4)]
    here = ["2 n2: full", "5 n5: full", "6 n6: full"]
    ends = [f"[{rank}]: builtins-done: unload-builtins->exit" for rank in (1, 3, 4)]
    assert (done.out.splitlines(), done.err) == (["partial", "0 n0: partial", *left, *here, *ends], "")


def cleanup_lines(log: str) -> list[str]:
    """What the commands of `cleanup` printed, as the log of level info has it."""
    lines = [line.partition(": cleanup.")[2].partition(": ")[2] for line in log.splitlines()]
    return [
        line for line in lines if line and "(rc=" not in line and not re.fullmatch(r".*: (done|timed out) .*s", line)
    ]


def test_pushed_commands_run_after_the_program_the_last_pushed_first(tmp_path: Path) -> None:
    push = "flux admin cleanup-push"
    script = f"{push} echo one; printf 'echo two\\necho three' | {push}; {push} 'flux getattr rank'; echo program"
    done = start("-Slog-stderr-level=6", script)
    assert (done.out, done.rc) == ("program\n", 0)
    assert cleanup_lines(done.err) == ["0", "two", "three", "one"]


def test_a_pushed_command_that_fails_is_the_exit_code_and_the_others_run() -> None:
    script = "flux admin cleanup-push echo last; flux admin cleanup-push exit 7"
    done = start("--test-size=2", "-Slog-stderr-level=6", script)
    assert (done.out, done.rc, done.left) == ("", 7, [])
    assert cleanup_lines(done.err) == ["last"]


def test_commands_can_be_pushed_to_cleanup_of_the_leader_alone() -> None:
    script = "flux exec -r1 flux admin cleanup-push true; flux admin cleanup-push echo ran"
    done = start("--test-size=2", "-Slog-stderr-level=6", script)
    assert "commands can be pushed to cleanup of rank 0" in done.err
    assert cleanup_lines(done.err) == ["ran"]


def test_a_pushed_command_has_the_time_of_cleanup() -> None:
    done = start("-Sbroker.cleanup-timeout=200ms", "flux admin cleanup-push sleep 100", timeout=240)
    assert (done.rc, done.left) == (129, [])


@pytest.mark.parametrize(("pushed", "status"), [("sleep 100", 129), ("exit 3", 3), ("true", 143)])
def test_an_instance_that_a_signal_ends_says_what_became_of_its_cleanup(pushed: str, status: int) -> None:
    script = f"echo '{pushed}' | flux admin cleanup-push; kill -TERM $(flux getattr broker.pid); sleep 100"
    done = start("-Sbroker.cleanup-timeout=1s", script, timeout=240)
    assert (done.rc, done.left) == (status, [])
