"""Every way to run a command in pods: its output and its exit status, where texts run, and what each container sees."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import Pods, pods, told

from waiting import until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        yield made


def ended(world: Pods, container: dict[str, Any], size: int = 1, **fields: Any) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the lead of a MiniCluster that has run to its end."""
    lead, *followers = world.start_all(told(container, size=size, **fields))
    status = lead.wait()
    assert [one.wait() for one in followers] == [0] * len(followers), [one.output() for one in followers]
    return (status, *lead.output())


def test_the_status_of_the_job_is_the_containers(world: Pods) -> None:
    assert ended(world, {"command": "sh -c 'echo out; echo err >&2; exit 7'"}, size=2) == (7, "out\n", "err\n")
    message = world.running["c-0"].message()
    assert (message["exit"], message["reason"]) == (7, "the job ended with exit code 7")


def test_a_failure_may_be_ignored_and_is_told_all_the_same(world: Pods) -> None:
    status, *_ = ended(world, {"command": "false"}, ignoreFailure=True)
    assert status == 0
    reason = world.running["c-0"].message()["reason"]
    assert reason == "ignored because of spec.ignoreFailure: the job ended with exit code 1"


def test_texts_run_in_their_order_each_where_it_belongs(world: Pods) -> None:
    commands = {
        "init": "echo init; WHERE=$(hostname); own() { echo function of $WHERE; }",
        "pre": "echo pre",
        "brokerPre": "echo brokerPre",
        "workerPre": "echo workerPre",
        "post": "echo post; own",
        "prefix": "env MORE=more",
    }
    fields = {"logging": {"quiet": False}, "flux": {"logLevel": 0}}
    command = "sh -c 'echo job of $WHERE with $MORE'"
    status, out, _ = ended(world, {"command": command, "commands": commands}, size=2, **fields)
    expected = ["init", "pre", "brokerPre", "job of c-0 with more", "post", "function of c-0"]
    assert (status, out.splitlines()) == (0, expected)
    follower = world.running["c-1"].output()[0]
    assert follower.splitlines() == ["init", "pre", "workerPre", "post", "function of c-1"]


def test_a_job_that_was_killed_has_its_own_code_in_the_message_and_another_as_the_containers(world: Pods) -> None:
    status, _, err = ended(world, {"command": "sh -c 'kill -9 $$'"}, size=1)
    message = world.running["c-0"].message()
    assert (status, message["exit"], message["reason"]) == (247, 137, "the job was ended by signal 9")
    assert "killed" not in message
    assert "headrace-pod: the job's exit code is 137; the container exits with 247" in err


def test_a_job_that_was_cancelled_is_told_so(world: Pods) -> None:
    world.with_channel()
    command = "sh -c 'flux cancel -m enough $FLUX_JOB_ID; sleep 1000'"
    status, *_ = ended(world, {"command": command}, size=1)
    message = world.running["c-0"].message()
    assert (message["cause"], message["reason"]) == ("cancel", "the job was cancelled: enough")
    assert status == {137: 247, 143: 241}.get(message["exit"], message["exit"]) != 0
    assert message["jobs"]["inactive"] == 1 and message["jobs"]["run"] == 0


def test_a_script_takes_variables_when_it_is_written_unless_they_are_escaped(world: Pods) -> None:
    script = "#!/bin/sh\necho $THERE \\${FLUX_JOB_SIZE}\n"
    container = {"commands": {"init": "THERE=then", "script": script}}
    assert ended(world, container, size=2, tasks=2)[:2] == (0, "then 2\nthen 2\n")


def test_a_batch_has_the_output_of_each_line_in_a_file(world: Pods) -> None:
    logs = "/mnt/flux/logs"
    container = {"command": "echo one\nsh -c 'echo two; exit 3'", "batch": True, "logs": logs}
    status, *_ = ended(world, container, size=2, tasks=0)
    folder = world.running["c-0"].mount / "logs"
    assert (status, (folder / "job-0.out").read_text(), (folder / "job-1.out").read_text()) == (1, "one\n", "two\n")


def test_a_raw_batch_is_a_batch_script(world: Pods) -> None:
    container = {"command": "flux run -N2 hostname\nexit 4", "batch": True, "batchRaw": True}
    status, out, _ = ended(world, container, size=2, tasks=0, logging={"quiet": False}, flux={"logLevel": 0})
    assert status == 1
    assert {"c-0", "c-1"} <= set(out.split())


def test_a_launcher_submits_by_itself(world: Pods) -> None:
    command = "sh -c 'echo $fluxsocket; flux run -N2 hostname; exit 5'"
    status, out, _ = ended(world, {"command": command, "launcher": True}, size=2)
    first, *rest = out.split()
    assert (status, first, sorted(rest)) == (5, "local:///mnt/flux/config/run/flux/local", ["c-0", "c-1"])


def test_times_are_told_as_the_operator_tells_them(world: Pods) -> None:
    *_, err = ended(world, {"command": "true"}, logging={"quiet": True, "timed": True})
    assert re.fullmatch(r"FLUXTIME fluxsubmit wall time 0:\d\d\.\d\d\nFLUXTIME fluxstart wall time 0:\d\d\.\d\d\n", err)


@pytest.mark.parametrize(("strict", "status", "out"), [(True, 1, ""), (False, 0, "job\n")])
def test_a_text_that_fails_ends_a_strict_pod(world: Pods, strict: bool, status: int, out: str) -> None:
    logging = {"quiet": True, "strict": strict}
    found = ended(world, {"command": "echo job", "commands": {"pre": "false"}}, logging=logging)
    assert found[:2] == (status, out)
    if strict:
        reason = world.running["c-0"].message()["reason"]
        assert reason == "the shell text before the brokers ended with exit code 1"


def test_an_interactive_cluster_stays_until_it_is_told_to_go(world: Pods) -> None:
    lead, follower = world.start_all(told({}, size=2, interactive=True, flux={"environment": {"A": "a b"}}))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    text = ". /mnt/flux/flux-view.sh && echo $A && flux proxy $fluxsocket flux getattr size && python3 -c 'import flux'"
    assert lead.run("sh", "-c", text, FLUX_URI="").stdout == "a b\n2\n"
    assert lead.run("sh", "-c", "echo flux getattr rank | /mnt/flux/flux-connect.sh", FLUX_URI="").stdout == "0\n"
    assert (lead.mount / "config/etc/flux/system/hostlist").read_text() == "c-[0-1]\n"
    assert (lead.mount / "config/curve/curve.cert").stat().st_mode & 0o777 == 0o600
    assert (lead.mount / "flux-operator-done.txt").exists()
    for pod in (lead, follower):
        pod.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait()) == (143, 143)
    assert lead.message()["reason"] == "the pod received SIGTERM"
    assert lead.message()["killed"]
    assert (lead.mount / "flux-operator-complete.txt").exists()


def test_flux_shutdown_is_the_end_of_an_interactive_cluster(world: Pods) -> None:
    lead, follower = world.start_all(told({}, size=2, interactive=True))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    assert lead.run("flux", "shutdown", "--quiet").returncode == 0
    assert (lead.wait(), follower.wait()) == (0, 0)


def test_a_follower_that_is_told_to_go_is_no_success_and_its_jobs_fail(world: Pods) -> None:
    lead, follower = world.start_all(told({}, size=2, interactive=True))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    follower.signal(signal.SIGTERM)
    assert follower.wait() == 143
    until(lambda: "c-1" in lead.run("flux", "overlay", "status", "--down").stdout)
    assert lead.run("flux", "run", "true").returncode == 0


def test_a_socket_may_be_turned_off(world: Pods) -> None:
    status, out, _ = ended(world, {"command": "sh -c 'echo $FLUX_URI'"}, flux={"disableSocket": True})
    assert status == 0
    assert "config/run/flux/local " not in out + " "
    assert not (world.running["c-0"].mount / "config/run/flux/local").exists()


def test_brokers_may_be_wrapped(world: Pods) -> None:
    container = {"command": "sh -c 'echo $WRAPPED'"}
    assert ended(world, container, size=2, flux={"wrap": "env,WRAPPED=yes"})[:2] == (0, "yes\n")


def test_jobs_write_where_the_image_lets_them(world: Pods) -> None:
    container = {"command": "sh -c 'echo $FLUX_OUTPUT_DIR; echo x > $FLUX_OUTPUT_DIR/f'", "logs": "/proc/none"}
    assert ended(world, container)[:2] == (0, "/mnt/flux/fluxout\n")


def test_programs_that_import_flux_do_so_in_a_launcher_and_others_get_no_pythonpath(world: Pods, view: Path) -> None:
    world.view = view
    program = "python3 -c 'import flux; print(flux.Flux().attr_get(\"size\"))'"
    assert ended(world, {"command": program, "launcher": True})[:2] == (0, "1\n")
    world.running.clear()
    assert ended(world, {"command": "sh -c 'echo path $PYTHONPATH'"})[1].endswith("path\n")
