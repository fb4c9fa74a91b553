"""What an instance is refused for before it begins, and how its initial program and its last commands run."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from instance import start

# Neither modules nor scripts: what is looked at here comes before them.
BARE = ("-Sbroker.rc1_path=", "-Sbroker.rc3_path=")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-Slocal-uri=nowhere"], "local-uri is malformed"),
        (["-Slocal-uri=local:///no/such/folder/x"], "local-uri directory cannot stat /no/such/folder: No such file"),
        (["-Slocal-uri=local:///tmp/" + "x" * 120], "local-uri length of 125 bytes exceeds max 107"),
        (["-Slocal-uri=local:///tmp/" + "x" * 1200], "buffer overflow"),
        (["-Srundir=/tmp/" + "x" * 120], "rundir length of 125 bytes exceeds max 96"),
        (["-Slog-filename="], "log-filename: give a file"),
        (["-Slog-syslog-enable=2"], "log-syslog-enable: '2' is neither 0 nor 1"),
        (["-Slog-syslog-enable"], "log-syslog-enable: '' is neither"),
        (["-Stbon.child_rcvhwm=1"], "tbon.child_rcvhwm: value must be 0 (unlimited) or >= 2"),
        (["-Slog-stderr-level=-2"], "log-stderr-level: '-2' is not a level"),
        (["-s2", "-Stbon.topo=moebius:2"], "unknown topology scheme 'moebius'"),
        (["-s2", "--test-pmi-clique=none", "-Stbon.interface-hint=nosuch0"], "tbon.interface-hint=nosuch0"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], told: str) -> None:
    done = start(*BARE, *options, "true")
    assert done.rc == 1
    assert done.err.startswith("flux-broker: ")
    assert told in done.err
    assert not done.left


@pytest.mark.parametrize(
    ("tmpdir", "told"),
    [("/no/such", "cannot create directory in /no/such: No such file"), ("/x" * 600, "rundir buffer overflow")],
)
def test_a_folder_for_run_directories_that_cannot_be_one_is_named(tmpdir: str, told: str) -> None:
    done = start("sh", "-c", f"TMPDIR={tmpdir} flux start {' '.join(BARE)} true; echo $?")
    assert done.out == "1\n"
    assert f"flux-broker: {told}" in done.err


def test_a_folder_without_permission_to_write_is_no_place_for_a_socket(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = start(*BARE, f"-Slocal-uri=local://{tmp_path}/x", "true")
    assert f"flux-broker: local-uri directory permissions: {tmp_path} is not writable" in done.err


def test_a_working_directory_that_was_removed_is_told_of(tmp_path: Path) -> None:
    script = f"mkdir w; cd w; rmdir ../w; flux start {' '.join(BARE)} true; echo $?"
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert done.out == "1\n"
    assert "Unable to get current working directory" in done.err


def test_a_program_that_is_one_file_is_executed_itself(tmp_path: Path) -> None:
    script = tmp_path / "pro $ gram"
    for text, status in (("#!/bin/sh\nexit 7\n", 7), ("exit 7\n", 126)):
        script.write_text(text)
        script.chmod(0o755)
        assert start(*BARE, str(script)).rc == status
        assert start(*BARE, script.name, cwd=str(tmp_path)).rc == status
    # Words go to the shell, which says so itself if it is none.
    assert start(*BARE, "exit 7").rc == 7
    assert start(*BARE, "exit 7", SHELL="/no/such/shell").rc == 127


def test_an_interactive_shell_needs_a_terminal() -> None:
    done = start(*BARE)
    assert done.rc == 1
    assert "stdin is not a tty - can't run interactive shell" in done.err


def test_a_signal_is_the_usual_end_of_an_instance_without_a_program() -> None:
    script = "until flux getattr broker.pid >$TMPDIR/pid; do :; done; kill -TERM $(cat $TMPDIR/pid)"
    started = f"flux start {' '.join(BARE)} -Sbroker.rc2_none -Slocal-uri=local://$TMPDIR/socket & "
    done = start("sh", "-c", f"{started} export FLUX_URI=local://$TMPDIR/socket; {script}; wait $!; echo $?")
    assert done.out == "0\n", done.err


def test_lines_of_cleanup_commands_are_logged_and_nothing_else_is_counted() -> None:
    push = "printf 'echo one; echo two >&2\\nprintf three\\n' | flux admin cleanup-push"
    done = start(*BARE, "-Slog-stderr-level=6", "sh", "-c", push)
    lines = [line.partition(" broker.")[2] for line in done.err.splitlines() if "cleanup." in line]
    said = [re.sub(r" Exited.*", " Exited", line) for line in lines if "info[0]: rc2.0" not in line]
    first, second = "echo one; echo two >&2", "printf three"
    assert sorted(said[: said.index(f"info[0]: cleanup.0: {first} Exited")]) == [
        "err[0]: cleanup.0: two",
        "info[0]: cleanup.0: one",
    ]
    assert said[said.index(f"info[0]: cleanup.0: {first} Exited") + 1 :] == [
        "info[0]: cleanup.1: three",
        f"info[0]: cleanup.1: {second} Exited",
    ]


def test_a_script_of_an_instance_in_a_job_has_nothing_of_the_job(tmp_path: Path) -> None:
    nested = f"flux start -Sbroker.rc1_path='env >{tmp_path}/env' -Sbroker.rc3_path= true"
    done = start("-s1", f'flux run sh -c "{nested}"')
    assert done.rc == 0, done.err
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "FLUX_URI" in names
    assert not [name for name in names if name.startswith(("FLUX_JOB_", "FLUX_TASK_")) or name == "FLUX_KVS_NAMESPACE"]


STATES = [
    *("load-builtins", "join", "config-sync", "init", "quorum", "run"),
    *("cleanup", "shutdown", "finalize", "goodbye", "unload-builtins", "exit"),
]


def test_a_broker_passes_the_states_of_flux_and_says_which_event_led_on() -> None:
    read = "flux python -c 'import flux; print(flux.Flux().rpc(\"state-machine.monitor\", flags=2).get())'"
    done = start("-s2", *BARE, "-Slog-stderr-level=6", "sh", "-c", f"hostname -s; {read}")
    name, monitored = done.out.splitlines()
    assert monitored == f"{{'state': {STATES.index('run')}}}"
    steps = re.findall(r"broker.info\[0\]: (\S+): (\S+)->(\S+) ", done.err)
    assert [after for _, _, after in steps] == STATES[1:]
    assert [before for _, before, _ in steps] == STATES[:-1]
    assert [event for event, _, _ in steps] == [
        *("builtins-success", "parent-none", "sync-none", "rc1-none", "quorum-full", "rc2-success", "cleanup-none"),
        *("children-complete", "rc3-none", "goodbye", "builtins-done"),
    ]
    assert f"broker.info[0]: online: {name},{name} (ranks 0-1)" in done.err
    followers = re.findall(r"broker.info\[1\]: (\S+): (?:join|config-sync)->", done.err)
    assert followers == ["parent-ready", "sync-success"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [("foo=42", "error parsing [access] configuration: 1 object item(s) left unpacked: foo"), ("roles=1", "a table")],
)
def test_a_bad_access_table_ends_the_start_in_its_first_state(setting: str, says: str) -> None:
    done = start(*BARE, "-Slog-stderr-level=6", f"--conf=access.{setting}", "echo", "runs")
    assert (done.rc, done.out, done.left) == (1, "", [])
    assert re.search(rf"connector-local.crit\[0\]: .*{re.escape(says)}", done.err)
    assert re.search(r"broker.info\[0\]: builtins-fail: load-builtins->exit ", done.err)


MONITOR = """
import flux
handle = flux.Flux()
stream = handle.rpc("overlay.monitor", flags=2)
for cut in (None, 1):
    if cut:
        handle.rpc("overlay.disconnect-subtree", {"rank": cut}).get()
    for _ in range(1 if cut else 2):
        print(*stream.get().values())
        stream.reset()
try:
    handle.rpc("overlay.monitor").get()
except OSError as exc:
    print(exc.strerror)
"""


def test_the_overlay_streams_its_children_and_their_changes() -> None:
    done = start("-s3", "-Stbon.topo=kary:2", *BARE, "flux", "python", "-c", MONITOR)
    assert done.out.splitlines() == ["1 full False", "2 full False", "1 lost False", "Protocol error"], done.err


def test_a_cleanup_command_that_fails_fails_the_cleanup() -> None:
    done = start(*BARE, "-Slog-stderr-level=6", "sh", "-c", "echo exit 9 | flux admin cleanup-push")
    assert done.rc == 9
    assert "cleanup-fail: cleanup->shutdown" in done.err


NODE = "<topology><object type='Machine'>" + "<object type='Core'/>" * 3 + "</object></topology>"


def test_resources_are_those_of_a_topology_file_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "node.xml"
    file.write_text(NODE)
    done = start("-s2", "flux resource list -s all -no '{ncores} {ngpus}'", FLUX_HWLOC_XMLFILE=str(file))
    assert (done.rc, done.out) == (0, "6 0\n"), done.err
    file.unlink()
    done = start("true", FLUX_HWLOC_XMLFILE=str(file))
    assert done.rc == 1
    assert f"FLUX_HWLOC_XMLFILE: {file}: No such file or directory" in done.err


def test_an_instance_in_a_job_has_the_interface_hint_of_its_parent() -> None:
    done = start("-Stbon.interface-hint=lo", "flux run flux start flux getattr tbon.interface-hint")
    assert (done.rc, done.out) == (0, "lo\n"), done.err
