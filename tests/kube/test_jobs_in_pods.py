"""An Indexed Job with the label, in users' images on a real Kubernetes: it says hello, and ends as its command does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from kubecluster.cluster import Cluster
from labelled_jobs import Jobs
from patience import TIMEOUT, until
from running_operator import RunningOperator

from headrace.minicluster.operator.keys import keys_of

# What Pod Security's profile `restricted` asks of every container.
RESTRICTED: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def jobs(cluster: Cluster, operator: RunningOperator, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


def test_each_pod_is_a_broker_and_the_job_completes(jobs: Jobs) -> None:
    jobs.create("hello", "flux", "getattr", "rank", size=4)
    end = jobs.ended("hello")
    assert sorted(jobs.log("hello").split()) == ["0", "1", "2", "3"]
    assert (end["kind"], end["exit"], end["reason"]) == ("Complete", 0, "")
    assert list(end["times"]) == ["created", "started", "finished"]
    assert [reason for reason, _ in jobs.events("hello")][-1] == "Finished"


def test_a_command_that_fails_fails_the_job_with_its_exit_code(jobs: Jobs) -> None:
    jobs.create("fails", "sh", "-c", "exit 3")
    end = jobs.ended("fails")
    assert (end["kind"], end["exit"], end["reason"]) == ("Failed", 3, "the job ended with exit code 3")
    assert jobs.exit_code("fails") == 3
    assert len(jobs.pods("fails", 0)) == 1, "it is not tried again"


@pytest.mark.parametrize(("signal", "code", "shown"), [("KILL", 137, 247), ("TERM", 143, 241)])
def test_a_command_that_is_ended_by_a_signal_fails_the_job_and_is_not_run_again(
    jobs: Jobs, signal: str, code: int, shown: int
) -> None:
    # `$$` alone would be the kubelet's.
    jobs.create("killed", "sh", "-c", f"kill -{signal} $$$$")
    end = jobs.ended("killed")
    assert (end["kind"], end["exit"]) == ("Failed", code)
    assert jobs.exit_code("killed") == shown
    assert len(jobs.pods("killed", 0)) == 1, "it is not tried again"


_WORDS = ("for word; do printf '<%s>' \"$word\"; done; echo", "sh", "", "a b", "it's", '"', "two\nlines", "*", "{{id}}")
_POD = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def test_words_arrive_as_they_are_and_only_the_kubelet_expands_references(jobs: Jobs) -> None:
    env = [{"name": "WHO", "value": "me"}]
    jobs.create(
        "words", "sh", "-c", *_WORDS, size=1, container={"env": env, "args": ["$(WHO)", "$$(WHO)", "$(NOBODY)", "$WHO"]}
    )
    assert jobs.ended("words")["exit"] == 0
    given = "<><a b><it's><\"><two\nlines><*><{{id}}>"
    assert jobs.log("words") == f"{given}<me><$(WHO)><$(NOBODY)><$WHO>\n"


def test_each_task_has_its_own_pods_variables(jobs: Jobs) -> None:
    command = ("sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_PORT $JOB_COMPLETION_INDEX $POD $HOSTNAME")
    env = [_POD, {"name": "MASTER_PORT", "value": "4242"}]
    jobs.create("own", *command, options="{procsPerNode: 2}", container={"env": env})
    assert jobs.ended("own")["exit"] == 0
    # The pods of other indexes than 0 are deleted when the Job is complete.
    made = [one["message"] for one in jobs.get("event")["items"] if one["reason"] == "SuccessfulCreate"]
    names = sorted(text.removeprefix("Created pod: ") for text in made)
    assert sorted(jobs.log("own").splitlines()) == [
        f"{rank} {rank % 2} 4 4242 {rank // 2} {names[rank // 2]} own-{rank // 2}" for rank in range(4)
    ]


def test_a_launcher_runs_once_a_node_and_knows_the_others(jobs: Jobs) -> None:
    command = ("sh", "-c", "echo $PET_NODE_RANK $PET_NNODES $PET_NPROC_PER_NODE $WORLD_SIZE")
    jobs.create("launcher", *command, options="{run: node, procsPerNode: 3}")
    assert jobs.ended("launcher")["exit"] == 0
    assert sorted(jobs.log("launcher").splitlines()) == ["0 2 3 2", "1 2 3 2"]


def test_a_program_runs_once_and_submits_jobs(jobs: Jobs) -> None:
    program = "flux run -N2 sh -c 'echo $(hostname) $JOB_COMPLETION_INDEX' && exit 5"
    jobs.create("program", "sh", "-c", program, options="{run: program}")
    end = jobs.ended("program")
    said = [line for line in jobs.log("program").splitlines() if line.startswith("program-")]
    assert sorted(said) == ["program-0 0", "program-1 1"]
    assert (end["kind"], end["exit"]) == ("Failed", 5)


def test_brokers_alone_stay_until_the_job_is_deleted(jobs: Jobs) -> None:
    jobs.create("stays", options="{interactive: true}")
    until(lambda: "BrokersUp" in dict(jobs.events("stays")))
    lead = jobs.pods("stays", 0)[0]["metadata"]["name"]
    uri = "FLUX_URI=local:///mnt/flux/config/run/flux/local"
    assert jobs.kubectl("exec", lead, "--", "env", uri, "/mnt/flux/view/bin/flux", "getattr", "size") == "2\n"
    jobs.kubectl("delete", "job", "stays", "--cascade=foreground", TIMEOUT)
    left = jobs.kubectl("get", "job,pod,svc,secret,configmap", "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt"]


@pytest.mark.parametrize("distribution", ["debian", "alpine"])
def test_an_image_with_a_shell(jobs: Jobs, image: Callable[[str], str], distribution: str) -> None:
    """The command finds the image's own programs, not ours."""
    image(distribution)
    command = "echo task $FLUX_TASK_RANK of $(hostname): $(command -v python3) $PYTHONPATH"
    jobs.create("shell", "sh", "-c", command, image=distribution)
    assert jobs.ended("shell")["exit"] == 0
    lines = sorted(line.rstrip() for line in jobs.log("shell").splitlines())
    assert lines == ["task 0 of shell-0:", "task 1 of shell-1:"]


@pytest.mark.parametrize("distribution", ["debian", "scratch"])
def test_a_user_without_passwd_entry_on_a_read_only_root(
    jobs: Jobs, image: Callable[[str], str], distribution: str
) -> None:
    """In a namespace that enforces the profile `restricted`, in an image of one program, too."""
    image(distribution)
    jobs.cluster.kubectl("label", "namespace", jobs.namespace, "pod-security.kubernetes.io/enforce=restricted")
    security = {**RESTRICTED, "readOnlyRootFilesystem": True}
    shell = ("sh", "-c", "echo task $FLUX_TASK_RANK on $(hostname) as $(id -u) says there")
    command = ("/speak", "there") if distribution == "scratch" else shell
    jobs.create("strict", *command, image=distribution, container={"securityContext": security})
    end = jobs.ended("strict")
    assert end["exit"] == 0, end
    lines = [line for line in jobs.log("strict").splitlines() if line.startswith("task")]
    assert sorted(lines) == [f"task {rank} on strict-{rank} as 12345 says there" for rank in range(2)]


def test_the_status_of_a_program_of_scratch_is_the_jobs(jobs: Jobs, image: Callable[[str], str]) -> None:
    image("scratch")
    jobs.create("nine", "/speak", "there", "9", image="scratch")
    assert jobs.ended("nine")["exit"] == 9


def test_a_guaranteed_pod_stays_one(jobs: Jobs) -> None:
    limits = {"cpu": "200m", "memory": "256Mi"}
    jobs.create("sure", "true", container={"resources": {"limits": limits, "requests": limits}})
    assert jobs.ended("sure")["exit"] == 0
    assert {pod["status"]["qosClass"] for pod in jobs.pods("sure")} == {"Guaranteed"}


def test_no_two_jobs_share_a_key_and_keys_are_in_secrets_alone(jobs: Jobs, operator: RunningOperator) -> None:
    for name in ("one", "two"):
        jobs.create(name, "env", size=1)
    for name in ("one", "two"):
        assert jobs.ended(name)["exit"] == 0
    secrets = [keys_of(one) for one in jobs.get("secret")["items"]]
    assert len(secrets) == 2
    keys = {key for one in secrets for text in one for key in re.findall(r'"(.{40})"', text)}
    assert len(keys) == 12
    seen = [jobs.get(kind) for kind in ("configmap", "event", "pod", "job", "service")]
    text = json.dumps(seen) + jobs.whole_log("one") + jobs.whole_log("two") + operator.log.read_text()
    assert not any(key in text for key in keys)


def test_few_requests_from_creation_to_end(jobs: Jobs, operator: RunningOperator) -> None:
    before = operator.requests()
    jobs.create("counted", "true", size=4)
    jobs.ended("counted")
    until(lambda: "Finished" in dict(jobs.events("counted")))
    after = operator.requests()
    made = {what: number - before.get(what, 0) for what, number in after.items() if number > before.get(what, 0)}
    assert sum(made.values()) <= 12, made


def test_lammps_computes_on_the_pods_of_a_job_what_the_example_computes(
    jobs: Jobs, image: Callable[[str], str]
) -> None:
    image("lammps")
    fields = "LAMMPS_POTENTIALS=$(echo /usr/local/lib/python3*/dist-packages/lammps/share/lammps/potentials)"
    command = f"export {fields}; exec lmp -log none -in lammps/in.reaxff.hns"
    jobs.create("lammps", "sh", "-c", command, size=4, image="lammps")
    end = jobs.ended("lammps")
    said = jobs.log("lammps")
    assert (end["kind"], end["exit"]) == ("Complete", 0), said
    # Without MPI between them, each rank would be a run of its own.
    assert re.findall(r"on (\d+) procs for (\d+) steps with (\d+) atoms", said) == [("4", "10", "304")]
