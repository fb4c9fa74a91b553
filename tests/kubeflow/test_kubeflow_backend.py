"""The SDK's client by real brokers: each of its methods, on local brokers and in an instance."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubeflow.trainer import CustomTrainer, TrainerClient
from kubeflow.trainer.options import Name
from kubeflow.trainer.types import types
from test_with_packages import tiny_wheel
from training_samples import own

from headrace.kubeflow import HeadraceBackendConfig
from headrace.kubeflow import TrainerClient as HeadraceClient
from waiting import PATIENCE, until

LONG = int(PATIENCE)
# Where what a test shows does not depend on the folder of local jobs.
EACH_KIND = pytest.mark.parametrize("client", ["process", "instance"], indirect=True)


def wait(client: TrainerClient, name: str, *status: str, **how: Any) -> types.TrainJob:
    return client.wait_for_job_status(name, set(status or ["Complete"]), timeout=LONG, polling_interval=1, **how)


def show(word: str) -> None:
    import os
    import sys

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "JOB_COMPLETION_INDEX", "OWN")
    print(word, *(os.environ.get(name) for name in names), os.getcwd())
    print("said on stderr", file=sys.stderr)


def test_a_function_runs_on_each_process_of_each_node(client: TrainerClient) -> None:
    trainer = CustomTrainer(
        show,
        {"word": "it's {{id}}"},
        num_nodes=2,
        resources_per_node={"cpu": 2},
        env={"OWN": "$(HOST) {{id}}", "HOST": "x"},
    )
    name = client.train(trainer=trainer)
    seen: list[str] = []
    job = wait(client, name, callbacks=[lambda job: seen.append(job.status)])
    assert (job.name, job.status, job.num_nodes, job.runtime.name) == (name, "Complete", 2, "torch-distributed")
    steps = [(step.name, step.pod_name, step.status, step.device, step.device_count) for step in job.steps]
    assert steps == [(f"node-{i}", f"{name}-node-0-{i}", "Succeeded", "cpu", "2") for i in (0, 1)]
    assert seen[-1] == "Complete" and set(seen) <= {"Created", "Running", "Complete"}
    assert client.get_job(name) == job
    for node in (0, 1):
        lines = sorted(client.get_job_logs(name, step=f"node-{node}"))
        shown = [f"it's {{{{id}}}} {2 * node + i} {i} 4 {node} {node} $(HOST) {{{{id}}}} {os.getcwd()}" for i in (0, 1)]
        assert lines == [*shown, "said on stderr", "said on stderr"]
    assert sorted(client.get_job_logs(name, follow=True)) == sorted(client.get_job_logs(name))
    events = client.get_job_events(name)
    reasons = [event.reason for event in events]
    assert reasons[0] == "submit" and reasons[-1] == "clean"
    assert {"alloc", "start", "finish"} <= set(reasons)
    assert {(event.involved_object_kind, event.involved_object_name) for event in events} >= {("TrainJob", name)}
    times = [event.event_time for event in events]
    assert times == sorted(times) and times[0].tzinfo is not None


def fail() -> None:
    import os
    import sys

    if os.environ["GROUP_RANK"] == "1":
        print("no luck", file=sys.stderr)
        sys.exit(3)


def test_a_job_that_fails_says_how(client: TrainerClient) -> None:
    name = client.train(trainer=CustomTrainer(fail, num_nodes=2))
    with pytest.raises(RuntimeError, match=f"TrainJob {name} is Failed: Exit 3"):
        wait(client, name)
    job = wait(client, name, "Failed")
    assert [step.status for step in job.steps] == ["Succeeded", "Failed"]
    assert list(client.get_job_logs(name, step="node-1")) == ["no luck"]
    assert "Exit 3" in [event.message for event in client.get_job_events(name)]


def count_until(path: str) -> None:
    import os
    import time

    print("begun")
    while not os.path.exists(path):
        time.sleep(0.01)
    print("ended", end="")


def test_logs_are_followed_and_statuses_awaited(client: TrainerClient, tmp_path: Path) -> None:
    end = tmp_path / "end"
    name = client.train(trainer=CustomTrainer(count_until, {"path": str(end)}), options=[Name("followed")])
    assert name == "followed"
    lines = client.get_job_logs(name, follow=True)
    assert next(lines) == "begun"
    assert wait(client, name, "Running", "Failed").status == "Running"
    assert list(client.get_job_logs(name)) == ["begun"]
    with pytest.raises(TimeoutError, match=f"Timeout waiting for TrainJob {name}"):
        client.wait_for_job_status(name, timeout=2, polling_interval=1)
    with pytest.raises(RuntimeError, match="already exists"):
        client.train(trainer=CustomTrainer(fail), options=[Name("followed")])
    end.touch()
    assert list(lines) == ["ended"]
    assert wait(client, name).status == "Complete"


def test_a_job_that_runs_can_be_deleted(client: TrainerClient, tmp_path: Path) -> None:
    first = client.train(trainer=CustomTrainer(count_until, {"path": str(tmp_path / "never")}))
    second = client.train("headrace-distributed", trainer=CustomTrainer(show, {"word": "x"}))
    assert next(client.get_job_logs(first, follow=True)) == "begun"
    assert [job.name for job in client.list_jobs()] == [first, second]
    assert [job.name for job in client.list_jobs(client.get_runtime("headrace-distributed"))] == [second]
    client.delete_job(first)
    assert [job.name for job in client.list_jobs()] == [second]
    for ask in (client.get_job, client.get_job_logs, client.get_job_events, client.delete_job):
        with pytest.raises(ValueError, match=f"No TrainJob with name {first}"):
            ask(first)
    wait(client, second)


def use_packages(value: int) -> None:
    import headrace_tiny
    import msgspec

    assert (headrace_tiny.VALUE, bool(msgspec)) == (value, True)
    print(headrace_tiny.__file__)


def ask_instance() -> None:
    import os
    import subprocess

    print(subprocess.run(["flux", "getattr", "size"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    print(os.environ["JOB_COMPLETION_INDEX"])


@pytest.mark.parametrize("place", ["local", "instance"])
def test_a_function_may_be_the_program_of_an_instance(place: str, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue("instance_uri") if place == "instance" else None
    runtime = own("own", options="{run: program}", torch=None)
    client = HeadraceClient(HeadraceBackendConfig(uri=uri, runtimes=(runtime,)))
    name = client.train("own", trainer=CustomTrainer(ask_instance, num_nodes=2))
    assert list(client.get_job_logs(name, follow=True)) == ["2", "0"]
    assert wait(client, name).num_nodes == 2
    client.delete_job(name)


@EACH_KIND
def test_packages_are_those_of_the_job_alone(client: TrainerClient, tmp_path: Path) -> None:
    wheels = [tiny_wheel(folder, value=number) for number, folder in enumerate((tmp_path / "a", tmp_path / "b"))]
    names = [
        client.train(
            trainer=CustomTrainer(
                use_packages, {"value": number}, packages_to_install=[wheel], num_nodes=2, resources_per_node={"cpu": 2}
            )
        )
        for number, wheel in enumerate(wheels)
    ]
    for name, wheel in zip(names, wheels):
        wait(client, name)
        lines = [line for node in (0, 1) for line in client.get_job_logs(name, step=f"node-{node}")]
        local = "instance" not in os.environ["PYTEST_CURRENT_TEST"]
        assert lines.count(f"installing packages: {wheel}") == (1 if local else 2)
        assert len({line for line in lines if line.endswith("headrace_tiny.py")}) == (1 if local else 2)


@EACH_KIND
def test_packages_that_are_not_there_fail_the_job(client: TrainerClient, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.whl")
    name = client.train(trainer=CustomTrainer(fail, packages_to_install=[missing]))
    with pytest.raises(RuntimeError, match="Exit 1"):
        wait(client, name)
    assert f"pip could not install the packages: {missing}" in list(client.get_job_logs(name))


@EACH_KIND
def test_the_packages_of_a_runtime_are_printed(client: TrainerClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.get_runtime_packages(client.get_runtime("headrace-torch"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Python: {sys.version.splitlines()[0]}"
    assert any(line.startswith("msgspec ") for line in lines)
    assert client.list_jobs() == []


def test_what_is_not_there_is_a_value_error(client: TrainerClient) -> None:
    runtime = client.get_runtime("headrace-torch")
    runtime.name = "unknown"
    asks: list[Callable[[], object]] = [
        lambda: client.get_job("unknown"),
        lambda: client.get_job("../unknown"),
        lambda: client.get_job(""),
        lambda: client.get_job_logs("unknown"),
        lambda: client.get_job_events("unknown"),
        lambda: client.delete_job("unknown"),
        lambda: client.wait_for_job_status("unknown"),
        lambda: client.get_runtime("unknown"),
        lambda: client.get_runtime_packages(runtime),
        lambda: client.train("unknown", trainer=CustomTrainer(fail)),
        lambda: client.train(runtime, trainer=CustomTrainer(fail)),
    ]
    for ask in asks:
        for error in (RuntimeError, ValueError):
            with pytest.raises(error, match=r"No TrainJob with name|Runtime 'unknown' not found"):
                ask()
    assert client.list_jobs() == []


@EACH_KIND
def test_a_wait_that_makes_no_sense_and_a_step_that_is_not_there_are_refused(client: TrainerClient) -> None:
    name = client.train(trainer=CustomTrainer(show, {"word": "x"}))
    for how in ({"status": {"Done"}}, {"timeout": 0}, {"polling_interval": 0}, {"timeout": 2, "polling_interval": 2}):
        with pytest.raises(ValueError):
            client.wait_for_job_status(name, **how)
    for step in ("node-1", "dataset-initializer", "train"):
        for error in (RuntimeError, ValueError):
            with pytest.raises(error, match=f"TrainJob {name} has no step '{step}': there are node-0"):
                client.get_job_logs(name, step=step)
    wait(client, name)


@EACH_KIND
def test_more_nodes_than_there_can_be_are_refused_or_fail(client: TrainerClient) -> None:
    trainer = CustomTrainer(fail, num_nodes=100_000)
    if "instance" in os.environ["PYTEST_CURRENT_TEST"]:
        name = client.train(trainer=trainer)
        with pytest.raises(RuntimeError, match=f"TrainJob {name} is Failed: alloc: unsatisfiable request"):
            wait(client, name)
        return
    with pytest.raises(ValueError, match="num_nodes: 100000 brokers do not fit this machine"):
        client.train(trainer=trainer)
    until(lambda: client.list_jobs() == [])
