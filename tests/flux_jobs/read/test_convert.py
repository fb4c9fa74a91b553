"""A Job as a MiniCluster: the same words reach the program, and no field is lost without being named."""

from __future__ import annotations

import random
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_jobs.read.samples import Document, container, job, jobset, read, trainjob
from flux_jobs.read.test_flux_jobs_job import WORDS
from flux_jobs.read.test_flux_jobs_load import SAMPLES, mutated, outcome
from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.flux_jobs.read.convert import convert
from headrace.flux_jobs.read.field import InvalidForeign
from headrace.minicluster.api.plan import make_plan, one_line
from headrace.minicluster.api.validate import check


def converted(document: Document) -> tuple[Document, list[str]]:
    found, lost = convert(read(document))
    check(found)
    return found["spec"], lost


def test_a_small_job_is_a_small_minicluster() -> None:
    assert converted(job(size=3)) == (
        {"size": 3, "tasks": 3, "containers": [{"image": "debian:12", "command": "hostname"}]},
        [],
    )


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_words_arrive_as_they_are(words: list[str]) -> None:
    spec, _ = converted(job(pod={"containers": [container(command=["x", *(w.replace("$", "$$") for w in words)])]}))
    assert shlex.split(one_line(spec["containers"][0]["command"])) == ["x", *words]


@pytest.mark.parametrize("options", ["{run: tasks}", "{run: program}"])
def test_a_shell_reads_the_words_too(options: str) -> None:
    words = ["printf", "<%s>", *WORDS, "A=b"]
    spec, _ = converted(job(options, pod={"containers": [container(command=words)]}))
    text = make_plan(check({**HEAD, "spec": spec})).initial_program
    command = text[text.index("printf") - (options == "{run: program}") :]
    printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(f"<{word}>" for word in words[2:])


HEAD = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "hello"}}


def test_each_way_of_running_has_its_place() -> None:
    assert converted(job("{run: node, procsPerNode: 4}"))[0]["tasks"] == 0
    assert converted(job("{procsPerNode: 4}"))[0]["tasks"] == 8
    assert converted(job("{run: program}"))[0]["containers"][0]["launcher"] is True
    spec = converted(job("{interactive: true, maxSize: 5, queuePolicy: easy, sharedMemory: 1Gi, spread: none}"))[0]
    assert (spec["interactive"], spec["maxSize"]) == (True, 5)
    assert "command" not in spec["containers"][0]
    assert spec["flux"] == {"scheduler": {"queuePolicy": "easy"}}
    assert spec["network"] == {"disableAffinity": True}
    memory = {"path": "/dev/shm", "emptyDir": True, "emptyDirMedium": "Memory", "emptyDirSizeLimit": "1Gi"}
    assert spec["containers"][0]["volumes"] == {"shared-memory": memory}


POD = {
    "restartPolicy": "Never",
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "serviceAccountName": "runner",
    "imagePullSecrets": [{"name": "pull"}],
    "shareProcessNamespace": True,
    "hostNetwork": True,
    "containers": [
        container(
            workingDir="/work",
            resources={"limits": {"cpu": 2}},
            ports=[{"containerPort": 80, "hostPort": 80}],
            env=[
                {"name": "WHO", "value": "me"},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            command=["echo", "$(WHO)", "it's $(KEY)!", "$(POD)"],
            envFrom=[{"configMapRef": {"name": "c"}}],
            volumeMounts=[
                {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "x"},
                {"name": "data", "mountPath": "/again"},
                {"name": "odd", "mountPath": "/odd"},
            ],
        ),
        {"name": "logs", "image": "logs"},
    ],
    "volumes": [
        {
            "name": "data",
            "configMap": {"name": "c", "items": [{"key": "a", "path": "b", "mode": 256}], "defaultMode": 256},
        },
        {"name": "odd", "nfs": {"server": "s", "path": "/"}},
        {"name": "unused", "emptyDir": {}},
    ],
}


def test_what_has_a_place_is_there_and_all_else_is_named() -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [3]}}]
    document = job(
        "{container: main, exit: keep, spread: required}",
        pod=POD,
        backoffLimit=2,
        activeDeadlineSeconds=60,
        ttlSecondsAfterFinished=5,
        podFailurePolicy={"rules": rules},
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
    )
    document["spec"]["template"]["metadata"] = {"labels": {"app": "x"}, "finalizers": ["f"]}
    cluster = read(document)
    found, lost = convert(cluster)
    spec = found["spec"]
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == "hello"
    assert (spec["backoffLimit"], spec["deadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (2, 60, 5)
    assert spec["shareProcessNamespace"] is True
    assert spec["pod"] == {
        "labels": {"app": "x"},
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "runner",
        "restartPolicy": "Never",
    }
    (one,) = spec["containers"]
    assert one["command"] == "echo me 'it'\"'\"'s '\"${KEY}\"'!' '$(POD)'"
    assert (one["environment"], one["secrets"]) == ({"WHO": "me"}, {"KEY": {"name": "s", "key": "k"}})
    assert (one["workingDir"], one["ports"], one["imagePullSecret"]) == ("/work", [80], "pull")
    assert one["volumes"] == {"data": {"path": "/data", "configMapName": "c", "items": {"a": "b"}, "readOnly": True}}
    pod = "spec.template.spec"
    assert sorted(lost) == sorted(
        [
            "metadata.annotations.flux-framework.org/headrace-options.spread",
            "spec.successPolicy",
            "spec.template.metadata.finalizers",
            f"{pod}.containers[0].env[1].valueFrom.secretKeyRef.optional",
            f"{pod}.containers[0].env[2] (POD)",
            f"{pod}.containers[0].envFrom",
            f"{pod}.containers[0].ports[0].hostPort",
            f"{pod}.containers[0].volumeMounts[0].subPath",
            f"{pod}.containers[0].volumeMounts[1] (/again)",
            f"{pod}.containers[1] (logs)",
            f"{pod}.hostNetwork",
            f"{pod}.volumes[0].configMap.defaultMode",
            f"{pod}.volumes[0].configMap.items[0].mode",
            f"{pod}.volumes[1] (odd)",
            f"{pod}.volumes[2] (unused)",
        ]
    )


def test_what_kubernetes_has_within_a_field_and_a_minicluster_has_not_is_named() -> None:
    """A MiniCluster with such a member would be refused."""
    one = container(
        resources={"limits": {"cpu": 2}, "claims": [{"name": "gpu"}]},
        securityContext={"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault", "more": "x"}, "more": {"a": "b"}},
    )
    pod = {
        "containers": [one],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "securityContext": {"supplementalGroupsPolicy": "Strict"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}],
    }
    rules = [{"action": "FailJob", "onPodConditions": [{"type": "x", "status": "True", "more": "x"}]}]
    spec, lost = converted(job(pod=pod, podFailurePolicy={"rules": rules}))
    (found,) = spec["containers"]
    assert found["resources"] == {"limits": {"cpu": 2}}
    assert found["securityContext"] == {"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["pod"] == {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "x", "status": "True"}]
    at = "spec.template.spec"
    assert sorted(lost) == sorted(
        [
            "spec.podFailurePolicy.rules[0].onPodConditions[0].more",
            f"{at}.containers[0].resources.claims",
            f"{at}.containers[0].securityContext.more",
            f"{at}.containers[0].securityContext.seccompProfile.more",
            f"{at}.resourceClaims",
            f"{at}.securityContext.supplementalGroupsPolicy",
            f"{at}.tolerations[0].tolerationSeconds",
        ]
    )


def test_fields_above_the_job_are_named() -> None:
    _, lost = converted(jobset({"template": {"spec": job()["spec"]}}, failurePolicy={"maxRestarts": 3}))
    assert lost == ["spec.failurePolicy"]
    train = trainjob({"command": ["x"]}, "headrace-distributed", initializer={"dataset": {}}, suspend=False)
    assert converted(train)[1][:2] == ["spec.initializer", "spec.suspend"]


def test_what_a_training_needs_is_there() -> None:
    trainer = {"command": ["torchrun", "{{id}}"], "numNodes": 2, "numProcPerNode": 4}
    spec, _ = converted(trainjob(trainer, "headrace-torch", activeDeadlineSeconds=60))
    assert spec["flux"] == {"optionFlags": "-o torch -o literal-args"}
    assert spec["containers"][0]["environment"] == {"PET_NPROC_PER_NODE": "4"}
    assert spec["deadlineSeconds"] == 60
    assert "flux" not in converted(job())[0]


def test_what_a_minicluster_refuses_is_refused() -> None:
    document = job()
    document["spec"]["template"]["spec"]["nodeSelector"] = {"a b": "c"}
    with pytest.raises(
        InvalidForeign, match=r"spec.pod.nodeSelector.a b: its name must be NAME .* \(in the MiniCluster\)"
    ):
        convert(read(document))


@given(st.sampled_from(SAMPLES), st.integers(0, 2**32))
def test_a_mutated_document_is_converted_or_refused(sample: list[Any], seed: int) -> None:
    cluster = outcome(mutated(sample, random.Random(seed)))
    if isinstance(cluster, ForeignCluster):
        try:
            check(convert(cluster)[0])
        except InvalidForeign as exc:
            assert exc.problems
