"""What a Flux instance gets of a cluster: its tasks, variables and templates, and what is said not to apply."""

from __future__ import annotations

import json
import random
import shlex
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec import structs

from flux_jobs.read.samples import Document, container, job, job_spec, jobset, read, trainjob
from flux_jobs.read.test_convert import POD
from flux_jobs.read.test_flux_jobs_load import SAMPLES, mutated, outcome
from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.flux_jobs.read.options import Run
from headrace.flux_jobs.read.running import (
    environment,
    jobspec,
    not_applied,
    plan,
    unresolved,
    with_sizes,
    words,
    working_dir,
)
from headrace.formats.spec.jobspec import validate
from headrace.minicluster.api.shell_text import Mode


def source(path: str) -> Document:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


ENV = [
    {"name": "POD", **source("metadata.name")},
    {"name": "SPACE", **source("metadata.namespace")},
    {"name": "APP", **source("metadata.labels['app']")},
    {"name": "IP", **source("status.podIP")},
    {"name": "URL", "value": "http://$(POD).$(SPACE)/{{id}}"},
]


def with_env() -> ForeignCluster:
    document = job(pod={"containers": [container(command=["echo", "$(POD)", "$(IP)", "$(URL)"], env=ENV)]})
    document["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
    return read(document)


def test_what_differs_between_pods_is_a_template_and_the_command_has_the_leads() -> None:
    cluster = with_env()
    values, templates = environment(cluster, local=True)
    assert values == {"SPACE": "default", "APP": "x"}
    assert templates == {
        "POD": "hello-{{node.id}}",
        "URL": "http://hello-{{node.id}}.default/{{id}}",
        "JOB_COMPLETION_INDEX": "{{node.id}}",
    }
    assert words(cluster, local=True) == ["echo", "hello-0", "$(IP)", "http://hello-0.default/{{id}}"]


MEET = [
    {"name": "MASTER_ADDR", "value": "set-part0-0-0.set"},
    {"name": "INIT", "value": "tcp://$(MASTER_ADDR):29500"},
    {"name": "POD", **source("metadata.name")},
    {"name": "OWN", "value": "$(POD).set:80"},
    {"name": "PEER", "value": "set-part0-0-1.set.default.svc.cluster.local"},
    {"name": "LEADER", "value": "set-part0-0-0"},
    {"name": "DRIVER", "value": "set-driver-0-0.set"},
]


def meeting(**fields: Any) -> ForeignCluster:
    one = container(command=["ping", "$(INIT)"], args=["set-part0-0-7.set"], env=MEET)
    return read(jobset({"template": {"spec": job_spec(pod={"containers": [one]})}}, **fields))


def test_on_one_machine_names_of_pods_are_its_address() -> None:
    """A pod's own name stays what it is, and a literal to compare it with."""
    values, templates = environment(meeting(), local=True)
    assert values == {
        "MASTER_ADDR": "127.0.0.1",
        "INIT": "tcp://127.0.0.1:29500",
        "OWN": "127.0.0.1:80",
        "PEER": "127.0.0.1",
        "LEADER": "set-part0-0-0",
        "DRIVER": "set-driver-0-0.set",
    }
    assert set(templates) == {"POD", "JOB_COMPLETION_INDEX"}
    assert words(meeting(), local=True) == ["ping", "tcp://127.0.0.1:29500", "set-part0-0-7.set"]
    assert unresolved(meeting(), local=True) == [
        "LEADER (set-part0-0-0)",
        "DRIVER (set-driver-0-0.set)",
        "args[0] (set-part0-0-7.set)",
    ]
    assert "env OWN=" not in plan(meeting(), {}, "/").initial_program
    program = plan(structs.replace(meeting(), run=Run.PROGRAM), {}, "/").initial_program
    assert "INIT=tcp://127.0.0.1:29500" in program and "ping tcp://127.0.0.1:29500" in program


def test_in_an_instance_the_first_pod_is_where_torch_meets_and_other_names_are_reported() -> None:
    found = jobspec(meeting(), {"MASTER_ADDR": "mine"}, "/", gpus=True, local=False)["attributes"]["system"]
    assert "MASTER_ADDR" not in found["environment"]
    assert found["environment"]["PEER"] == "set-part0-0-1.set.default.svc.cluster.local"
    assert [line.split()[0] for line in unresolved(meeting(), local=False)] == [
        *("INIT", "OWN", "PEER", "LEADER", "DRIVER", "command[1]", "args[0]"),
    ]
    program = structs.replace(meeting(), run=Run.PROGRAM)
    assert unresolved(program, local=False)[0] == "MASTER_ADDR (set-part0-0-0.set)"


@pytest.mark.parametrize(
    ("cluster", "text", "after"),
    [
        (meeting(network={"subdomain": "meet"}), "set-part0-0-0.meet", "127.0.0.1"),
        (meeting(network={"enableDNSHostnames": False}), "set-part0-0-0.set", "set-part0-0-0.set"),
        (read(job(pod={"subdomain": "meet", "containers": [container()]})), "hello-1.meet", "127.0.0.1"),
        (read(job()), "hello-1.meet", "hello-1.meet"),
        (read(trainjob({"command": ["x"], "numNodes": 2}, "headrace-torch")), "train-node-0-1.train", "127.0.0.1"),
        (with_sizes(meeting(), 1, None), "set-part0-0-1.set", "set-part0-0-1.set"),
    ],
)
def test_the_service_is_that_of_the_object(cluster: ForeignCluster, text: str, after: str) -> None:
    assert words(structs.replace(cluster, argv=(text,)), local=True) == [after]


def test_a_job_takes_whole_nodes_with_its_tasks_on_each() -> None:
    cluster = with_sizes(with_env(), 3, 2)
    found = jobspec(cluster, {"HOME": "/h", "APP": "old", "POD": "old"}, "/work", gpus=True, local=False)
    validate(found)
    system = found["attributes"]["system"]
    options = system["shell"]["options"]
    assert system["environment"] == {"HOME": "/h", "SPACE": "default", "APP": "x"}
    assert (system["cwd"], system["job"]["name"]) == ("/work", "hello")
    assert found["resources"][0]["count"] == 3 and found["resources"][0]["exclusive"] is True
    assert options["per-resource"] == {"type": "node", "count": 2}
    assert (options["torch"], options["literal-args"]) == (1, 1)
    assert (options["cpu-affinity"], options["gpu-affinity"]) == ("per-task", "per-task")
    assert (
        jobspec(cluster, {}, "/", gpus=False, local=True)["attributes"]["system"]["shell"]["options"]["gpu-affinity"]
        == "off"
    )


def test_torchrun_is_one_task_a_node() -> None:
    cluster = read(trainjob({"command": ["torchrun", "x"], "numNodes": 2, "numProcPerNode": 4}, "headrace-torch"))
    system = jobspec(cluster, {}, "/", gpus=True, local=False)["attributes"]["system"]
    assert system["shell"]["options"]["per-resource"] == {"type": "node", "count": 1}
    assert system["environment"] == {"PET_NPROC_PER_NODE": "4"}


@pytest.mark.parametrize(
    ("given", "options", "procs", "told"),
    [
        (None, "", None, "1"),
        ("4", "", None, "4"),
        ("4", "{procsPerNode: 2}", None, "2"),
        ("4", "", 3, "3"),
        ("auto", "", None, "auto"),
        ("auto", "", 3, "3"),
    ],
)
def test_a_launcher_is_told_of_its_processes(given: str | None, options: str, procs: int | None, told: str) -> None:
    env = [{"name": "PET_NPROC_PER_NODE", "value": given}] if given else []
    cluster = read(job(options, pod={"containers": [container(command=["torchrun", "x"], env=env)]}))
    assert environment(with_sizes(cluster, None, procs), local=True)[0]["PET_NPROC_PER_NODE"] == told


def test_a_number_of_processes_that_is_given_is_that_of_other_variables_too() -> None:
    env = [{"name": "PET_NPROC_PER_NODE", "value": "4"}, {"name": "TOLD", "value": "$(PET_NPROC_PER_NODE)"}]
    cluster = read(job(pod={"containers": [container(command=["torchrun", "x"], env=env)]}))
    assert environment(with_sizes(cluster, None, 3), local=True)[0]["TOLD"] == "3"


def test_a_program_is_that_of_an_instance() -> None:
    cluster = read(job("{run: program, queuePolicy: easy}"))
    found = jobspec(cluster, {}, "/", gpus=True, local=False)
    assert found["tasks"][0]["command"][:2] == ["flux", "broker"]
    assert found["tasks"][0]["command"][-1] == "{{tmpdir}}/script"
    assert found["attributes"]["system"]["files"]["script"]["data"] == "#!/bin/sh\nexec hostname\n"
    assert plan(cluster, {}, "/").config == {"sched-fluxion-qmanager": {"queue-policy": "easy"}}
    assert plan(cluster, {}, "/").mode is Mode.LAUNCHER
    interactive = read(job("{interactive: true}"))
    assert jobspec(interactive, {}, "/", gpus=True, local=False)["tasks"][0]["command"][-2:] == ["sleep", "infinity"]
    assert plan(interactive, {}, "/").initial_program == ""


def test_a_program_has_the_leads_variables() -> None:
    cluster = structs.replace(with_env(), run=Run.PROGRAM)
    system = jobspec(cluster, {"HOME": "/h", "POD": "old"}, "/", gpus=True, local=False)["attributes"]["system"]
    assert system["environment"] == {
        "HOME": "/h",
        "SPACE": "default",
        "APP": "x",
        "POD": "hello-0",
        "URL": "http://hello-0.default/{{id}}",
        "JOB_COMPLETION_INDEX": "0",
    }
    assert "env-expand" not in system["shell"]["options"]


def test_the_plan_of_local_brokers_submits_the_jobspec() -> None:
    made = plan(with_env(), {"A": "it's"}, "/work")
    assert (made.name, made.size, made.hosts, made.working_dir) == ("hello", 2, "hello-[0-1]", "/work")
    given_spec = json.loads(shlex.split(made.lead_before)[2])
    assert given_spec == jobspec(with_env(), {"A": "it's"}, "/work", gpus=False, local=True)


def test_a_deadline_is_the_jobs_duration() -> None:
    cluster = read(job(activeDeadlineSeconds=60))
    assert jobspec(cluster, {}, "/", gpus=True, local=False)["attributes"]["system"]["duration"] == 60


def test_what_cannot_apply_is_named() -> None:
    pod = "spec.template.spec"
    options = "metadata.annotations.flux-framework.org/headrace-options"
    given = "{container: main, sharedMemory: 1Gi, maxSize: 9, spread: required, exit: keep}"
    document = job(given, pod=POD, suspend=True, ttlSecondsAfterFinished=3)
    cluster = read(document)
    assert sorted(not_applied(cluster)) == sorted(
        [
            *(f"{options}.{key}" for key in ("sharedMemory", "maxSize", "spread", "exit")),
            "spec.suspend",
            f"{pod}.nodeSelector",
            f"{pod}.tolerations",
            f"{pod}.serviceAccountName",
            f"{pod}.imagePullSecrets",
            f"{pod}.hostNetwork",
            f"{pod}.volumes",
            f"{pod}.containers[0].image",
            f"{pod}.containers[0].resources",
            f"{pod}.containers[0].envFrom",
            f"{pod}.containers[0].volumeMounts",
            f"{pod}.containers[0].env[1] (KEY)",
            f"{pod}.containers[1] (logs)",
        ]
    )
    assert working_dir(cluster) == "/work"
    bare: dict[str, Any] = container()
    del bare["image"]
    sets = jobset({"template": {"spec": job_spec(pod={"containers": [bare]})}}, network={"subdomain": "x"})
    assert not_applied(read(sets)) == ["spec.network"]


@drawn(st.sampled_from(SAMPLES), st.integers(0, 2**32))
def test_a_mutated_document_that_is_taken_has_a_valid_jobspec(sample: list[Any], seed: int) -> None:
    cluster = outcome(mutated(sample, random.Random(seed)))
    if isinstance(cluster, ForeignCluster):
        not_applied(cluster)
        unresolved(cluster, local=True)
        validate(jobspec(cluster, {}, "/", gpus=True, local=False))
        json.dumps(jobspec(cluster, {}, "/", gpus=True, local=False)).encode()
        assert plan(cluster, {}, "/").size == cluster.size
