"""What the webhook changes of an object that is created, and which it refuses."""

from __future__ import annotations

import copy
from typing import NamedTuple

import msgspec
import pytest

from headrace.cluster_queue.admission import judge
from headrace.cluster_queue.workloads import KINDS
from headrace.k8s.runtime.admission.reviews import Review, json_patch, response

POD = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"containers": [{"name": "main"}]}}
JOB = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"template": {"spec": POD["spec"]}}}


def review(resource: str, item: dict, operation: str = "CREATE", subresource: str = "") -> Review:
    return Review("uid", operation, resource, subresource, "ns", "a", item, None)


class Known(NamedTuple):
    """What the webhook knows beyond a review."""

    binds_here: bool = False
    owners: tuple[dict, ...] = ()

    def binds(self, namespace: str) -> bool:
        return self.binds_here

    def above(self, item: dict) -> tuple[dict, ...]:
        return self.owners


def patched(resource: str, item: dict, binds: bool = False, **how) -> list[dict]:
    """The JSON patch of the answer; the object itself is not changed."""
    before = copy.deepcopy(item)
    verdict = judge(review(resource, item, **how), Known(binds))
    assert item == before
    assert verdict.refusal is None
    return list(json_patch(item, verdict.changed)) if verdict.changed is not None else []


def owned(item: dict, kind: str, api_version: str = "apps/v1") -> dict:
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def labelled(item: dict, **labels: str) -> dict:
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


def with_spec(item: dict, **spec) -> dict:
    return {**item, "spec": {**item["spec"], **spec}}


@pytest.mark.parametrize("pod", [POD, owned(POD, "ReplicaSet"), owned(POD, "Job", "batch/v1"), owned(POD, "Unknown")])
def test_every_pod_gets_the_gate_whoever_makes_it(pod):
    assert patched("pods", pod) == [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "fluxqueue"}]}]


def test_the_gate_stands_beside_those_of_others_and_is_there_once():
    pod = with_spec(POD, schedulingGates=[{"name": "other"}])
    (change,) = patched("pods", pod)
    assert change["value"] == [{"name": "other"}, {"name": "fluxqueue"}]
    assert patched("pods", with_spec(POD, schedulingGates=change["value"])) == []


@pytest.mark.parametrize(
    "pod",
    [
        owned(POD, "DaemonSet"),
        with_spec(POD, nodeName="n"),
        labelled(POD, **{"fluxqueue/skip": "true"}),
        labelled(POD, **{"kueue.x-k8s.io/queue-name": "q"}),
    ],
)
def test_pods_of_others_are_left_alone(pod):
    assert patched("pods", pod) == []


def test_a_job_is_suspended_and_marked_and_its_template_stays_as_it_is():
    assert sorted(patched("jobs", JOB), key=lambda one: one["path"]) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"fluxqueue/held": "true"}},
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]


@pytest.mark.parametrize(
    "job",
    [
        with_spec(JOB, suspend=True),
        with_spec(JOB, managedBy="example.com/other"),
        owned(JOB, "Job", "batch/v1"),
        labelled(JOB, **{"fluxqueue/skip": "true"}),
        labelled(JOB, **{"kueue.x-k8s.io/queue-name": "q"}),
    ],
)
def test_jobs_that_somebody_else_starts_are_left_alone(job):
    assert patched("jobs", job) == []


def test_a_job_of_an_unknown_kind_is_held_and_so_is_one_of_kubernetes_own_controller():
    assert patched("jobs", owned(JOB, "CronJob", "batch/v1"))
    assert patched("jobs", with_spec(JOB, managedBy="kubernetes.io/job-controller", suspend=False))


@pytest.mark.parametrize(
    ("resource", "how"),
    [("pods", {"operation": "UPDATE"}), ("pods", {"subresource": "binding"}), ("deployments", {})],
)
def test_nothing_but_creations_of_known_kinds_is_changed(resource, how):
    assert patched(resource, POD, **how) == []


def test_the_answer_to_a_dry_run_is_the_same():
    first, second = (response(review("pods", POD), judge(review("pods", POD), Known())) for _ in range(2))
    assert first == second
    assert first["response"]["allowed"] is True


@pytest.mark.parametrize(
    ("given", "made"),
    [("default-scheduler", "FluxionScheduler"), ("mine", "FluxionScheduler"), ("headrace", ""), ("fluence", "")],
)
def test_pods_of_a_queue_that_binds_are_left_alone_by_other_schedulers(given, made):
    gate = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "fluxqueue"}]}
    renamed = {"op": "replace", "path": "/spec/schedulerName", "value": made}
    found = patched("pods", with_spec(POD, schedulerName=given), binds=True)
    assert sorted(found, key=str) == sorted([gate, *([renamed] if made else [])], key=str)
    # The second time, another webhook has changed the pod.
    again = with_spec(POD, schedulerName=given, schedulingGates=[{"name": "fluxqueue"}])
    assert patched("pods", again, binds=True) == ([renamed] if made else [])
    assert patched("jobs", JOB, binds=True) == patched("jobs", JOB)


HELD_MARK = {"fluxqueue/held": "true"}


@pytest.mark.parametrize(
    ("resource", "item", "changed"),
    [
        *[(one.kind.plural, {"metadata": {"name": "a"}}, None) for one in KINDS.values() if one.suspend],
        *[("jobsets", {"metadata": {"name": "a"}, "spec": spec}, None) for spec in (None, "words", [1])],
        ("mpijobs", {"metadata": {"name": "a"}, "spec": {"runPolicy": "words"}}, None),
        (
            "mpijobs",
            {"metadata": {"name": "a"}, "spec": {"runPolicy": None}},
            {"metadata": {"name": "a", "annotations": HELD_MARK}, "spec": {"runPolicy": {"suspend": True}}},
        ),
        (
            "jobs",
            {"metadata": {"name": "a", "annotations": None, "labels": None, "ownerReferences": None}, "spec": {}},
            {
                "metadata": {"name": "a", "annotations": HELD_MARK, "labels": None, "ownerReferences": None},
                "spec": {"suspend": True},
            },
        ),
        (
            "jobsets",
            {"metadata": {"name": "a"}, "spec": {"managedBy": None, "suspend": None}},
            {"metadata": {"name": "a", "annotations": HELD_MARK}, "spec": {"managedBy": None, "suspend": True}},
        ),
        (
            "pods",
            {"metadata": {"name": "a", "annotations": None, "labels": None}, "spec": {"schedulingGates": None}},
            {
                "metadata": {"name": "a", "annotations": None, "labels": None},
                "spec": {"schedulingGates": [{"name": "fluxqueue"}]},
            },
        ),
    ],
)
def test_what_is_missing_null_or_of_another_form_is_held_if_it_can_be_and_left_to_the_api_server(
    resource: str, item: dict, changed: dict | None
):
    verdict = judge(review(resource, item), Known())
    assert (verdict.refusal, verdict.changed) == (None, changed)


def test_what_is_as_deep_as_python_decodes_is_held():
    for levels in (300, 900):
        deep = msgspec.json.decode(b'{"a":' * levels + b"1" + b"}" * levels)
        item = {"metadata": {"name": "a"}, "spec": {"template": deep}}
        verdict = judge(review("jobs", item), Known())
        assert verdict.changed is not None and verdict.changed["spec"]["suspend"] is True
        assert "suspend" not in item["spec"]
        paths = sorted(one["path"] for one in json_patch(item, verdict.changed))
        assert paths == ["/metadata/annotations", "/spec/suspend"]


def template(node: str = "", **labels: str) -> dict:
    return {"metadata": {"labels": labels}, "spec": {**POD["spec"], **({"nodeName": node} if node else {})}}


NAMED, SKIPPED = {"template": template("n")}, {"template": template(**{"fluxqueue/skip": "true"})}
QUEUED = {"template": template(**{"kueue.x-k8s.io/queue-name": "q"})}
NODE_NAME = "must not be set: the queue assigns nodes to pods"
LABEL = "must not be a label of the pods only: set it on the object itself to exclude all its pods"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("resource", "spec", "field", "rule"),
    [
        *[(one, NAMED, "spec.template.spec.nodeName", NODE_NAME) for one in ("jobs", "deployments", "statefulsets")],
        ("jobs", SKIPPED, "spec.template.metadata.labels[fluxqueue/skip]", LABEL),
        ("replicasets", QUEUED, "spec.template.metadata.labels[kueue.x-k8s.io/queue-name]", LABEL),
        (
            "jobsets",
            {"replicatedJobs": [{"name": "a"}, {"name": "b", "template": {"spec": NAMED}}]},
            "spec.replicatedJobs[1].template.spec.template.spec.nodeName",
            NODE_NAME,
        ),
        (
            "mpijobs",
            {"mpiReplicaSpecs": {"Worker": SKIPPED}},
            "spec.mpiReplicaSpecs.Worker.template.metadata.labels[fluxqueue/skip]",
            LABEL,
        ),
        (
            "trainjobs",
            {"podTemplateOverrides": [{"metadata": {"labels": {"fluxqueue/skip": "true"}}}]},
            "spec.podTemplateOverrides[0].metadata.labels[fluxqueue/skip]",
            LABEL,
        ),
        ("miniclusters", {"jobLabels": {"fluxqueue/skip": "true"}}, "spec.jobLabels[fluxqueue/skip]", LABEL),
    ],
)
def test_an_object_that_waits_has_no_pods_that_do_not(operation: str, resource: str, spec: dict, field: str, rule: str):
    item = {"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}

    def refused(item: dict, *owners: dict) -> list[dict]:
        verdict = judge(review(resource, item, operation), Known(owners=owners))
        return verdict.refusal["details"]["causes"] if verdict.refusal else []

    assert refused(item) == [{"reason": "FieldValueInvalid", "field": field, "message": rule}]
    # Where the object itself, or what has made it, is left alone, its pods may be as well.
    assert not refused(labelled(item, **{"fluxqueue/skip": "true"}))
    kind = {"kind": "JobSet", **item}
    assert refused(item, kind)
    assert not refused(item, kind, labelled(kind, **{"fluxqueue/skip": "true"}))
    assert not refused(item, with_spec(kind, managedBy="kueue.x-k8s.io/multikueue"))


def test_what_looks_like_a_way_round_the_queue_and_is_none_is_taken():
    selects = {"matchLabels": {"fluxqueue/skip": "true"}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selects}]}}
    spec = {**POD["spec"], "affinity": affinity, "nodeName": ""}
    spec["nodeSelector"] = {"nodeName": "n"}
    given = {"metadata": {"labels": {"fluxqueue/skip": "false", "nodeName": "n"}}, "spec": spec}
    for operation in ("CREATE", "UPDATE"):
        assert judge(review("jobs", with_spec(JOB, template=given), operation), Known()).refusal is None
    containers = [{"image": "x", "environment": {"nodeName": "n"}}]
    assert judge(review("miniclusters", with_spec(JOB, containers=containers)), Known()).refusal is None


def test_what_is_changed_is_not_held_again():
    assert judge(review("jobs", JOB, "UPDATE"), Known()).changed is None
