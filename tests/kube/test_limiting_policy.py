"""The policies among the examples, on a real API server: what each refuses, and that it leaves the rest alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until
from running_operator import define_kind

POLICY = Path(__file__).parents[2] / "examples/policies/limit-miniclusters.yaml"
ONE: dict[str, Any] = {"image": "busybox", "command": "true"}
REFUSED: dict[str, dict[str, Any]] = {
    "volumes: hostPath": {"containers": [{**ONE, "volumes": {"a": {"path": "/a", "hostPath": "/"}}}]},
    "volumes: secretName": {"services": [{**ONE, "name": "s", "volumes": {"a": {"path": "/a", "secretName": "x"}}}]},
    "secrets: variables": {"containers": [{**ONE, "secrets": {"A": {"name": "x", "key": "y"}}}]},
    "spec.pod.serviceAccountName": {"pod": {"serviceAccountName": "admin"}},
    "spec.groups: only the default": {"groups": [{"name": "g", "size": 1, "pod": {"serviceAccountName": "admin"}}]},
}
ALLOWED: dict[str, dict[str, Any]] = {
    "plain": {},
    "volumes": {"containers": [{**ONE, "volumes": {"a": {"path": "/a", "emptyDir": True}}}]},
    "default": {"pod": {"serviceAccountName": "default"}, "groups": [{"name": "g", "size": 1}]},
}


def create(plane: Cluster, namespace: str, name: str, spec: dict[str, Any]) -> str:
    """Make a MiniCluster, as a dry run; returns the refusal, "" for none."""
    where = f"/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/miniclusters?dryRun=All"
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": name}}
    try:
        plane.api.request("POST", where, {**head, "spec": {"size": 1, "containers": [ONE], **spec}})
    except KubeError as exc:
        return str(exc)
    return ""


@pytest.fixture
def limited(control_plane: Cluster, namespace: str) -> str:
    """A namespace that the policy holds in."""
    define_kind(control_plane)
    control_plane.kubectl("apply", "-f", str(POLICY))
    labels = {"miniclusters": "limited", "pod-security.kubernetes.io/enforce": "baseline"}
    patch = json.dumps({"metadata": {"labels": labels}})
    control_plane.kubectl("patch", "namespace", namespace, "--type=merge", "-p", patch)
    until(lambda: create(control_plane, namespace, "a", REFUSED["spec.pod.serviceAccountName"]))
    return namespace


def test_what_a_policy_refuses_is_named_and_all_else_is_taken(control_plane: Cluster, limited: str) -> None:
    for told, spec in REFUSED.items():
        assert told in create(control_plane, limited, "a", spec)
    for name, spec in ALLOWED.items():
        assert create(control_plane, limited, name, spec) == ""
    for name, spec in enumerate(REFUSED.values()):
        assert create(control_plane, "default", f"a{name}", spec) == "", "the namespace has no such label"
