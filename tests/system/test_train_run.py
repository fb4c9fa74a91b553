"""`headrace train run`: real Jobs, JobSets and TrainJobs by real brokers, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from instance import LIMIT, clean_env, processes_with, start

HEADRACE = os.path.join(os.path.dirname(sys.executable), "headrace")
WORDS = [
    "",
    "two  blanks",
    " ",
    "a\nb\n",
    "'",
    '"',
    "$HOME",
    "`x`",
    "*",
    "\\",
    "-n",
    "--",
    "#",
    "a=b",
    "ü",
    "{{id}}",
    "$$(X)",
]
SHOW = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
OPTIONS = "flux-framework.org/headrace-options"


def job(command: list[str], size: int = 2, options: str = "", **container: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "command": command, **container}]}
    metadata = {"name": "hello", **({"annotations": {OPTIONS: options}} if options else {})}
    spec = {"completionMode": "Indexed", "completions": size, "parallelism": size, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def jobset(command: list[str]) -> dict[str, Any]:
    one = {"name": "work", "replicas": 1, "template": {"spec": job(command)["spec"]}}
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}}
    return {**head, "spec": {"replicatedJobs": [one]}}


def trainjob(command: list[str], runtime: str = "headrace-distributed", **trainer: Any) -> dict[str, Any]:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train"}}
    return {
        **head,
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"command": command, "numNodes": 2, **trainer}},
    }


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment whose temporary folder shows what is left; directly below /tmp, as socket paths are short."""
    with tempfile.TemporaryDirectory(prefix="hrt-", dir="/tmp") as folder:
        yield clean_env(TMPDIR=folder, HR_TEST=folder)


def left(env: dict[str, str]) -> list[str]:
    return [*os.listdir(env["TMPDIR"]), *processes_with(f"HR_TEST={env['HR_TEST']}")]


def write(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def train(env: dict[str, str], *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [HEADRACE, "train", "run", *args]
    return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=LIMIT, check=False)


KINDS = {"Job": job, "JobSet": jobset, "TrainJob": trainjob}


@pytest.mark.parametrize("kind", KINDS)
def test_words_arrive_and_the_exit_code_is_the_jobs(kind: str, env: dict[str, str], tmp_path: Path) -> None:
    done = train(env, write(tmp_path, KINDS[kind]([*SHOW, *WORDS])))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[*WORDS[:-1], "$(X)"]] * 2
    assert train(env, write(tmp_path, KINDS[kind](["sh", "-c", "exit 3"]))).returncode == 3
    assert left(env) == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_host_has_a_broker_with_its_rank(kind: str, env: dict[str, str], tmp_path: Path) -> None:
    done = train(env, write(tmp_path, KINDS[kind](["flux", "getattr", "rank"])))
    assert sorted(done.stdout.split()) == ["0", "1"], done.stderr
    assert left(env) == []


def test_variables_are_those_of_the_pod(env: dict[str, str], tmp_path: Path) -> None:
    variables = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TEXT", "value": "{{id}} $HOME on $(POD)"},
        {"name": "PLAIN", "value": "{{id}} ${HOME}"},
        {"name": "PATH", "value": "/nowhere"},
    ]
    text = 'echo $JOB_COMPLETION_INDEX $POD; echo "$TEXT $PLAIN"; echo $PATH $0'
    container = {"env": variables, "workingDir": "/usr"}
    done = train(env, write(tmp_path, job(["/bin/sh", "-c", text, "$(POD)"], **container)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"0 hello-0", "1 hello-1"} <= set(lines)
    assert lines.count("/nowhere hello-0") == 2
    assert [line.split(" on ")[1] for line in sorted(lines) if " on " in line] == [
        "hello-0 {{id}} ${HOME}",
        "hello-1 {{id}} ${HOME}",
    ]


def test_a_variable_that_is_no_text_is_left_out_and_named(env: dict[str, str], tmp_path: Path) -> None:
    done = train({**env, "ODD": "a\udcffb"}, write(tmp_path, job(["sh", "-c", "echo [$ODD]"], size=1)))
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "environment variable ODD is not UTF-8 text and is left out of the job" in done.stderr


def test_sizes_are_the_files_or_the_options(env: dict[str, str], tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $FLUX_TASK_RANK of $FLUX_JOB_SIZE on $FLUX_JOB_NNODES"]
    path = write(tmp_path, job(command, options="{procsPerNode: 2}"))
    done = train(env, path)
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4 on 2" for rank in range(4)]
    done = train(env, "--nodes", "1", "--procs", "3", "--json", path)
    *lines, last = done.stdout.splitlines()
    assert sorted(lines) == [f"{rank} of 3 on 1" for rank in range(3)]
    summary = json.loads(last)
    times = summary.pop("times")
    assert summary == {"name": "hello", "kind": "Job", "nodes": 1, "procs": 3, "tasks": 3, "status": 0}
    assert list(times) == ["create", "ready", "run", "delete", "total"]


@pytest.mark.parametrize("number", ["0", "-1", "x", "99999999999"])
def test_a_size_that_makes_no_sense_is_refused(number: str, env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, job(["true"]))
    for option in ("--nodes", "--procs"):
        done = train(env, f"{option}={number}", path)
        assert done.returncode != 0
        assert f"must be a whole number, 1 or more, not '{number}'" in done.stderr
    done = train(env, "--nodes=1000000", path)
    assert (
        done.returncode == 1
        and "1000000 nodes: " in done.stderr
        and "choose another number with --nodes" in done.stderr
    )


def test_what_cannot_apply_is_told_once(env: dict[str, str], tmp_path: Path) -> None:
    document = trainjob(["true"], image="mine")
    document["spec"]["initializer"] = {"dataset": {"storageUri": "hf://data"}}
    done = train(env, write(tmp_path, document, {"kind": "Secret", "metadata": {"name": "token"}}))
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("headrace-train: ")]
    assert line.startswith("headrace-train: not applied without Kubernetes: spec.initializer, ")
    assert line.endswith("containers[0].image, Secret/token")


def test_the_runtime_may_be_given(env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, trainjob(["sh", "-c", "echo $THEIRS $FLUX_JOB_SIZE"], "of-the-cluster", numProcPerNode=2))
    refused = train(env, path)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == "1 error"
    assert f"{path}: spec.runtimeRef.name: 'of-the-cluster' is not in any of the documents" in refused.stderr
    assert train(env, "--runtime", "headrace-torch", path).stdout.split() == ["2", "2"]
    container = {"name": "node", "env": [{"name": "THEIRS", "value": "x"}]}
    steps = [{"name": "node", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}]
    own = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "own"}}
    file = tmp_path / "runtime.yaml"
    file.write_text(yaml.safe_dump({**own, "spec": {"template": {"spec": {"replicatedJobs": steps}}}}))
    assert train(env, f"--runtime={file}", path).stdout.splitlines() == ["x 4"] * 4


MEET = """
import json, os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where, backlog=size) as server:
        met = [0]
        for _ in range(size - 1):
            with server.accept()[0] as peer:
                met.append(int(peer.makefile().readline()))
    names = ["LOCAL_WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK"]
    print(json.dumps([sorted(met), *(os.environ[name] for name in names)]))
else:
    while True:
        try:
            with socket.create_connection(where) as peer:
                peer.sendall(b"%d\\n" % rank)
            break
        except ConnectionRefusedError:
            pass
"""


def test_processes_meet_by_the_variables_of_torch(env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, trainjob([sys.executable, "-c", MEET], numProcPerNode=2))
    done = train(env, path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [[0, 1, 2, 3], "2", "0", "0"]), done.stderr
    (tmp_path / "meet.py").write_text(MEET)
    command = ["flux", "run", "-o", "torch", "-N2", "--tasks-per-node=1", sys.executable, str(tmp_path / "meet.py")]
    done = start("--test-size=2", *command)
    assert (done.rc, json.loads(done.out)) == (0, [[0, 1], "1", "0", "0"]), done.err


AT_A_PORT = """
import os, socket
where, rank = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), os.environ["JOB_COMPLETION_INDEX"]
if rank == "0":
    with socket.create_server(where) as server, server.accept()[0] as peer:
        print("met", peer.makefile().readline())
else:
    while True:
        try:
            with socket.create_connection(where) as peer:
                peer.sendall(rank.encode())
            break
        except ConnectionRefusedError:
            pass
"""


def test_pods_meet_by_the_name_of_the_first(env: dict[str, str], tmp_path: Path) -> None:
    """On brokers of one machine and in an instance; a name that leads nowhere is reported."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    variables = {"MASTER_ADDR": "set-work-0-0.set", "MASTER_PORT": port, "DRIVER": "set-driver-0-0.set"}
    document = jobset([sys.executable, "-c", AT_A_PORT])
    (one,) = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    one["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    path = write(tmp_path, document)
    alone = train(env, path)
    assert (alone.returncode, alone.stdout.strip()) == (0, "met 1"), alone.stderr
    line = "headrace-train: names of pods that do not resolve without Kubernetes: DRIVER (set-driver-0-0.set)"
    assert alone.stderr.splitlines() == [line]
    within = start("--test-size=2", HEADRACE, "train", "run", path)
    assert (within.rc, within.out.strip()) == (0, "met 1"), within.err
    assert line in within.err.splitlines()


def test_torchrun_is_told_of_its_node(env: dict[str, str], tmp_path: Path) -> None:
    """A program of that name, which prints what torchrun reads."""
    program = tmp_path / "torchrun"
    program.write_text(f"#!{sys.executable}\nimport json, os\nprint(json.dumps(dict(os.environ)))\n")
    program.chmod(0o755)
    path = write(tmp_path, trainjob([str(program)], "headrace-torch", numProcPerNode=4))
    done = train(env, path)
    assert done.returncode == 0, done.stderr
    nodes = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda one: one["PET_NODE_RANK"])
    names = ["PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"]
    assert [[one[name] for name in names] for one in nodes] == [["2", "0", "4"], ["2", "1", "4"]]
    assert len({(one["PET_MASTER_ADDR"], one["PET_MASTER_PORT"]) for one in nodes}) == 1


def test_a_program_runs_once_with_the_instance_around_it(env: dict[str, str], tmp_path: Path) -> None:
    text = "flux getattr size; flux run -N2 echo $WORD; exit 5"
    variables = [{"name": "WORD", "value": "a  b"}, {"name": "odd.name", "value": "x"}]
    document = job(["sh", "-c", text], options="{run: program}", env=variables)
    done = train(env, "-", text=yaml.safe_dump(document))
    assert (done.returncode, done.stdout.split()) == (5, ["2", "a", "b", "a", "b"]), done.stderr
    assert left(env) == []


def test_a_program_has_its_words_and_variables_as_they_are_written(env: dict[str, str], tmp_path: Path) -> None:
    """Also in an instance, whose job shell knows templates."""
    pod = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    variables = [pod, {"name": "TEXT", "value": "{{id}} on $(POD)"}]
    show = [sys.executable, "-c", "import json, os, sys; print(json.dumps([os.environ['TEXT'], *sys.argv[1:]]))"]
    path = write(tmp_path, job([*show, *WORDS, "$(POD)"], options="{run: program}", env=variables))
    expected = ["{{id}} on hello-0", *WORDS[:-1], "$(X)", "hello-0"]
    alone, within = train(env, path), start("--test-size=2", HEADRACE, "train", "run", path)
    assert json.loads(alone.stdout) == expected, alone.stderr
    assert json.loads(within.out) == expected, within.err


@pytest.mark.parametrize(
    ("options", "text", "printed"),
    [
        ("", "echo $(flux getattr size) $FLUX_JOB_SIZE", ["3 2", "3 2"]),
        ("{run: program}", "echo $(flux getattr size) $(flux getattr instance-level)", ["2 1"]),
    ],
    ids=["tasks", "program"],
)
def test_in_an_instance_it_is_a_job_of_that(options: str, text: str, printed: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, job(["sh", "-c", f"{text}; exit 3"], options=options or "{procsPerNode: 3}"))
    done = start("--test-size=3", HEADRACE, "train", "run", "--json", "--nodes=2", "--procs=1", path)
    assert done.rc == 3, done.err
    assert not done.left
    *lines, last = done.out.splitlines()
    assert lines == printed
    summary = json.loads(last)
    assert (summary["status"], summary["id"][0]) == (3, "ƒ")


@pytest.mark.parametrize(
    ("options", "said"),
    [("", ["flux-job: task(s) exited with exit code 3", "no", "no"]), ("{run: program}", ["no"])],
    ids=["tasks", "program"],
)
def test_of_a_job_that_fails_users_see_what_it_says(
    options: str, said: list[str], env: dict[str, str], tmp_path: Path
) -> None:
    done = train(env, write(tmp_path, job(["sh", "-c", "echo no >&2; exit 3"], options=options)))
    assert (done.returncode, done.stdout, sorted(done.stderr.splitlines())) == (3, "", said)


def test_brokers_that_are_lost_are_told_of(env: dict[str, str], tmp_path: Path) -> None:
    done = train(
        env,
        write(tmp_path, job(["sh", "-c", "kill -9 $(flux getattr broker.pid); sleep 1000"], options="{run: program}")),
    )
    assert done.returncode == 137 and " killed by signal 9\n" in done.stderr
    assert left(env) == []


@pytest.mark.parametrize("options", ["", "{run: program}"], ids=["tasks", "program"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_and_leaves_nothing(
    number: signal.Signals, options: str, env: dict[str, str], tmp_path: Path
) -> None:
    path = write(tmp_path, job(["sh", "-c", "echo begun; sleep 1000"], options=options))
    command = [HEADRACE, "train", "run", path]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (128 + number, "")
    assert left(env) == []


def test_an_interactive_cluster_stays_until_it_is_stopped(env: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, job([], options="{interactive: true}"))
    command = [HEADRACE, "train", "run", path]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if " ready: " in line)
        uri = line.split("flux proxy ")[1].split()[0]
        size = subprocess.run(
            [HEADRACE, "proxy", uri, "flux", "getattr", "size"], env=env, capture_output=True, check=True
        )
        assert size.stdout == b"2\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert left(env) == []


def test_a_file_that_is_wrong_is_refused_in_words(env: dict[str, str], tmp_path: Path) -> None:
    document = job(["true"])
    document["spec"]["completions"] = 5
    path = write(tmp_path, document)
    done = train(env, path)
    rule = "must be 2 (parallelism), not 5: each index is a host of the cluster"
    assert (done.returncode, done.stderr) == (1, f"{path}: spec.completions: {rule}\n1 error\n")
    done = train(env, str(tmp_path / "missing.yaml"))
    assert done.stderr == f"headrace-train: {tmp_path}/missing.yaml: No such file or directory\n"
