"""What the webhook answers: refusals with field and rule, and no obstacle to mending what is stored already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.k8s.runtime.admission.reviews import BadReview, Review, parse, response
from headrace.minicluster.operator import admission
from headrace.minicluster.operator.admission import handler, judge, scaled
from minicluster.api.specs import document, problems

RESOURCE = {"group": "flux-framework.org", "version": "v1alpha2", "resource": "miniclusters"}


def review(new: dict[str, Any], old: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    full = {"uid": "u", "resource": RESOURCE, "namespace": "n", "name": "c", "object": new, "oldObject": old, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full}


def judged(new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    return answered(parse(review(new, old)))


def answered(question: Review) -> dict[str, Any]:
    return dict(response(question, judge(question))["response"])


BAD = {"size": 4, "maxSize": 2, "tasks": -1}


def test_a_refusal_has_each_field_with_its_rule_as_validation_tells_it() -> None:
    response = judged(document(BAD))
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    found = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
    assert found == problems(BAD)
    assert status["message"] == "; ".join(f"{path}: {rule}" for path, rule in found.items())


def test_a_valid_cluster_is_allowed_whatever_the_server_added() -> None:
    added = {"uid": "x", "managedFields": [], "somethingNew": 1, "generation": 3}
    new = {**document({}, **added), "status": {"phase": "Running"}}
    assert judged(new) == {"uid": "u", "allowed": True}


def test_what_has_no_effect_is_allowed_with_a_warning() -> None:
    flux = {"arch": "arm", "brokerConfig": "[accesss]\n"}
    services = [{"name": "db", "image": "postgres:16", "command": "serve"}]
    containers = [{"command": "hostname", "batchRaw": True}]
    response = judged(document({"flux": flux, "containers": containers, "services": services}))
    assert response["allowed"] is True
    assert response["warnings"][0] == "spec.flux.arch: has no effect"
    assert response["warnings"][1] == "spec.containers[0].batchRaw: has no effect without batch: true"
    ignored = "has no effect: a service runs its image's own entry point"
    assert response["warnings"][2] == f"spec.services[0].command: {ignored}"
    assert response["warnings"][3].startswith("spec.flux.brokerConfig: accesss")


def test_a_stored_invalid_cluster_can_be_mended_bit_by_bit() -> None:
    stored = document(BAD)
    better = document({"size": 4, "maxSize": 2})
    assert judged(better, stored)["allowed"] is True
    assert judged(better, stored)["warnings"] == ["still wrong: spec.maxSize: must not be below spec.size, which is 4"]
    assert judged(document({"size": 2, "maxSize": 2}), better) == {"uid": "u", "allowed": True}


def test_a_change_that_makes_something_else_wrong_is_refused() -> None:
    response = judged(document({**BAD, "backoffLimit": -1}), document(BAD))
    assert response["allowed"] is False
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.backoffLimit"]


def test_metadata_of_a_stored_invalid_cluster_can_be_changed() -> None:
    stored = document(BAD, finalizers=["flux-framework.org/drain"])
    assert judged(document(BAD, labels={"a": "b"}), stored)["allowed"] is True
    assert judged(document(BAD), stored)["allowed"] is True


def test_nothing_stands_in_the_way_of_a_deletion() -> None:
    going = document({**BAD, "backoffLimit": -1}, deletionTimestamp="2026-11-22T00:00:00Z")
    assert judged(going, document(BAD))["allowed"] is True


def scale(replicas: int) -> dict[str, Any]:
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "c"}, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(("replicas", "field"), [(5, "spec.maxSize"), (0, "spec.size"), (1, "spec.minSize")])
def test_a_size_through_scale_is_held_to_the_rules_of_the_cluster(replicas: int, field: str) -> None:
    stored = document({"size": 2, "maxSize": 4, "minSize": 2})
    question = parse(review(scale(replicas), scale(2), subResource="scale"))
    told = answered(scaled(question, stored))
    assert [cause["field"] for cause in told["status"]["details"]["causes"]] == [field]


def test_a_size_through_scale_that_fits_is_allowed() -> None:
    question = parse(review(scale(4), scale(2), subResource="scale"))
    assert answered(scaled(question, document({"size": 2, "maxSize": 4}))) == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        review(document({}), resource={"resource": "pods"}),
        review(document({}), resource="miniclusters"),
        review(document({}), subResource="status"),
        review({}, document({}), operation="DELETE"),
    ],
)
def test_what_is_no_question_about_miniclusters_is_told(body: Any) -> None:
    async def lookup(namespace: str, name: str) -> None:
        raise AssertionError("nothing is looked up")

    with pytest.raises(BadReview):
        asyncio.run(handler(lookup).complete(parse(body)))  # type: ignore[arg-type]


@pytest.mark.parametrize("new", [{}, {"metadata": None}, {"metadata": 1, "spec": []}, {"spec": {"containers": {}}}])
def test_an_object_of_any_shape_is_refused_without_a_traceback(new: dict[str, Any]) -> None:
    assert judged(new)["allowed"] is False


def test_a_long_warning_is_cut_where_the_api_server_would() -> None:
    long = document({"flux": {"brokerConfig": f"[{'x' * 300}]\n"}})
    assert len(admission.warnings(long)[0]) > 256
    assert [len(line) for line in judged(long)["warnings"]] == [256]
