"""Admission on a real API server: what breaks a rule is refused with its field; what was stored can be mended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import guarded, install
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until
from running_operator import RunningOperator

from headrace.minicluster.operator.names import CONFIGURATION, WEBHOOK
from headrace.programs.operator.install import Install
from minicluster.api.broken import everything
from minicluster.api.specs import document

INSTALL = Install(namespace="headrace-admission")
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/minicluster/cases.jsonl").read_text(encoding="utf-8").splitlines()
]
# Objects that the reference operator's API server refused and ours makes (test_recorded_miniclusters.py).
WORKS = ("variant-services-pod-fields",)
# Taken by the reference operator and refused by us: test_recorded_miniclusters.py has the reason.
REFUSED = ("variant-tasks-negative", "variant-curve-cert")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOperator]:
    """An operator whose webhook stands before the control plane's MiniClusters; it looks after none of the tests'."""
    install(control_plane, INSTALL)
    folder = tmp_path_factory.mktemp("admission")
    with guarded(control_plane, INSTALL, folder, f"--namespace={INSTALL.namespace}") as found:
        yield found


class Clusters:
    """MiniClusters of one namespace, written as the administrator; refusals are KubeError."""

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self._plane = plane
        self._path = f"/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/miniclusters"

    def create(self, body: Object, options: str = "") -> Object:
        """Strict, as kubectl asks for it; `options` is a query."""
        query = "&".join(part for part in ("fieldValidation=Strict", options) if part)
        return dict(self._plane.api.request("POST", f"{self._path}?{query}", body))

    def get(self, name: str) -> Object:
        return dict(self._plane.api.get(f"{self._path}/{name}"))

    def patch(self, name: str, body: Object, subresource: str = "") -> Object:
        path = "/".join(part for part in (self._path, name, subresource) if part)
        return dict(self._plane.api.request("PATCH", path, body, "application/merge-patch+json"))

    def delete(self, name: str) -> None:
        self._plane.api.request("DELETE", f"{self._path}/{name}")

    def has(self, name: str) -> bool:
        found = self._plane.api.get(self._path)["items"]
        return name in [one["metadata"]["name"] for one in found]

    def store_unguarded(self, body: Object) -> None:
        """Store a MiniCluster that the webhook refuses, as if it had been stored before there was one."""
        where = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"
        hook = self._plane.api.get(where)
        rules = hook["webhooks"][0]["rules"]
        try:
            self._set_rules(hook, [{**rules[0], "operations": ["UPDATE"]}])
            # The API server learns of it moments later.
            until(lambda: self._stored(body))
        finally:
            self._set_rules(self._plane.api.get(where), rules)
        until(lambda: self._is_refused({**body, "metadata": {"name": "probe"}}))

    def _set_rules(self, hook: Object, rules: list[Object]) -> None:
        body = {"metadata": hook["metadata"], "webhooks": [{**hook["webhooks"][0], "rules": rules}]}
        where = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"
        self._plane.api.request("PATCH", where, body, "application/merge-patch+json")

    def _stored(self, body: Object) -> bool:
        return not self._is_refused(body, "")

    def _is_refused(self, body: Object, options: str = "dryRun=All") -> bool:
        try:
            self.create(body, options)
        except KubeError:
            return True
        return False


@pytest.fixture
def always(operator: RunningOperator, control_plane: Cluster) -> Clusters:
    """For dry runs: a namespace that is always there."""
    return Clusters(control_plane, "default")


@pytest.fixture
def clusters(operator: RunningOperator, control_plane: Cluster, namespace: str) -> Clusters:
    return Clusters(control_plane, namespace)


def refusal(words: KubeError) -> Object:
    """The Status that a request was refused with."""
    text = str(words)
    return dict(json.loads(text[text.index("{") :]))


def fields(words: KubeError) -> set[str]:
    """The fields that a refusal names, whoever refused: strict decoding, the schema, its CEL rules, or the webhook."""
    status = refusal(words)
    if status["reason"] == "BadRequest":
        return set(re.findall(r'unknown field "([^"]*)"', status["message"]))
    return {cause.get("field", "") for cause in status["details"].get("causes", [])}


@pytest.mark.parametrize(("spec", "path"), [pytest.param(spec, path, id=path) for spec, path in everything()])
def test_what_breaks_a_rule_is_refused_with_its_field(always: Clusters, spec: Object, path: str) -> None:
    with pytest.raises(KubeError) as refused:
        always.create(document(spec), "dryRun=All")
    # The API server names the item of a list where we name the item's field.
    assert any(one and path.startswith(one) for one in fields(refused.value)), str(refused.value)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_recorded_miniclusters_are_taken_or_refused_with_a_field(always: Clusters, case: Object) -> None:
    taken = (case["outcome"] == "job-created" and case["name"] not in REFUSED) or case["name"] in WORKS
    if taken:
        always.create(case["document"], "dryRun=All")
        return
    with pytest.raises(KubeError) as refused:
        always.create(case["document"], "dryRun=All")
    text = str(refused.value)
    assert "spec." in text or "metadata.name" in text


def test_the_refusal_has_the_words_of_validation(clusters: Clusters) -> None:
    with pytest.raises(KubeError) as refused:
        clusters.create(document({"containers": [{"volumes": {"v": {"path": "/x"}}, "environment": {"a b": "c"}}]}))
    causes = {one["field"]: one["message"] for one in refusal(refused.value)["details"]["causes"]}
    assert causes["spec.containers[0].volumes.v"].startswith("has no source: give one of")
    assert causes["spec.containers[0].environment.a b"].startswith("is not a valid name of a variable")


def test_a_size_beyond_the_maximum_is_refused_through_scale_too(clusters: Clusters) -> None:
    clusters.create(document({"size": 2, "maxSize": 4, "minSize": 2}))
    assert clusters.patch("c", {"spec": {"replicas": 4}}, "scale")["spec"]["replicas"] == 4
    for replicas in (5, 1, 0):
        with pytest.raises(KubeError) as refused:
            clusters.patch("c", {"spec": {"replicas": replicas}}, "scale")
        assert refusal(refused.value)["reason"] == "Invalid"
    with pytest.raises(KubeError, match="maxSize"):
        clusters.patch("c", {"spec": {"size": 5}})
    clusters.patch("c", {"spec": {"maxSize": 8}})
    assert clusters.patch("c", {"spec": {"replicas": 8}}, "scale")["spec"]["replicas"] == 8
    assert clusters.get("c")["spec"]["size"] == 8


def test_a_rule_that_only_the_webhook_knows_holds_through_scale(clusters: Clusters) -> None:
    name = "a" * 61
    clusters.create(document({"size": 10}, name=name))
    with pytest.raises(KubeError, match="host names such as"):
        clusters.patch(name, {"spec": {"replicas": 11}}, "scale")


def test_a_stored_invalid_minicluster_can_be_mended_and_deleted(clusters: Clusters) -> None:
    volumes = {"v": {"path": "/x"}, "w": {"path": "/y"}}
    broken = document({"containers": [{"command": "x", "volumes": volumes}]}, finalizers=["test.example/hold"])
    clusters.store_unguarded(broken)
    clusters.patch("c", {"metadata": {"labels": {"seen": "yes"}}})
    status = {"size": 0, "maximumSize": 1, "selector": "a=b", "jobid": "", "phase": "Invalid"}
    assert clusters.patch("c", {"status": status}, "status")["status"]["phase"] == "Invalid"
    with pytest.raises(KubeError, match="tasks"):
        clusters.patch("c", {"spec": {"tasks": -1}})
    half = {**volumes, "v": {"path": "/x", "emptyDir": True}}
    clusters.patch("c", {"spec": {"containers": [{"command": "x", "volumes": half}]}})
    whole = {**half, "w": {"path": "/y", "hostPath": "/y"}}
    clusters.patch("c", {"spec": {"containers": [{"command": "x", "volumes": whole}]}})
    with pytest.raises(KubeError, match="no source"):
        clusters.patch("c", {"spec": {"containers": [{"command": "x", "volumes": half}]}})
    clusters.delete("c")
    assert clusters.has("c")
    clusters.patch("c", {"metadata": {"finalizers": None}})
    until(lambda: not clusters.has("c"))


def test_without_the_operator_nothing_but_changes_of_specifications_is_held_up(
    operator: RunningOperator, clusters: Clusters, control_plane: Cluster
) -> None:
    clusters.create(document({}, finalizers=["test.example/hold"]))
    where = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"
    hook = control_plane.api.get(where)["webhooks"][0]
    kind = "application/merge-patch+json"

    def point_to(url: str) -> None:
        changed = {**hook, "clientConfig": {**hook["clientConfig"], "url": url}}
        control_plane.api.request("PATCH", where, {"webhooks": [changed]}, kind)

    point_to("https://127.0.0.1:9/validate")
    try:
        until(lambda: is_unreachable(clusters))
        clusters.patch("c", {"metadata": {"labels": {"a": "b"}}})
        clusters.delete("c")
        clusters.patch("c", {"metadata": {"finalizers": None}})
        until(lambda: not clusters.has("c"))
        # Other kinds do not need it.
        name = {"metadata": {"name": "free"}}
        control_plane.api.request("POST", "/api/v1/namespaces/default/configmaps", name)
        control_plane.api.request("DELETE", "/api/v1/namespaces/default/configmaps/free")
    finally:
        point_to(hook["clientConfig"]["url"])
    until(lambda: not is_unreachable(clusters))


def is_unreachable(clusters: Clusters) -> bool:
    try:
        clusters.create(document({}, name="probe"), "dryRun=All")
    except KubeError as exc:
        assert refusal(exc)["reason"] == "InternalError"
        return True
    return False


def test_the_certificate_is_trusted_again_and_replaced_when_it_is_lost(
    operator: RunningOperator, clusters: Clusters, control_plane: Cluster
) -> None:
    where = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"

    def bundle() -> str:
        return str(control_plane.api.get(where)["webhooks"][0]["clientConfig"].get("caBundle", ""))

    before = bundle()
    hook = control_plane.api.get(where)["webhooks"][0]
    bare = {**hook, "clientConfig": {"url": hook["clientConfig"]["url"]}}
    control_plane.api.request("PATCH", where, {"webhooks": [bare]}, "application/merge-patch+json")
    until(lambda: bundle() == before)
    until(lambda: not is_unreachable(clusters))
    secret = control_plane.api.get(f"/api/v1/namespaces/{INSTALL.namespace}/secrets/{WEBHOOK}")
    assert secret["type"] == "kubernetes.io/tls" and sorted(secret["data"]) == ["ca.crt", "tls.crt", "tls.key"]
