"""Jobs as clusters: their words and variables, and each rule with the field that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from flux_jobs.read.samples import container, job, problems, read
from headrace.flux_jobs.read.cluster import Part, Source
from headrace.flux_jobs.read.options import Run

WORDS = ["sh", "-c", "echo 'a b' \"$1\"\n", "", "two  blanks", "{{id}}", "$HOME", "*", "\\", "ü"]


def pod(**fields: Any) -> dict[str, Any]:
    return {"containers": [container(**fields)]}


def test_a_job_is_its_pods_words_and_variables() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2 $(C)"}, {"name": "C", "value": "3"}]
    cluster = read(job(size=3, pod=pod(command=WORDS[:2], args=WORDS[2:], env=env)))
    assert (cluster.kind, cluster.name, cluster.parts) == ("Job", "hello", (Part("hello", 3, 3),))
    assert (cluster.size, cluster.max_size, cluster.tasks, cluster.run) == (3, 3, 3, Run.TASKS)
    assert list(cluster.argv) == WORDS
    variables = cluster.variables(lambda source: None)
    assert variables == {"A": "1", "B": "12 $(C)", "C": "3"}
    assert cluster.words(variables) == WORDS


def test_variables_may_come_from_elsewhere() -> None:
    sources = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "HOST", "value": "$(NAME).x$(JOB_COMPLETION_INDEX)"},
    ]
    cluster = read(job(pod=pod(command=["echo", "$(HOST)", "$(KEY)", "$(JOB_COMPLETION_INDEX)"], env=sources)))
    known = {
        Source("fieldRef", "metadata.name"): "hello-0",
        Source("fieldRef", "metadata.annotations['batch.kubernetes.io/job-completion-index']"): "0",
    }
    variables = cluster.variables(known.get)
    assert variables == {"NAME": "hello-0", "HOST": "hello-0.x$(JOB_COMPLETION_INDEX)", "JOB_COMPLETION_INDEX": "0"}
    assert cluster.words(variables) == ["echo", "hello-0.x$(JOB_COMPLETION_INDEX)", "$(KEY)", "0"]


def test_the_container_of_several_is_node_or_the_one_that_is_named() -> None:
    several = {"containers": [container(name="logs"), container(name="node", command=["run"])]}
    assert read(job(pod=several)).container == "node"
    assert read(job("{container: logs}", pod=several)).argv == ("hostname",)
    several["containers"][1]["name"] = "other"
    (found,) = problems(job(pod=several)).items()
    assert found[0].endswith("headrace-options.container")
    assert found[1] == "must say which of several containers has the command: logs, other"


@pytest.mark.parametrize(
    "words",
    [
        ["torchrun", "x.py"],
        ["/opt/bin/torchrun"],
        ["python", "-m", "torch.distributed.run"],
        ["bash", "-c", 'cat > f.py <<END\nprint(1)\nEND\ntorchrun "f.py"'],
        ["/bin/sh", "-ec", "exec /opt/bin/torchrun --max-restarts 3 x.py"],
        ["sh", "-c", "python3 -m torch.distributed.run x.py"],
    ],
)
def test_torchrun_is_started_once_a_node(words: list[str]) -> None:
    assert read(job(pod=pod(command=words))).run is Run.NODE
    assert read(job("{run: tasks}", pod=pod(command=words))).run is Run.TASKS


@pytest.mark.parametrize(
    "words",
    [
        ["python", "torchrun"],
        ["sh", "-c", "cat torchrun.log my-torchrun"],
        ["sh", "-c", "python /opt/torchrun/x.py"],
        ["echo", "-c", "torchrun x.py"],
    ],
)
def test_what_is_called_nearly_as_torchrun_is_a_task_for_each_process(words: list[str]) -> None:
    assert read(job(pod=pod(command=words))).run is Run.TASKS


def test_an_interactive_cluster_needs_no_command() -> None:
    bare = {"containers": [{"name": "main", "image": "debian:12"}]}
    cluster = read(job("{interactive: true}", pod=bare))
    assert (cluster.interactive, cluster.argv) == (True, ())
    (rule,) = problems(job(pod=bare)).values()
    assert rule.startswith("is required, because the entry point of the image is not known")


def test_numbers_that_are_missing_are_one() -> None:
    document = job()
    del document["spec"]["parallelism"], document["spec"]["completions"]
    assert read(document).size == 1


def test_a_generated_name_is_a_name() -> None:
    document = job()
    document["metadata"] = {"generateName": "sweep-"}
    assert read(document).name == "sweep"


CONTAINER = "spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("document", "path", "rule"),
    [
        (job(size=0), "spec.parallelism", "must be 1 or more, not 0"),
        (job(completions=3), "spec.completions", "must be 2 (parallelism)"),
        (
            job(completions=None),
            "spec.completions",
            "must be 2 (parallelism), not missing: each index is a host of the cluster",
        ),
        (job(parallelism="2"), "spec.parallelism", "must be a whole number, not '2'"),
        (job(parallelism=True), "spec.parallelism", "must be a whole number, not true"),
        (job(size=100_001), "spec.parallelism", "must be 100000 or less"),
        (job(pod=pod(command=None)), f"{CONTAINER}.command", "is required, because the entry point"),
        (job(pod=pod(command=None, args=["x"])), f"{CONTAINER}.command", "is required, because the entry point"),
        (job(pod=pod(command="hostname")), f"{CONTAINER}.command", "must be a list, not 'hostname'"),
        (job(pod=pod(command=["a", 3])), f"{CONTAINER}.command[1]", "must be text, not 3"),
        (job(pod=pod(command=["a", None])), f"{CONTAINER}.command[1]", "is required and must be text"),
        (job(pod=pod(command=["a", "\0"])), f"{CONTAINER}.command[1]", "must not contain the character NUL"),
        (job(pod=pod(command=[""])), f"{CONTAINER}.command", "must name a program"),
        (
            job(pod=pod(ports=[{"containerPort": 8050}])),
            f"{CONTAINER}.ports[0].containerPort",
            "8050 is a port that Headrace uses",
        ),
        (
            job(pod=pod(ports=[{"containerPort": 8051}])),
            f"{CONTAINER}.ports[0].containerPort",
            "8051 is a port that Headrace uses",
        ),
        (
            job(pod=pod(volumeMounts=[{"name": "x", "mountPath": "/mnt/flux/"}])),
            f"{CONTAINER}.volumeMounts[0].mountPath",
            "/mnt/flux is used by Headrace",
        ),
        (job(pod=pod(env=[{"name": "A=B"}])), f"{CONTAINER}.env[0].name", "'A=B' is not a valid name of a variable"),
        (job(pod=pod(env=[{"name": "", "value": "b"}])), f"{CONTAINER}.env[0].name", "must be the name of a variable"),
        (
            job("{container: main}", pod={"containers": [*pod()["containers"], *pod()["containers"]]}),
            "spec.template.spec.containers[1].name",
            "'main' is also the name of another container",
        ),
        (
            job(pod={**pod(), "initContainers": [{"name": "a"}, {"name": "a"}]}),
            "spec.template.spec.initContainers[1].name",
            "'a' is also the name of another container",
        ),
        (
            job(pod={**pod(), "initContainers": [{"name": ""}]}),
            "spec.template.spec.initContainers[0].name",
            "must be the name of a container",
        ),
        (job(pod=pod(env=[{"value": "b"}])), f"{CONTAINER}.env[0].name", "is required and must be text"),
        (
            job(pod=pod(env=[{"name": "A", "valueFrom": {}}])),
            f"{CONTAINER}.env[0].valueFrom",
            "must have one of fieldRef",
        ),
        (
            job(pod={**pod(), "initContainers": [{"name": "headrace-view"}]}),
            "spec.template.spec.initContainers[0].name",
            "headrace-view is the name of Headrace's own container",
        ),
        (
            job(pod={**pod(), "volumes": [{"name": "headrace-cluster", "emptyDir": {}}]}),
            "spec.template.spec.volumes[0].name",
            "headrace-cluster is the name of a volume of Headrace",
        ),
        (job(pod={"containers": []}), "spec.template.spec.containers", "must have at least one container"),
        (
            job(successPolicy={"rules": [{"succeededIndexes": "0,1"}, {"succeededIndexes": "1-1"}]}),
            "spec.successPolicy.rules[1].succeededIndexes",
            "must include index 0, the lead",
        ),
        (
            job(successPolicy={"rules": [{"succeededIndexes": "first"}]}),
            "spec.successPolicy.rules[0].succeededIndexes",
            "must be indexes such as 0,2-4",
        ),
        (
            job(size=3, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}),
            "spec.successPolicy.rules[0].succeededCount",
            "must be 2, not 1: with fewer",
        ),
        (
            job(size=3, successPolicy={"rules": [{"succeededCount": 1}]}),
            "spec.successPolicy.rules[0].succeededCount",
            "must be 3, not 1: with fewer",
        ),
        (
            {**job(size=10), "metadata": {"generateName": "a" * 100}},
            "metadata.generateName",
            f"is too long: the last host, {'a' * 58}*****-9, must have at most 63",
        ),
        (job(name="a" * 62), "metadata.name", "is too long: the last host"),
        (job("{maxSize: 11}", name="a" * 61), "metadata.name", "is too long: the last host"),
        (job(name="Hello"), "metadata.name", "'Hello' cannot name hosts"),
        (job(name=""), "metadata.name", "is required"),
        ({**job(), "apiVersion": "batch/v1beta1"}, "apiVersion", "must be batch/v1, not 'batch/v1beta1'"),
        ({**job(), "spec": None}, "spec", "is required"),
    ],
)
def test_what_breaks_a_rule_is_told_of_its_field(document: dict[str, Any], path: str, rule: str) -> None:
    found = problems(document)
    assert path in found
    assert found[path].startswith(rule)
    if document["spec"]:
        assert list(found) == [path]


@pytest.mark.parametrize(
    "document",
    [
        job(name="a" * 61),
        job(successPolicy={"rules": [{"succeededIndexes": "0", "succeededCount": 1}, {"succeededCount": 2}]}),
        job(pod=pod(ports=[{"containerPort": 8052}], volumeMounts=[{"name": "x", "mountPath": "/mnt/fluxus"}])),
        job(pod=pod(volumeMounts=[{"name": "x", "mountPath": "/dev/shm"}])),
    ],
)
def test_what_keeps_to_the_rules_is_taken(document: dict[str, Any]) -> None:
    assert problems(document) == {}
