"""Pods of a Job that is a cluster: its command is in their own containers, and each task has its pod's variables."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import Pod, Pods, pods

from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.objects import plan as make_pod_plan
from headrace.flux_jobs.read.job import read
from headrace.minicluster.api.pod_plan import PodPlan, encode
from waiting import until

_SHOW = "import json, os, sys; sys.stdout.write(json.dumps([sys.argv[1:], dict(os.environ)]) + chr(10))"
POD: dict[str, Any] = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
SHOW = ("python3", "-c", _SHOW)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        yield made


def plan_of(*words: str, options: str = "", env: list[dict[str, Any]] | None = None, **fields: Any) -> PodPlan:
    """The plan of a Job with a command; `fields` are those of its spec."""
    one = container(command=list(words), env=env or [])
    cluster = read(job(options, "c", pod={"containers": [one]}, **fields))
    return make_pod_plan(cluster, service="headrace-0123456789", domain="cluster.local")


def ended(world: Pods, plan: PodPlan, *words: str, **env: str) -> list[Pod]:
    """The pods of a cluster that has ended."""
    found = world.start_all(plan, "cluster", *words, **env)
    for pod in found:
        pod.wait()
    return found


def shown(lead: Pod) -> list[tuple[list[str], dict[str, str]]]:
    """Arguments and environment of each task, by rank."""
    lines = [json.loads(line) for line in lead.output()[0].splitlines()]
    return sorted(((argv, env) for argv, env in lines), key=lambda one: int(one[1]["FLUX_TASK_RANK"]))


def test_each_pod_says_its_rank_and_all_end(world: Pods) -> None:
    lead, follower = ended(world, plan_of("flux", "getattr", "rank"), "flux", "getattr", "rank")
    assert sorted(lead.output()[0].split()) == ["0", "1"], lead.output()
    assert (lead.wait(), follower.wait()) == (0, 0)
    assert (lead.message()["exit"], lead.message()["reason"]) == (0, "")


def test_a_command_that_fails_fails_the_lead_alone(world: Pods) -> None:
    words = ("sh", "-c", "exit 3")
    lead, follower = ended(world, plan_of(*words), *words)
    assert (lead.wait(), follower.wait()) == (3, 0)
    assert lead.message()["exit"] == 3


def test_words_arrive_as_they_are(world: Pods) -> None:
    words = ("", "a b", "it's", '"', "two\nlines", "$(HOME)", "$HOME", "{{id}}", "--", "-n", "*", "\\")
    lead, _ = ended(world, plan_of(*SHOW, *words), *SHOW, *words)
    assert [argv for argv, _ in shown(lead)] == [list(words)] * 2, lead.output()


def test_each_task_has_the_variables_of_its_own_pod_and_those_of_torch(world: Pods) -> None:
    env: list[dict[str, Any]] = [
        POD,
        {"name": "URL", "value": "http://$(POD)/"},
        {"name": "SAME", "value": "same"},
        {"name": "MASTER_PORT", "value": "4242"},
    ]
    plan = plan_of(*SHOW, options="{procsPerNode: 2}", env=env)
    world.name_pods(plan)
    same = {"SAME": "same", "MASTER_PORT": "4242"}
    found = [
        world.start(
            plan, f"c-{index}", "cluster", *SHOW,
            JOB_COMPLETION_INDEX=str(index), POD=f"c-{index}", URL=f"http://c-{index}/", **same,
        )
        for index in range(2)
    ]  # fmt: skip
    for pod in found:
        assert pod.wait() == 0, pod.output()
    tasks = [env for _, env in shown(found[0])]
    assert [one["JOB_COMPLETION_INDEX"] for one in tasks] == ["0", "0", "1", "1"]
    assert [one["POD"] for one in tasks] == ["c-0", "c-0", "c-1", "c-1"]
    assert [one["URL"] for one in tasks] == ["http://c-0/"] * 2 + ["http://c-1/"] * 2
    assert [(one["RANK"], one["LOCAL_RANK"], one["GROUP_RANK"]) for one in tasks] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    assert {(one["WORLD_SIZE"], one["MASTER_PORT"], one["SAME"]) for one in tasks} == {("4", "4242", "same")}


def test_one_launcher_a_node_is_told_the_processes_of_its_node(world: Pods) -> None:
    lead, _ = ended(world, plan_of(*SHOW, options="{run: node, procsPerNode: 3}"), *SHOW)
    tasks = [env for _, env in shown(lead)]
    assert [one["PET_NPROC_PER_NODE"] for one in tasks] == ["3", "3"]
    assert [one["PET_NODE_RANK"] for one in tasks] == ["0", "1"]


def test_a_program_runs_once_and_submits_jobs_whose_tasks_have_their_own_pods_variables(world: Pods) -> None:
    words = ("flux", "run", "-N2", "printenv", "JOB_COMPLETION_INDEX")
    lead, _ = ended(world, plan_of(*words, options="{run: program}"), *words)
    assert sorted(lead.output()[0].split()) == ["0", "1"], lead.output()


def test_brokers_without_a_job_stay_until_they_are_deleted(world: Pods) -> None:
    plan = plan_of(options="{interactive: true}", env=[POD])
    world.name_pods(plan)
    lead, follower = (world.start(plan, host, "cluster", POD=host) for host in ("c-0", "c-1"))
    until(lambda: lead.run("flux", "getattr", "size").stdout == "2\n")
    # As by `kubectl exec`.
    lines = lead.run("flux", "run", "-N2", "-l", "printenv", "POD", POD="c-0").stdout
    assert sorted(lines.splitlines()) == ["0: c-0", "1: c-1"]
    for pod in (follower, lead):
        pod.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait()) == (143, 143)


def test_a_lead_that_is_told_to_end_after_its_followers_has_been_ended_and_has_not_failed(world: Pods) -> None:
    """Kubernetes tells the pods of a Job that is suspended one after the other to end."""
    world.with_channel()
    words = ("sh", "-c", "echo started; sleep 1000")
    lead, follower = world.start_all(plan_of(*words), "cluster", *words)
    until(lambda: lead.output()[0].count("started") == 2)
    follower.signal(signal.SIGTERM)
    until(lambda: "lost contact" in lead.output()[1])
    lead.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait()) == (143, 143)
    assert lead.message()["reason"] == "the pod received SIGTERM"


def test_a_lead_whose_follower_is_lost_alone_has_failed(world: Pods) -> None:
    world.with_channel()
    words = ("sh", "-c", "echo started; sleep 1000")
    lead, follower = world.start_all(plan_of(*words), "cluster", *words)
    until(lambda: lead.output()[0].count("started") == 2)
    follower.signal(signal.SIGTERM)
    assert lead.wait() not in (0, 137, 143)
    assert "node-failure" in lead.message()["reason"]


def test_a_pod_beyond_the_hosts_of_its_plan_waits_for_one_that_has_it(world: Pods) -> None:
    small, large = (plan_of(options="{interactive: true}", size=size) for size in (1, 2))
    world.name_pods(large)
    lead = world.start(large, "c-0", "cluster", JOB_COMPLETION_INDEX="0")
    other = world.start(large, "c-1", "cluster", given=small, JOB_COMPLETION_INDEX="1")
    until(lambda: "scaled beyond" in other.output()[1])
    (other.folder / "both" / "plan.json").write_text(encode(large))
    until(lambda: lead.run("flux", "run", "-N2", "hostname").returncode == 0)
    assert other.process.poll() is None


def test_more_processes_than_cores_run_unbound_and_the_log_says_so(world: Pods) -> None:
    cores = len(os.sched_getaffinity(0))
    plan = plan_of("sh", "-c", "nproc", options=f"{{procsPerNode: {cores + 1}}}", size=1)
    (lead,) = ended(world, plan, "sh", "-c", "nproc")
    out, err = lead.output()
    assert out.split() == [str(cores)] * (cores + 1), err
    assert f"{cores + 1} tasks share {cores} core" in err


def test_with_the_networks_of_their_nodes_tasks_have_the_host_of_their_own_pod(world: Pods) -> None:
    words = ("sh", "-c", "echo $FLUX_FAKE_HOSTNAME $JOB_COMPLETION_INDEX")
    plan = plan_of(*words)
    world.name_pods(plan)
    pods = [
        world.start(plan, f"c-{index}", "cluster", *words, node=f"node-{index}", JOB_COMPLETION_INDEX=str(index))
        for index in range(2)
    ]
    for pod in pods:
        assert pod.wait() == 0, pod.output()
    assert sorted(pods[0].output()[0].splitlines()) == ["c-0 0", "c-1 1"]
