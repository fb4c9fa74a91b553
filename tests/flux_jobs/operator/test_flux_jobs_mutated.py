"""Spoiled Jobs, JobSets and TrainJobs, through readers and admission: a cluster each time or a refusal in words, never
a traceback."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import structs
from mutation import mutated

import seeds
from flux_jobs.read.samples import container, job
from flux_jobs.read.test_flux_jobs_load import OPTIONS, SAMPLES, outcome
from headrace.flux_jobs.operator.admission import judge
from headrace.flux_jobs.operator.policy import flux_job, id_of, original
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE, ForeignCluster
from headrace.flux_jobs.read.job import read
from headrace.k8s.runtime.admission.reviews import Review, response
from headrace.minicluster.api.fields import InvalidMiniCluster
from headrace.minicluster.operator.builders import Images
from sizes import size

Document = dict[str, Any]

ID = "0123456789"
_TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
# A Job with each field that admission reads or changes.
_BROKER = container(
    args=["x", "$(A)"],
    env=[{"name": "A", "value": "1"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    ports=[{"containerPort": 80}],
    resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": 1}},
    securityContext={"runAsUser": 1000, "runAsGroup": 1, "seLinuxOptions": {}, "seccompProfile": {"type": "Localhost"}},
    volumeMounts=[{"name": "data", "mountPath": "/data"}],
)
_POD = {
    "containers": [_BROKER],
    "initContainers": [{"name": "init", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
    "resources": {"limits": {"memory": "2Gi"}},
    "subdomain": "mine",
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}],
            "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
        }
    },
}


def full(options: str = OPTIONS) -> Document:
    policies = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}, "podFailurePolicy": {"rules": []}}
    found = job(options, pod=_POD, **policies)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    found["metadata"] |= {"labels": {LABEL_KEY: LABEL_VALUE}, "ownerReferences": [owner]}
    found["spec"]["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    return found


ORIGINALS: list[list[Any]] = [
    *SAMPLES,
    [full()],
    [full("{spread: required, sharedMemory: none, interactive: true}")],
    # A cluster already, whose original is read.
    [flux_job(full(), Images(), ID)],
]


@pytest.mark.soak
def test_a_spoiled_object_is_a_cluster_or_refused() -> None:
    dice = random.Random(seeds.seed())
    counts = {"read": 0, "admitted": 0, "refused": 0}
    for _ in range(size("foreign_documents")):
        spoiled = mutated(dice, dice.choice(ORIGINALS))
        documents = spoiled if isinstance(spoiled, list) else [spoiled]
        counts["read"] += isinstance(outcome(documents), ForeignCluster)
        for one in documents:
            if isinstance(one, dict):
                counts["admitted" if reviewed(one) else "refused"] += 1
    print(counts)
    assert min(counts.values()) > size("foreign_documents") / 50, "all kinds occur"


@pytest.mark.soak
def test_a_spoiled_update_of_a_cluster_is_stored_or_refused() -> None:
    dice = random.Random(seeds.seed())
    cluster = flux_job(full(), Images(), ID)
    counts = {"stored": 0, "refused": 0}
    for _ in range(size("foreign_documents")):
        update = mutated(dice, dice.choice([full(), cluster]))
        if isinstance(update, dict):
            review = Review("u", "UPDATE", "jobs", "", "n", "hello", update, cluster)
            verdict = judge(review, Images("other"))
            assert response(review, verdict)["response"]["allowed"] is (verdict.refusal is None)
            assert verdict.changed is None or id_of(verdict.changed) == ID
            counts["refused" if verdict.refusal else "stored"] += 1
    print(counts)
    assert min(counts.values()) > size("foreign_documents") / 50, "both kinds occur"


def reviewed(document: Document) -> bool:
    """Whether a labelled Job becomes a cluster, or is one; an API server without any schema would have sent it."""
    given = document.get("metadata")
    document = {
        **document,
        "metadata": {**given, "labels": {LABEL_KEY: LABEL_VALUE}} if isinstance(given, dict) else {},
    }
    review = Review("u", "CREATE", "jobs", "", "n", "hello", document, None)
    verdict = judge(review, Images())
    assert response(review, verdict)["response"]["allowed"] is (verdict.refusal is None)
    if verdict.refusal is not None:
        causes = verdict.refusal["details"]["causes"]
        assert causes and all(one["message"] for one in causes)
    readable(original(document))
    if verdict.changed is None:
        return False
    if not id_of(document):
        made = verdict.changed
        assert len(id_of(made)) == 10
        assert flux_job(made, Images("other"), ID) is made
        before = readable(document)
        after = readable(original(made))
        assert before and after
        assert structs.replace(after, job={}) == structs.replace(before, job={})
    return True


def readable(document: Any) -> ForeignCluster | None:
    try:
        return read(document)
    except InvalidMiniCluster as exc:
        assert exc.problems
        return None
