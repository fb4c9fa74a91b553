"""What the webhook for Jobs answers: clusters of labelled Jobs, refusals with field and rule, and nothing else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.admission import cluster_id, handler
from headrace.flux_jobs.operator.policy import flux_job
from headrace.k8s.runtime.admission.reviews import BadReview, parse, response
from headrace.minicluster.operator.builders import Images

Document = dict[str, Any]

LABEL = "flux-framework.org/headrace"
ID_LABEL = "flux-framework.org/headrace-cluster"
JOBSET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": True}


def labelled(document: Document, **labels: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "labels": {LABEL: "cluster", **labels}}}


def review(new: Document, old: Document | None = None, **request: Any) -> Document:
    resource = {"group": "batch", "version": "v1", "resource": "jobs"}
    operation = "UPDATE" if old else "CREATE"
    full = {"uid": "u", "resource": resource, "operation": operation, "name": "hello", "object": new, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**full, **request}}


def answered(new: Document, old: Document | None = None, **request: Any) -> Document:
    question = parse(review(new, old, **request))
    return dict(response(question, handler(Images()).judge(question))["response"])


def patched(answer: Document) -> list[str]:
    return sorted(one["path"] for one in json.loads(base64.b64decode(answer["patch"])))


def id_of(new: Document, uid: str = "u") -> str:
    return cluster_id(parse(review(new, uid=uid)))


def test_a_labelled_job_becomes_a_cluster() -> None:
    answer = answered(labelled(job()))
    assert answer["allowed"] and answer["patchType"] == "JSONPatch"
    id_path = "/metadata/labels/flux-framework.org~1headrace-cluster"
    assert {id_path, "/spec/template/metadata", "/spec/successPolicy"} <= set(patched(answer))


def test_a_job_that_is_a_cluster_is_left_alone() -> None:
    whole = job()
    whole["spec"]["template"]["metadata"] = {"labels": {ID_LABEL: "0123456789"}}
    assert answered(labelled(whole)) == {"uid": "u", "allowed": True}


def test_other_jobs_are_left_alone() -> None:
    assert answered(job()) == {"uid": "u", "allowed": True}
    assert answered({**job(), "metadata": {"name": "x", "labels": {LABEL: "other"}}}) == {"uid": "u", "allowed": True}


def test_a_refusal_has_each_field_with_its_rule() -> None:
    answer = answered(labelled(job("{run: all, proc: 2}")))
    assert not answer["allowed"]
    status = answer["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (status["details"]["kind"], status["details"]["group"], status["details"]["name"]) == (
        "Job",
        "batch",
        "hello",
    )
    causes = {one["field"]: one["message"] for one in status["details"]["causes"]}
    options = "metadata.annotations.flux-framework.org/headrace-options"
    assert causes.keys() == {f"{options}.run", f"{options}.proc"}
    assert status["message"] == "; ".join(f"{path}: {rule}" for path, rule in causes.items())


def test_the_label_cannot_be_put_on_a_job_that_exists() -> None:
    answer = answered(labelled(job()), job())
    (cause,) = answer["status"]["details"]["causes"]
    assert cause["field"] == "metadata.labels.flux-framework.org/headrace"
    assert cause["message"].startswith("cannot be added to an existing Job")


def test_other_changes_of_labelled_jobs_are_allowed() -> None:
    assert answered(labelled(job(), a="b"), labelled(job()))["allowed"]
    assert answered(job(), labelled(job()))["allowed"]
    whole = job()
    whole["spec"]["template"]["metadata"] = {"labels": {ID_LABEL: "0123456789"}}
    assert answered(labelled(whole), whole)["allowed"]


def test_a_cluster_is_applied_again_without_a_change() -> None:
    file = labelled(job())
    stored = flux_job(file, Images("other"), "0123456789")
    answer = answered(file, stored)
    assert answer["allowed"]
    assert set(patched(answer)) >= {
        "/metadata/labels/flux-framework.org~1headrace-cluster",
        "/spec/template/spec/containers",
        "/spec/successPolicy",
    }
    assert answered(stored, stored) == {"uid": "u", "allowed": True}


def test_an_update_of_a_cluster_that_cannot_be_is_refused_by_field() -> None:
    stored = flux_job(labelled(job()), Images(), "0123456789")
    (cause,) = answered(labelled(job(pod={"containers": [container(image="x")]})), stored)["status"]["details"][
        "causes"
    ]
    assert cause["field"] == "spec.template.spec.containers[0].image"
    assert cause["message"].startswith("cannot be changed")


def test_the_label_of_a_cluster_stays_and_a_warning_says_so() -> None:
    stored = flux_job(labelled(job()), Images(), "0123456789")
    answer = answered(job(), stored)
    assert answer["allowed"] and "/metadata/labels" in patched(answer)
    (warning,) = answer["warnings"]
    assert warning.startswith("metadata.labels.flux-framework.org/headrace: is kept, because the pods of a cluster")
    assert not warning.endswith("...")


def test_each_job_has_an_id_of_its_own_and_each_attempt_of_a_jobset() -> None:
    alone = labelled(job())
    assert id_of(alone) != id_of(alone, "v")
    owned = {**alone, "metadata": {**alone["metadata"], "ownerReferences": [JOBSET]}}
    assert id_of(owned) == id_of(owned, "v")
    changes: list[Document] = [
        {},
        {"name": "other"},
        {"ownerReferences": [{**JOBSET, "uid": "t"}]},
        {"labels": {LABEL: "cluster", "jobset.sigs.k8s.io/restart-attempt": "1"}},
        {"labels": {LABEL: "cluster", "jobset.sigs.k8s.io/job-restart-attempt": "1"}},
    ]
    ids = [id_of({**owned, "metadata": {**owned["metadata"], **change}}) for change in changes]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 10 and int(one, 16) >= 0 for one in ids)


def test_an_owner_that_is_no_jobset_makes_no_name() -> None:
    owner = {**JOBSET, "apiVersion": "batch/v1", "kind": "CronJob"}
    alone = labelled(job())
    owned = {**alone, "metadata": {**alone["metadata"], "ownerReferences": [owner]}}
    assert id_of(owned) != id_of(owned, "v")


@pytest.mark.parametrize(
    "request_", [{"resource": {"resource": "pods"}}, {"subResource": "status"}, {"resource": {"resource": "jobsets"}}]
)
def test_what_the_webhook_is_not_for_is_a_bad_request(request_: Document) -> None:
    with pytest.raises(BadReview, match="the webhook is for jobs"):
        answered(job(), **request_)
