"""What the uninstall of the operator looks for: all that an install has, with any options."""

from __future__ import annotations

from itertools import product
from typing import Any

from headrace.k8s.packaging.removal import DEFINITION, NAMESPACE
from headrace.programs.operator.install import Install
from headrace.programs.operator.package import PACKAGE
from headrace.programs.operator.uninstall import declared

SWITCHES = ("view_as_volume", "webhook", "cert_manager", "trainer", "metrics_api")


def key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["apiVersion"].rpartition("/")[0], one["kind"], one["metadata"]["name"]


def test_each_object_of_each_install_is_known_by_its_label_and_name() -> None:
    known = {key(one) for one in declared()}
    for chosen in product((True, False), repeat=len(SWITCHES)):
        for where in ({}, {"watched": ("a", "b"), "flux_operator_namespace": "c", "network_policies": ("a",)}):
            for one in PACKAGE.objects(Install(namespace="tools", **dict(zip(SWITCHES, chosen, strict=True)), **where)):
                assert key(one) in known or one["kind"] == NAMESPACE
                labels = one["metadata"].get("labels") or {}
                assert one["kind"] == DEFINITION or labels["app.kubernetes.io/name"] == "headrace-operator"


def test_what_the_operator_makes_for_itself_is_known() -> None:
    known = {(kind, name) for _, kind, name in map(key, declared())}
    assert known >= {
        ("Lease", "headrace-operator"),
        ("Secret", "headrace-webhook"),
        ("Secret", "headrace-webhook-authority"),
        ("APIService", "v1beta2.custom.metrics.k8s.io"),
        ("APIService", "v1beta1.external.metrics.k8s.io"),
    }
