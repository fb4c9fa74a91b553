"""`headrace mini`: real brokers on this machine around real jobs, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

HEADRACE = os.path.join(os.path.dirname(sys.executable), "headrace")


def write(tmp_path: Path, container: dict[str, Any], **fields: Any) -> str:
    path = tmp_path / "cluster.yaml"
    spec = {"containers": [container], **fields}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "test"}}
    path.write_text(yaml.safe_dump({**head, "spec": spec}))
    return str(path)


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment whose temporary folder is ours, so that what is left can be seen.

    It is directly below /tmp: a socket's path has at most 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="hrm-", dir="/tmp") as folder:
        yield {**os.environ, "TMPDIR": folder}


def mini(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HEADRACE, "mini", *args], env=env, capture_output=True, text=True, timeout=60, check=False)


def left(env: dict[str, str]) -> tuple[list[str], list[str]]:
    """Files in the temporary folder, and processes that still mention it in their command line or environment."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
            text = b"".join(parts).replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if env["TMPDIR"] in text:
            lines.append(text)
    return sorted(os.listdir(env["TMPDIR"])), lines


def test_the_status_and_output_are_those_of_the_job_and_nothing_is_left(env: dict[str, str], tmp_path: Path) -> None:
    command = "sh -c 'echo rank $FLUX_TASK_RANK of $FLUX_JOB_SIZE $COLOUR; exit 7'"
    environment = {"COLOUR": "deep blue", "LEAD": "test-0.test:80", "PEER": "test-3.test"}
    container = {"image": "ubuntu", "command": command, "environment": environment}
    container["commands"] = {"init": "echo first", "pre": "export UNUSED=1", "post": "echo $LEAD"}
    done = mini(env, "run", write(tmp_path, container, size=3, tasks=3))
    assert done.returncode == 7
    lines = done.stdout.splitlines()
    assert lines[0] == "first" and lines[-1] == "127.0.0.1:80"
    assert sorted(lines[1:-1]) == [f"rank {rank} of 3 deep blue" for rank in range(3)]
    assert done.stderr.count("not applied on this machine: spec.containers[0].image") == 1
    assert "names of pods that do not resolve on this machine: PEER (test-3.test)\n" in done.stderr
    assert "headrace-mini: running the commands before the brokers\n" in done.stderr
    assert "CREATE" in done.stderr and "DELETE" in done.stderr
    assert left(env) == ([], [])


def test_a_failure_is_ignored_where_the_file_says_so(env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, {"command": "false"}, ignoreFailure=True)
    assert mini(env, "run", path).returncode == 0
    assert mini(env, "run", write(tmp_path, {"command": "false"})).returncode == 1


def test_a_job_finds_the_end_of_its_standard_input_unless_the_file_names_another(
    env: dict[str, str], tmp_path: Path
) -> None:
    assert mini(env, "run", write(tmp_path, {"command": "wc -c"})).stdout == "0\n"
    given = tmp_path / "given"
    given.write_text("four")
    flux = {"optionFlags": f"--input={given}"}
    assert mini(env, "run", write(tmp_path, {"command": "wc -c"}, flux=flux)).stdout == "4\n"


def test_each_broker_is_a_node_of_its_own_name(env: dict[str, str], tmp_path: Path) -> None:
    container = {"command": "flux resource list -s free -n -o '{nnodes} {nodelist}'", "launcher": True}
    done = mini(env, "run", "--quiet", write(tmp_path, container, size=4))
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 test-[0-3]\n", "")


def test_json_gives_the_times_in_seconds(env: dict[str, str], tmp_path: Path) -> None:
    done = mini(env, "run", "--json", write(tmp_path, {"command": "sleep 0.3"}))
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["name"], summary["size"], summary["status"]) == ("test", 1, 0)
    times = summary["times"]
    assert set(times) == {"create", "ready", "run", "delete", "total"}
    assert times["run"] >= 0.3
    assert times["total"] == pytest.approx(sum(value for name, value in times.items() if name != "total"), abs=0.01)


@pytest.mark.parametrize(("last", "status"), [("true", 0), ("false", 1)])
def test_a_batch_runs_each_line_and_tells_a_failure(
    env: dict[str, str], tmp_path: Path, last: str, status: int
) -> None:
    out = tmp_path / "out"
    container = {"batch": True, "logs": str(out), "command": f"echo one\n{last}\n"}
    done = mini(env, "run", write(tmp_path, container, size=2))
    assert done.returncode == status
    assert (out / "job-0.out").read_text() == "one\n"
    assert left(env) == ([], [])


def test_a_batch_that_is_refused_shows_nothing_of_an_earlier_one(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "flux-job.out").write_text("earlier\n")
    container = {"batch": True, "logs": str(out), "command": "true"}
    done = mini(env, "run", write(tmp_path, container, flux={"optionFlags": "--no-such-option"}))
    assert (done.returncode, done.stdout) == (2, "")


def test_the_example_of_a_batch_does_what_the_manual_shows(env: dict[str, str], tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "batch.yaml"
    done = mini(env, "run", "-q", shutil.copy(example, tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    batch, *jobs = re.findall(r"^\u0192\w+$", done.stdout, re.M)
    assert len({batch, *jobs}) == 3
    table = [line.split()[0:4:2] for line in done.stdout.splitlines()[5:7]]
    assert sorted(table) == sorted([[jobs[0], "sh"], [jobs[1], "counting"]])
    assert done.stdout.splitlines()[0] == "before the brokers start"
    assert done.stdout.splitlines()[-1] == "42"
    output = tmp_path / "batch-output"
    greetings = sorted((output / "job-0.out").read_text().splitlines())
    assert greetings == [f"{rank}: good morning from node {rank}" for rank in range(2)]
    assert sorted(os.listdir(output)) == ["flux-job.out", "job-0.err", "job-0.out", "job-1.err", "job-1.out"]
    assert left(env) == ([], [])


def test_a_script_is_the_job_and_escaped_variables_are_its_own(env: dict[str, str], tmp_path: Path) -> None:
    script = "#!/bin/sh\necho task \\${FLUX_TASK_RANK}\n"
    container = {"commands": {"script": script}}
    done = mini(env, "run", write(tmp_path, container, size=2, tasks=2, logging={"quiet": True}))
    assert sorted(done.stdout.splitlines()) == ["task 0", "task 1"]
    assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_and_leaves_nothing(env: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    container = {"command": "sh -c 'echo begun; sleep 1000'"}
    process = subprocess.Popen(
        [HEADRACE, "mini", "run", write(tmp_path, container, size=2)], env=env, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert left(env) == ([], [])


@pytest.mark.parametrize(
    ("commands", "seen"),
    [
        ({"init": "echo now; sleep 1000; echo more", "pre": "echo more"}, ["now"]),
        ({"pre": "echo now; while :; do sleep 0.1; done", "post": "echo more"}, ["now"]),
        ({"post": "echo now; sleep 1000; echo more"}, ["job", "now"]),
    ],
)
def test_ctrl_c_before_and_after_the_brokers_ends_the_commands_there_at_once(
    env: dict[str, str], tmp_path: Path, commands: dict[str, str], seen: list[str]
) -> None:
    path = write(tmp_path, {"command": "echo job", "commands": commands})
    pipe = subprocess.PIPE
    process = subprocess.Popen([HEADRACE, "mini", "run", "--json", path], env=env, stdout=pipe, stderr=pipe, text=True)
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in seen]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert (lines, process.returncode) == (seen, 130)
    summary = json.loads(rest)
    times = summary["times"]
    assert times["total"] == pytest.approx(sum(times[name] for name in ("create", "ready", "run", "delete")), abs=0.01)
    assert left(env) == ([], [])


def test_kill_9_of_the_command_ends_the_cluster(env: dict[str, str], tmp_path: Path) -> None:
    container = {"command": "sh -c 'echo begun; exec sleep 1000'"}
    process = subprocess.Popen(
        [HEADRACE, "mini", "run", write(tmp_path, container, size=2, tasks=2)],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    until_nothing_is_left(env)


def until_nothing_is_left(env: dict[str, str]) -> None:
    deadline = time.monotonic() + 60
    while left(env) != ([], []):
        assert time.monotonic() < deadline, left(env)
        time.sleep(0.05)


def test_a_file_without_a_command_is_called_interactive_unless_it_says_so(env: dict[str, str], tmp_path: Path) -> None:
    told = mini(env, "validate", write(tmp_path, {}))
    assert told.returncode == 0
    assert told.stderr.endswith("cluster.yaml: no command: the cluster is interactive and stays until it is stopped\n")
    for said in ({"interactive": True}, {}):
        container = {} if said else {"command": "true"}
        assert mini(env, "validate", write(tmp_path, container, **said)).stderr == ""


def test_validate_names_doubtful_keys_of_the_brokers_and_a_batch_that_does_not_get_all_nodes(
    env: dict[str, str], tmp_path: Path
) -> None:
    path = write(tmp_path, {"command": "x", "batch": True}, size=4, flux={"brokerConfig": "[tbon]\ntopoo = 'x'"})
    told = mini(env, "validate", path)
    assert told.returncode == 0
    assert told.stderr.splitlines() == [
        f"{path}: spec.tasks: the batch job gets resources for 1 task, not all 4 nodes; use tasks: 0 for all nodes",
        f"{path}: spec.flux.brokerConfig: tbon.topoo: unknown key, did you mean topo?",
    ]
    assert mini(env, "validate", write(tmp_path, {"command": "x", "batch": True}, size=4, tasks=0)).stderr == ""


def test_queues_that_nobody_will_start_are_told(env: dict[str, str], tmp_path: Path) -> None:
    flux = {"brokerConfig": "[queues.debug]"}
    path = write(tmp_path, {"command": "x"}, flux=flux)
    assert mini(env, "validate", path).stderr.startswith(f"{path}: spec.flux.brokerConfig: named queues are stopped")
    assert mini(env, "validate", write(tmp_path, {"command": "x", "launcher": True}, flux=flux)).stderr == ""


def test_an_interactive_cluster_says_how_to_reach_it_and_stops_at_ctrl_c(env: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [HEADRACE, "mini", "run", write(tmp_path, {}, size=2, interactive=True)],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "ready:" in line)
        uri = line.split("flux proxy ")[1].split()[0]
        command = [HEADRACE, "proxy", uri, "flux", "getattr", "size"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert answer.stdout == "2\n"
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(60) == 0
    assert left(env) == ([], [])


def test_times_are_those_of_a_job_that_there_was(env: dict[str, str], tmp_path: Path) -> None:
    logging = {"timed": True, "quiet": True}
    done = mini(env, "run", write(tmp_path, {"command": "true"}, logging=logging))
    assert re.fullmatch(r"(FLUXTIME flux(submit|start) wall time \d+:\d\d\.\d\d\n){2}", done.stderr)
    container = {"command": "true", "commands": {"init": "exit 3"}}
    done = mini(env, "run", write(tmp_path, container, logging=logging))
    assert done.returncode == 3 and "FLUXTIME" not in done.stderr


def test_a_failing_command_before_the_brokers_ends_a_strict_cluster(env: dict[str, str], tmp_path: Path) -> None:
    container = {"command": "echo never", "commands": {"pre": "false"}}
    done = mini(env, "run", write(tmp_path, container, logging={"strict": True}))
    assert done.returncode == 1
    assert "never" not in done.stdout
    assert "no broker was started: the commands before them (init, pre, brokerPre, workerPre) ended with" in done.stderr
    assert left(env) == ([], [])


@pytest.mark.parametrize(
    ("commands", "flux", "told"),
    [
        (
            {"init": "echo never", "post": "if"},
            {},
            "init, pre, brokerPre, workerPre and post together are not valid shell text",
        ),
        (
            {"init": "echo never"},
            {"optionFlags": "-o x)"},
            "command, prefix and flux.optionFlags together are not valid shell text",
        ),
    ],
)
def test_what_no_shell_can_read_is_told_before_anything_runs(
    env: dict[str, str], tmp_path: Path, commands: dict[str, str], flux: dict[str, str], told: str
) -> None:
    done = mini(env, "run", write(tmp_path, {"command": "echo never", "commands": commands}, flux=flux))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"headrace-mini: {told}")
    assert left(env) == ([], [])


def test_validate_prints_every_error_with_file_and_path(env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, {"comand": "x"}, size="two")
    for action in ("validate", "run"):
        done = mini(env, action, path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines() == [
            f"{path}: spec.containers[0].comand: unknown field, did you mean command?",
            f"{path}: spec.size: must be a whole number, not text",
            "2 errors",
        ]
    assert mini(env, "validate", str(tmp_path / "none.yaml")).stderr.endswith("none.yaml: No such file or directory\n")
    good = write(tmp_path, {"command": "x"}, size=2)
    assert mini(env, "validate", good).stdout == f"{good}: MiniCluster test is valid (size 2, tasks 1)\n"


def test_more_brokers_than_the_machine_holds_are_refused_at_once(env: dict[str, str], tmp_path: Path) -> None:
    done = mini(env, "run", write(tmp_path, {"command": "true"}, size=100_000))
    assert (done.returncode, done.stdout) == (1, "")
    assert "headrace-mini: spec.size: 100000 brokers do not fit this machine" in done.stderr
    flux = os.path.join(os.path.dirname(sys.executable), "flux")
    argv = [flux, "start", "-s100000000", "true"]
    started = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 1
    assert started.stderr.startswith("flux-start: --test-size: 100000000 brokers do not fit this machine: ")
    assert left(env) == ([], [])
