"""Whose local jobs are: those of a Python process end with it, those of a statedir go on, and nothing else is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance import LIMIT, clean_env, processes_with
from kubeflow.trainer import CustomTrainer

from headrace.engine.process.linux import children_of
from headrace.kubeflow import HeadraceBackendConfig, TrainerClient
from waiting import until

# Starts a job that ends when a file appears, tells of it, and goes on as PROGRAM says.
TRAIN = """
import os, signal, sys, time
# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from kubeflow.trainer import CustomTrainer
from kubeflow.trainer.options import Name
from headrace.kubeflow import HeadraceBackendConfig, TrainerClient

def count(path):
    import os, time
    print("begun")
    while not os.path.exists(path):
        time.sleep(0.01)

client = TrainerClient(HeadraceBackendConfig(statedir=os.environ.get("STATEDIR")))
client.train(trainer=CustomTrainer(count, {"path": os.environ["END"]}, num_nodes=2), options=[Name("job")])
next(client.get_job_logs("job", follow=True))
print("begun", flush=True)
"""


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment whose temporary folder shows what is left; directly below /tmp, as socket paths are short."""
    with tempfile.TemporaryDirectory(prefix="hrs-", dir="/tmp") as folder:
        yield clean_env(TMPDIR=folder, HR_TEST=folder, END=f"{folder}/end", KUBECONFIG="/nowhere")


def left(env: dict[str, str]) -> list[str]:
    return [*os.listdir(env["TMPDIR"]), *processes_with(f"HR_TEST={env['HR_TEST']}")]


def train(program: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """A Python process that has started the job and waits for nothing but what `program` says."""
    text = TRAIN + program
    process = subprocess.Popen(
        [sys.executable, "-c", f"import linecache; text = {text!r}\n{RUN}"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n", process.communicate()[1]
    return process


# `python -c` alone would have no source of the function.
RUN = """
linecache.cache["program"] = len(text), None, text.splitlines(True), "program"
exec(compile(text, "program", "exec"))
"""


@pytest.mark.parametrize(
    ("program", "status"), [("", 0), ("sys.exit(3)", 3), ("raise OSError", 1)], ids=["end", "exit", "error"]
)
def test_a_process_that_ends_stops_its_jobs_and_says_so(program: str, status: int, env: dict[str, str]) -> None:
    process = train(program, env)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == status
    assert "TrainJob job is stopped, as this Python process ends: wait_for_job_status waits for it" in err
    assert left(env) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_nothing(number: signal.Signals, env: dict[str, str]) -> None:
    process = train("time.sleep(1000)", env)
    process.send_signal(number)
    process.communicate(timeout=LIMIT)
    assert process.returncode == -number
    if number == signal.SIGINT:
        assert left(env) == []
    until(lambda: left(env) == [])


def test_a_fork_of_the_process_ends_without_its_jobs(env: dict[str, str]) -> None:
    fork = """
if os.fork() == 0:
    sys.exit()
os.wait()
print(client.get_job("job").status)
"""
    out, _ = train(fork, env).communicate(timeout=LIMIT)
    assert out == "Running\n"
    assert left(env) == []


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGKILL])
def test_the_jobs_of_a_statedir_go_on_and_are_found(
    number: signal.Signals | None, env: dict[str, str], tmp_path: Path
) -> None:
    process = train("time.sleep(1000)" if number else "", {**env, "STATEDIR": str(tmp_path / "jobs")})
    if number:
        process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert "stopped" not in err
    client = TrainerClient(HeadraceBackendConfig(statedir=str(tmp_path / "jobs")))
    assert [(job.name, job.status, job.num_nodes) for job in client.list_jobs()] == [("job", "Running", 2)]
    assert os.stat(tmp_path / "jobs/job").st_mode & 0o077 == 0
    lines = client.get_job_logs("job", step="node-1", follow=True)
    assert next(lines) == "begun"
    Path(env["END"]).touch()
    assert list(lines) == []
    assert client.wait_for_job_status("job", timeout=LIMIT).status == "Complete"
    os.remove(env["END"])
    until(lambda: left(env) == [])
    client.delete_job("job")
    assert os.listdir(tmp_path / "jobs") == []


def test_a_job_whose_runner_was_killed_has_failed(env: dict[str, str], tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    train("", {**env, "STATEDIR": str(jobs)}).communicate(timeout=LIMIT)
    client = TrainerClient(HeadraceBackendConfig(statedir=jobs))
    os.kill(int((jobs / "job/lock").read_text()), signal.SIGKILL)
    until(lambda: client.get_job("job").status == "Failed")
    with pytest.raises(RuntimeError, match="TrainJob job is Failed: its brokers have ended"):
        client.wait_for_job_status("job")
    assert list(client.get_job_logs("job", follow=True)) == ["begun"]
    until(lambda: left(env) == [])
    client.delete_job("job")


def test_what_a_killed_runner_and_its_lifeline_leave_ends_with_the_job(env: dict[str, str], tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    train("", {**env, "STATEDIR": str(jobs)}).communicate(timeout=LIMIT)
    client = TrainerClient(HeadraceBackendConfig(statedir=jobs))
    runner = int((jobs / "job/lock").read_text())
    text = Path(f"/proc/{runner}/cmdline").read_bytes()
    lifelines = [pid for pid in children_of(runner) if Path(f"/proc/{pid}/cmdline").read_bytes() == text]
    assert len(lifelines) == 1
    # While the runner is stopped, it cannot end before the lifeline has.
    for pid, number in ((runner, signal.SIGSTOP), (lifelines[0], signal.SIGKILL), (runner, signal.SIGKILL)):
        os.kill(pid, number)
    until(lambda: client.get_job("job").status == "Failed")
    with pytest.raises(RuntimeError, match="its runner was killed, but its brokers and processes still run"):
        client.wait_for_job_status("job")
    assert left(env)
    client.delete_job("job")
    assert left(env) == [] and os.listdir(jobs) == []


def test_a_statedir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client = TrainerClient(HeadraceBackendConfig(statedir=tmp_path / "file"))
    with pytest.raises(RuntimeError, match=r"cannot make .*/file/.*: "):
        client.train(trainer=CustomTrainer(nothing))


def nothing() -> None:
    pass
