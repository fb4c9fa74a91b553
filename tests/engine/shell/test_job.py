"""Jobs of one node as a user sees them: status, output, environment, limits, signals and the end."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_world import Job, World

from headrace.engine.process.linux import is_running
from headrace.formats.spec import archive, jobid


def test_a_task_that_succeeds_reports_its_life_in_order(world: World) -> None:
    job = world.run(["true"])
    assert job.status == 0
    assert [name for name, _ in job.events] == ["shell.init", "shell.start", "shell.task-exit"]
    assert job.event("shell.init")["leader-rank"] == 0
    assert job.event("shell.start") == {"taskmap": {"version": 1, "map": [[0, 1, 1, 1]]}}
    exited = job.event("shell.task-exit")
    assert (exited["state"], exited["wait_status"], exited["exitcode"], exited["rank"]) == ("Exited", 0, 0, 0)
    assert job.entries[0] == (
        "header",
        {
            "version": 1,
            "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
            "count": {"stdout": 1, "stderr": 1},
            "options": {},
        },
    )
    assert sum(1 for name, context in job.entries if name == "data" and context.get("eof")) == 2


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -ALRM $$", 142), ("kill -TERM $$", 143)]
)
def test_the_status_is_the_tasks_own(world: World, script: str, code: int) -> None:
    assert world.shell(script).status == code << 8


def test_the_largest_status_of_several_tasks_counts(world: World) -> None:
    assert world.shell("exit $FLUX_TASK_RANK", 3).status == 2 << 8


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [("no-such-program", 127, "No such file or directory"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_program_that_cannot_start_is_named(world: World, program: str, code: int, why: str) -> None:
    job = world.run([program])
    note = f"task 0 (host host0): start failed: {program}: {why}"
    assert job.status == code << 8
    assert [(each["type"], each["severity"], each["note"]) for each in job.exceptions] == [("exec", 0, note)]
    (log,) = [context for name, context in job.entries if name == "log"]
    assert (log["level"], log["message"], log["rank"]) == (0, note, 0)


def test_output_keeps_its_streams_apart_and_its_bytes(world: World) -> None:
    job = world.shell(r"printf 'a\nb'; printf 'e\n' >&2; printf '\377\n'")
    assert job.text("stderr") == "e\n"
    assert b"".join(_raw(job)) == b"a\nb\xff\n"


def _raw(job: Job) -> list[bytes]:
    from headrace.formats.spec import stdio

    return [
        stdio.decode_data(context).data or b""
        for name, context in job.entries
        if name == "data" and context["stream"] == "stdout"
    ]


@pytest.mark.parametrize("script", ["yes | head -c 5000", "head -c 5000 /dev/zero", r"seq 1 4000; printf '\\377'"])
def test_the_output_limit_keeps_what_comes_before_it(world: World, script: str) -> None:
    job = world.shell(script, options={"output": {"limit": "1k"}})
    assert [len(b"".join(_raw(job)))] == [1024]
    first, last = job.logs()
    assert first == "stdout truncated: output limit of 1024 bytes reached, the rest is dropped"
    dropped, _, rest = last.removeprefix("stdout: ").partition(" of ")
    assert int(dropped) == int(rest.removesuffix(" bytes truncated")) - 1024


@pytest.mark.parametrize(("asked", "kept"), [({}, 1024), ({"limit": "1G"}, 1024), ({"limit": "1000"}, 1000)])
def test_a_job_cannot_ask_for_more_output_than_its_user_may_have(
    world: World, asked: dict[str, str], kept: int
) -> None:
    job = world.shell("yes | head -c 5000", options={"output": asked}, most_output=1024)
    assert len(b"".join(_raw(job))) == kept
    assert job.logs()[0] == f"stdout truncated: output limit of {kept} bytes reached, the rest is dropped"


def test_each_stream_has_its_own_limit(world: World) -> None:
    job = world.shell("head -c 600 /dev/zero; head -c 600 /dev/zero >&2", options={"output": {"limit": "1k"}})
    assert (len(job.text()), len(job.text("stderr")), job.logs()) == (600, 600, [])


def test_the_shell_writes_to_the_file_of_stderr_too(world: World, tmp_path: Path) -> None:
    file = {"type": "file", "path": str(tmp_path / "err")}
    world.run(["no-such-program"], options={"output": {"stderr": file}})
    text = "FATAL: task 0 (host host0): start failed: no-such-program: No such file or directory"
    assert (tmp_path / "err").read_text() == f"flux-shell[0]: {text}\n"
    file["path"] = str(tmp_path / "err.{{node.id}}")
    world.run(["true"], 2, nodes=[0, 1], options={"output": {"stderr": file}, "verbose": 1})
    assert [(tmp_path / f"err.{node}").read_text() for node in (0, 1)] == [
        "flux-shell[0]: DEBUG: host0: tasks 0 of 2\n",
        "flux-shell[1]: DEBUG: host1: tasks 1 of 2\n",
    ]


def test_much_output_arrives_whole(world: World) -> None:
    assert len(world.shell("seq 1 200000", 2).text(rank=1)) == 1288895


def test_tasks_know_who_and_where_they_are(world: World) -> None:
    job = world.shell("env", 2, env={"MINE": "1", "FLUX_TASK_RANK": "9", "PMI_FD": "77", "FLUX_KVS_NAMESPACE": "x"})
    env = dict(line.split("=", 1) for line in job.text(rank=1).splitlines())
    wanted = {
        "FLUX_TASK_RANK": "1",
        "FLUX_TASK_LOCAL_ID": "1",
        "FLUX_JOB_SIZE": "2",
        "FLUX_JOB_NNODES": "1",
        "FLUX_JOB_ID": jobid.encode(job.id),
        "FLUX_URI": "local:///nowhere",
        "FLUX_KVS_NAMESPACE": f"job-{job.id}",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
        "CUDA_VISIBLE_DEVICES": "-1",
        "MINE": "1",
    }
    assert {name: env.get(name) for name in wanted} == wanted
    assert env["PMI_FD"] != "77"


def test_tasks_inherit_no_descriptor_of_the_agent(world: World) -> None:
    # Without a shell, which may have a pipe open; 3 is the folder that ls reads.
    job = world.run(["ls", "/proc/self/fd"], options={"pmi": "off"})
    assert job.text().split() == ["0", "1", "2", "3"]


def test_the_private_folder_lasts_as_long_as_the_job(world: World) -> None:
    job = world.shell('echo $FLUX_JOB_TMPDIR; mkdir -p "$FLUX_JOB_TMPDIR/a/b" && stat -c %a "$FLUX_JOB_TMPDIR"')
    folder, mode = job.text().split()
    assert mode == "700"
    world.run(["true"])
    assert not os.path.exists(folder)


def test_files_of_the_jobspec_are_staged(world: World) -> None:
    spec = _jobspec("cat {{tmpdir}}/one; {{tmpdir}}/two")
    spec["attributes"]["system"]["files"] = {
        "one": archive.entry("text\n"),
        "two": archive.entry("#!/bin/sh\necho ran\n", perms=0o700),
    }
    assert world.run([], jobspec=spec).text() == "text\nran\n"


def _jobspec(script: str) -> dict[str, Any]:
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["sh", "-c", script], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "environment": {"PATH": os.environ["PATH"]}}},
    }


def test_a_jobspec_that_makes_no_sense_costs_only_its_own_job(world: World) -> None:
    spec = _jobspec("true")
    spec["tasks"][0]["count"] = {"per_moon": 1}
    job = world.run([], jobspec=spec)
    assert job.status == 1 << 8
    assert "per_moon" in job.exceptions[0]["note"]
    assert world.run(["true"]).status == 0


def test_what_the_submitters_environment_holds_is_no_template(world: World) -> None:
    assert world.shell("echo $X", env={"X": "a{{id}}"}).text() == "a{{id}}\n"


def test_templates_of_variables_must_be_strings(world: World) -> None:
    job = world.run(["true"], options={"env-expand": {"X": 1}})
    assert (job.status, "env-expand" in job.exceptions[0]["note"]) == (1 << 8, True)


def test_templates_in_arguments_and_environment_are_filled(world: World) -> None:
    templates = {"X": "{{jobid.dec}}", "Y": "{{taskid}}"}
    script = "echo {{id}} {{taskid}} {{ntasks}} {{bogus}} $X $Y"
    job = world.run(["sh", "-c", script], 2, options={"env-expand": templates})
    assert job.text(rank=1) == f"{jobid.encode(job.id)} 1 2 {{{{bogus}}}} {job.id} 1\n"
    node = world.run(["echo", "{{node.ncores}} {{node.resources}}"]).text()
    count, _, resources = node.partition(" ")
    assert json.loads(resources)["ncores"] == int(count)


def test_a_missing_working_directory_is_replaced_and_told(world: World) -> None:
    job = world.run(["pwd"], cwd="/no/such/folder")
    assert job.text() == "/tmp\n"
    assert job.logs() == ["Could not change dir to /no/such/folder: No such file or directory. Going to /tmp instead"]


@pytest.mark.parametrize("change", ["made again", "renamed", "linked elsewhere", "below a renamed folder"])
def test_each_start_enters_the_directory_that_has_the_path_now(world: World, tmp_path: Path, change: str) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    work = top / "work"
    work.mkdir(parents=True)
    other.mkdir()
    if change == "linked elsewhere":
        path = tmp_path / "link"
        path.symlink_to(work)
    else:
        path = work
    assert world.shell("touch first; pwd -P", cwd=str(path)).text() == f"{work}\n"
    if change == "made again":
        shutil.rmtree(work)
        work.mkdir()
        inside = work
    elif change == "renamed":
        work.rename(tmp_path / "away")
        work.mkdir()
        inside = work
    elif change == "linked elsewhere":
        path.unlink()
        path.symlink_to(other)
        inside = other
    else:
        top.rename(tmp_path / "away")
        work.mkdir(parents=True)
        inside = work
    options = {"output": {"stdout": {"type": "file", "path": "out"}}}
    world.shell("pwd -P; touch second; ls", cwd=str(path), options=options)
    assert (inside / "out").read_text() == f"{inside}\nout\nsecond\n"


@pytest.mark.parametrize("gone", [True, False])
def test_a_directory_that_has_gone_or_may_not_be_entered_any_more_is_told(
    world: World, tmp_path: Path, gone: bool
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    assert world.shell("pwd -P", cwd=str(work)).text() == f"{work}\n"
    if gone:
        work.rmdir()
    else:
        work.rmdir()
        work.touch()
    job = world.run(["pwd"], cwd=str(work))
    assert job.text() == "/tmp\n"
    reason = "No such file or directory" if gone else "Not a directory"
    assert job.logs() == [f"Could not change dir to {work}: {reason}. Going to /tmp instead"]


def test_the_agent_keeps_no_directory_of_a_job_in_use(world: World, tmp_path: Path) -> None:
    job = world.start(["sleep", "60"], cwd=str(tmp_path))
    world.pump(lambda: bool(job.started))
    assert os.readlink(f"/proc/{world.processes[0].pid}/cwd") == "/"
    world.kill(job, signal.SIGKILL)
    world.finish(job)


def test_limits_apply_to_tasks_and_not_to_the_next_job(world: World) -> None:
    assert world.shell("ulimit -n", options={"rlimit": {"nofile": 77}}).text() == "77\n"
    assert world.shell("ulimit -n").text() != "77\n"


def test_a_signal_reaches_background_processes_of_the_task(world: World, tmp_path: Path) -> None:
    job = world.start(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; echo up; wait"])
    world.pump(lambda: job.text() == "up\n")
    world.kill(job, signal.SIGUSR1)
    world.finish(job)
    assert job.status == (128 + signal.SIGUSR1) << 8
    assert job.event("shell.task-exit")["signaled"] == signal.SIGUSR1
    assert not _alive((tmp_path / "pid").read_text())


def test_nothing_a_task_leaves_in_its_group_outlives_the_job(world: World, tmp_path: Path) -> None:
    world.shell(f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pid")
    assert not _alive((tmp_path / "pid").read_text())


def test_a_daemon_of_a_task_does_not_outlive_the_job(world: World, tmp_path: Path) -> None:
    daemon = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' >/dev/null 2>&1 &"
    world.shell(f"{daemon} until [ -s {tmp_path}/pid ]; do sleep .01; done")
    world.run(["true"])
    assert not _alive((tmp_path / "pid").read_text())


def test_what_left_its_process_group_and_holds_the_output_is_killed_with_the_job(world: World, tmp_path: Path) -> None:
    daemon = f"setsid sh -c 'echo $$ > {tmp_path}/pid; trap \"\" TERM; while :; do sleep 1; done' &"
    other = f"env -i setsid sh -c 'echo $$ > {tmp_path}/bare; exec sleep 60' &"
    job = world.start(
        ["sh", "-c", f"{daemon} {other} until [ -s {tmp_path}/pid -a -s {tmp_path}/bare ]; do sleep .01; done"]
    )
    world.pump(lambda: "shell.task-exit" in dict(job.events))
    world.send({"op": "kill", "id": job.id, "signum": int(signal.SIGTERM)})
    world.send({"op": "kill", "id": job.id, "signum": int(signal.SIGKILL), "all": True})
    assert world.finish(job).status == 0
    assert not _alive((tmp_path / "pid").read_text())
    assert not _alive((tmp_path / "bare").read_text())


def test_what_hides_whose_it_is_ends_with_the_last_job_that_may_have_begun_it(world: World, tmp_path: Path) -> None:
    def hide(name: str) -> str:
        hidden = f"env -i setsid sh -c 'echo $$ > {tmp_path}/{name}; exec sleep 60' >/dev/null 2>&1 </dev/null"
        return f"({hidden} &); until [ -s {tmp_path}/{name} ]; do sleep .01; done"

    earlier = world.start(["sh", "-c", hide("first") + "; echo up; sleep 60"])
    world.pump(lambda: earlier.text() == "up\n")
    world.shell(hide("second"))
    assert all(is_running(int((tmp_path / name).read_text())) for name in ("first", "second"))
    world.kill(earlier, signal.SIGKILL)
    world.finish(earlier)
    assert not any(_alive((tmp_path / name).read_text()) for name in ("first", "second"))


def test_what_a_process_of_no_job_left_is_not_taken_for_a_job_s(world: World, tmp_path: Path) -> None:
    hidden = f"env -i setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' >/dev/null 2>&1 </dev/null &"
    script = f"{hidden} until [ -s {tmp_path}/pid ]; do sleep .01; done"
    world.send({"op": "exec", "handle": 1, "cmd": {"cmdline": ["sh", "-c", script], "env": dict(os.environ)}})
    world.pump(lambda: any(op["op"] == "exec-finished" for op in world.exec_ops))
    world.shell("true")
    world.shell("sleep .2")
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


def test_what_a_nested_instance_left_is_killed_with_the_job(world: World, tmp_path: Path) -> None:
    inner = "export FLUX_JOB_ID_PATH=$FLUX_JOB_ID_PATH/f1 FLUX_URI=local:///inner;"
    daemon = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' >/dev/null 2>&1 &"
    other = world.start(["sleep", "60"])
    world.shell(f"{inner} {daemon} until [ -s {tmp_path}/pid ]; do sleep .01; done")
    assert not _alive((tmp_path / "pid").read_text())
    assert not other.done
    world.kill(other, signal.SIGKILL)
    world.finish(other)


def _alive(pid: str) -> bool:
    """Whether the process runs; one being killed gets the time to die."""
    for _ in range(200):
        if not is_running(int(pid)):
            return False
        time.sleep(0.01)
    return True


LATE = "sh: task rank {} on host host0 exited (Exit 0) and exit-timeout=0.2s has expired"


def test_the_first_task_to_end_starts_the_exit_timeout(world: World) -> None:
    job = world.shell("[ $FLUX_TASK_RANK = 1 ] || sleep 60", 2, options={"exit-timeout": ".2s"})
    assert job.status == 1 << 8
    assert job.exceptions[0]["note"] == LATE.format(1)


def test_no_task_is_late_when_all_have_ended_though_something_holds_their_output(world: World) -> None:
    options = {"exit-timeout": ".2s"}
    one = world.start(["sh", "-c", "sleep .8 & exit 3"], 2, options=options)
    both = world.start(["sh", "-c", "sleep .8 & exit 3"], 2, nodes=[0, 1], options=options)
    late = world.start(["sh", "-c", "[ $FLUX_TASK_RANK = 0 ] || sleep 60"], 2, nodes=[0, 1], options=options)
    for job in (one, both):
        assert (world.finish(job).status, job.exceptions) == (3 << 8, [])
    world.pump(lambda: bool(late.exceptions))
    assert late.exceptions[0]["note"] == LATE.format(0)
    world.kill(late, signal.SIGKILL)
    world.finish(late)


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"exit-timeout": ".2s"}, "shell rank 1 (on host1): Killed and exit-timeout=0.2s has expired"),
        ({"exit-on-error": 1}, "shell rank 1 (on host1): Killed and exit-on-error is set"),
        ({"exit-on-error": 1}, "shell rank 1 (on host1): Quit and exit-on-error is set"),
        ({}, None),
    ],
)
def test_the_tasks_go_on_without_a_lost_shell_as_long_as_they_may(
    world: World, options: dict[str, Any], ends: str | None
) -> None:
    job = world.start(
        ["sh", "-c", "[ $FLUX_TASK_RANK = 1 ] && sleep 60; read line; exit 0"], 2, [0, 1], options=options
    )
    world.pump(lambda: "shell.start" in dict(job.events))
    data: dict[str, Any] = {"kind": "lost-shell"}
    if ends and "Quit" in ends:
        data["signal"] = signal.SIGQUIT
    world.send({"op": "peer", "id": job.id, "from": 1, "data": data})
    if ends is None:
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "0", "eof": True})
    world.pump(lambda: 0 in job.finished)
    assert [told["note"] for told in job.exceptions] == ([] if ends is None else [ends])
    assert job.finished[0] == (256 if ends else 0)
    world.kill(job, signal.SIGKILL)
    world.finish(job)


def test_an_id_is_written_in_ascii_where_the_jobs_own_environment_says_so(world: World) -> None:
    job = world.run(["sh", "-c", "echo {{id}} $FLUX_JOB_ID"], env={"FLUX_F58_FORCE_ASCII": "1"})
    plain = jobid.encode(job.id, "f58plain")
    assert job.text() == f"{plain} {plain}\n"


def test_what_other_nodes_say_after_a_signal_or_the_end_of_the_first_is_awaited(world: World) -> None:
    """For longer than after a SIGKILL."""
    last = "trap 'sleep 2.3; echo last; exit 0' TERM; echo up; while :; do sleep .01; done"
    script = f"if [ $FLUX_TASK_RANK = 1 ]; then {last}; else echo up; read line; exit 3; fi"
    told = world.start(["sh", "-c", script], 2, nodes=[0, 1])
    failed = world.start(["sh", "-c", script], 2, nodes=[0, 1], options={"exit-on-error": 1})
    world.pump(lambda: told.text() == failed.text() == "up\nup\n")
    world.rpc(failed, "stdin", {"stream": "stdin", "rank": "0", "eof": True})
    world.pump(lambda: bool(failed.exceptions))
    world.send({"op": "kill", "id": failed.id, "signum": int(signal.SIGTERM)}, 1)
    world.kill(told, signal.SIGTERM)
    for job in (told, failed):
        assert world.finish(job).text(rank=1) == "up\nlast\n"


def test_a_node_that_says_nothing_any_more_is_not_waited_for_after_a_sigkill(world: World) -> None:
    job = world.start(["sleep", "60"], 2, nodes=[0, 1])
    world.pump(lambda: "shell.start" in dict(job.events))
    world.send({"op": "kill", "id": job.id, "signum": int(signal.SIGKILL)})
    world.pump(lambda: 0 in job.finished)
    assert 1 not in job.finished
    world.kill(job, signal.SIGKILL)
    world.finish(job)


def test_output_that_comes_after_everything_else_has_ended_is_not_lost(world: World) -> None:
    """The other node has reported its end long before its output reaches the lead shell, whose own task has ended."""
    world.delayed = {1}
    job = world.start(["sh", "-c", "echo from $FLUX_TASK_RANK"], 2, nodes=[0, 1])
    ends = ("stdout", "stderr")
    world.pump(lambda: 1 in job.finished)
    world.pump(lambda: all(("data", {"stream": each, "rank": "0", "eof": True}) in job.entries for each in ends))
    world.pump(lambda: "shell.task-exit" in dict(job.events))
    assert (0 in job.finished, job.text(rank=1)) == (False, "")
    assert [op["data"]["kind"] for _node, op in world.on_way][-1] == "done"
    world.deliver()
    world.finish(job)
    assert [job.text(rank=rank) for rank in (0, 1)] == ["from 0\n", "from 1\n"]


def test_who_asks_for_the_processes_of_a_job_does_not_wait_for_a_node_that_is_done(world: World) -> None:
    job = world.start(["sh", "-c", "[ $FLUX_TASK_RANK = 1 ] || read line"], 2, nodes=[0, 1])
    world.pump(lambda: 1 in job.finished)
    asked = world.rpc(job, "proctable", {})
    world.pump(lambda: bool(world.replies[asked]))
    ((rank, host, _pid),) = world.replies[asked][0]["payload"]["tasks"]
    assert (rank, host) == (0, "host0")
    world.kill(job, signal.SIGKILL)
    world.finish(job)


def test_a_signal_goes_to_nobody_who_got_the_number_of_a_task_that_is_gone(world: World) -> None:
    daemon = world.start(["sh", "-c", "setsid sleep 60 & echo $$; sleep .1"])
    world.pump(lambda: "shell.task-exit" in dict(daemon.events))
    number = int(daemon.text())
    with reusing(number) as other:
        world.kill(daemon, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    world.send({"op": "kill", "id": daemon.id, "signum": int(signal.SIGKILL), "all": True})
    world.finish(daemon)


@contextlib.contextmanager
def reusing(number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the number of one that is gone."""
    for _ in range(50):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        except OSError:
            pytest.skip("the kernel lets nobody else choose numbers of processes")
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        try:
            if process.pid == number:
                yield process
                return
        finally:
            process.kill()
            process.wait()
    pytest.skip("others were given the number first")


def test_exit_on_error_ends_the_other_tasks(world: World) -> None:
    job = world.shell("[ $FLUX_TASK_RANK = 0 ] || exit 2; sleep 60", 2, options={"exit-on-error": 1})
    assert job.status == 2 << 8
    assert job.exceptions[0]["note"] == "sh: task rank 1 on host host0 failed (Exit 2) and exit-on-error is set"


def test_an_unknown_service_method_is_refused_and_a_broken_payload_too(world: World) -> None:
    job = world.start(["sleep", "60"], options={"pty": 1})
    asked = {
        world.rpc(job, "moon", {}): 38,
        world.rpc(job, "stdin", {"rank": 7}): 71,
        world.rpc(Job(12345, 1), "stdin", {}): 2,
        world.rpc(job, "kill", {"signum": 999}): 71,
        world.rpc(job, "kill", {"signum": 1 << 40}): 71,
        world.rpc(job, "kill", {"signum": []}): 71,
        world.rpc(job, "pty", {"type": "attach", "winsize": "large"}, streaming=True): 71,
        world.rpc(job, "pty", {"type": "data", "data": 7}): 71,
    }
    world.pump(lambda: all(world.replies[token] for token in asked))
    assert {token: world.replies[token][0]["errnum"] for token in asked} == asked
    world.kill(job, signal.SIGKILL)
    assert world.finish(job).status == 137 << 8


def test_an_unknown_tag_stays_in_a_file_name_and_a_tag_of_tasks_in_what_is_told_of_it(
    world: World, tmp_path: Path
) -> None:
    option = {"output": {"stdout": {"type": "file", "path": f"{tmp_path}/{{{{bogus}}}}-{{{{taskid}}}}"}}}
    job = world.shell("echo $FLUX_TASK_RANK", 2, options=option)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["{{bogus}}-0", "{{bogus}}-1"]
    # One event tells of all files of a stream, so it cannot name each.
    told = [context["path"] for name, context in job.entries if name == "redirect"]
    assert told == [f"{tmp_path}/{{{{bogus}}}}-{{{{taskid}}}}"] * 2


@contextlib.contextmanager
def room(world: World, node: int, size: int) -> Iterator[None]:
    """No file of an agent's gets larger."""
    pid = world.processes[node].pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def _file(path: str) -> dict[str, Any]:
    return {"output": {"stdout": {"type": "file", "path": path}}}


@pytest.mark.parametrize("stderr", [{}, {"stderr": {"type": "kvs"}}])
def test_a_job_whose_output_could_not_be_written_goes_on_and_fails(
    world: World, tmp_path: Path, stderr: dict[str, Any]
) -> None:
    options = _file(f"{tmp_path}/out")
    options["output"].update(stderr)
    with room(world, 0, 10_000):
        job = world.shell(f"seq 1 5000; echo done > {tmp_path}/done", 2, options=options)
    why = f"error writing {tmp_path}/out: File too large: output is lost"
    assert job.status == 1 << 8
    assert job.logs() == [why]
    assert [(each["severity"], each["note"]) for each in job.exceptions] == [(1, why)]
    assert (tmp_path / "done").exists()
    assert (tmp_path / "out").stat().st_size == 10_000


def test_the_tasks_own_status_counts_more_than_lost_output(world: World) -> None:
    assert world.shell("echo x; exit 3", options=_file("/dev/full")).status == 3 << 8


def test_each_file_that_lost_output_is_named_wherever_it_is(world: World, tmp_path: Path) -> None:
    with room(world, 1, 10):
        job = world.shell("seq 1 5000", 4, nodes=[0, 1], options=_file(f"{tmp_path}/{{{{taskid}}}}"))
    text = "error writing {}/{}: File too large: output is lost"
    assert sorted(job.logs()) == [text.format(tmp_path, task) for task in (2, 3)]
    assert (job.finished, len(job.exceptions)) == ({0: 0, 1: 1 << 8}, 1)
    assert [(tmp_path / str(task)).stat().st_size for task in range(4)] == [23893, 23893, 10, 10]


def test_a_file_in_the_private_folder_is_that_of_the_first_node_and_has_all(world: World, tmp_path: Path) -> None:
    script = f"echo $FLUX_TASK_RANK; read line; cp $FLUX_JOB_TMPDIR/out {tmp_path}/$FLUX_TASK_RANK 2>/dev/null; true"
    job = world.start(["sh", "-c", script], 2, nodes=[0, 1], options=_file("{{tmpdir}}/out"))
    world.pump(lambda: any(name == "redirect" for name, _ in job.entries))
    out = Path(next(context["path"] for name, context in job.entries if name == "redirect"))
    for _ in range(1000):
        # Each answer comes after what the nodes have sent before.
        asked = world.rpc(job, "proctable", {})
        world.pump(lambda asked=asked: bool(world.replies[asked]))  # type: ignore[misc]
        if len(out.read_text().split()) == 2:
            break
    world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "eof": True})
    assert world.finish(job).status == 0
    assert sorted((tmp_path / "0").read_text().split()) == ["0", "1"]


@pytest.mark.parametrize(
    ("signum", "told"),
    [(None, "ignoring malformed event"), (199, "signal 199: Invalid argument"), (0, "signal 0: Invalid argument")],
)
def test_a_signal_that_there_is_not_is_logged_by_each_shell_and_ignored(
    world: World, signum: int | None, told: str
) -> None:
    job = world.start(["sh", "-c", "echo up; read line; echo $line"], 2, nodes=[0, 1])
    world.pump(lambda: job.text().count("up") == 2)
    for node in (0, 1):
        world.send({"op": "kill", "id": job.id, "signum": signum}, node)
    world.pump(lambda: sum(told in text for text in job.logs()) == 2)
    world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", "data": "on\n", "eof": True})
    assert world.finish(job).status == 0
    assert job.text().count("on") == 2
