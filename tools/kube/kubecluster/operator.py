"""Headrace's operator in a cluster for developers (`program`). As a pod it is installed by `deploy/`."""

from __future__ import annotations

from typing import Any

from . import program
from .box import wait_for
from .cluster import Cluster
from .errors import KubeError

_MINICLUSTERS = "/apis/flux-framework.org/v1alpha2/miniclusters"
# Of the install; the program has the rights of the administrator.
_INSTALLED = ("CustomResourceDefinition", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_LABEL = "flux-framework.org/headrace"
# Objects for dry runs: one webhook refuses the first, which the kind's own schema takes, the other changes the second.
_WRONG = {
    "apiVersion": "flux-framework.org/v1alpha2",
    "kind": "MiniCluster",
    "metadata": {"name": "probe"},
    "spec": {"containers": [{"command": "x"}], "flux": {"brokerConfig": "a ="}},
}
_LABELLED = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "probe", "labels": {_LABEL: "cluster"}},
    "spec": {
        "completionMode": "Indexed",
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x", "command": ["x"]}]},
        },
    },
}


def start(cluster: Cluster, view_image: str) -> None:
    """Make the kind MiniCluster known, and start the operator with its webhooks. Returns when they work."""
    objects = [one for one in program.manifests("operator") if one["kind"] in _INSTALLED]
    webhook = program.install(cluster, objects, 18445)
    wait_for(lambda: program.served(cluster, _MINICLUSTERS), "the kind MiniCluster", 30, 0.1)
    words = ["operator", "run", "--lease-namespace=default", f"--view-image={view_image}", *webhook]
    program.start(cluster, "operator", words, 18080)
    wait_for(lambda: _refuses(cluster) and _changes(cluster), "the operator's webhooks", 60, 0.1)


def stop(cluster: Cluster) -> None:
    """End the operator and its webhooks; MiniClusters, Jobs and their pods stay."""
    for kind, name in (
        ("validatingwebhookconfiguration", "headrace-miniclusters"),
        ("mutatingwebhookconfiguration", "headrace-jobs"),
    ):
        cluster.kubectl("delete", kind, name, "--ignore-not-found")
    cluster.box.stop("operator")


def _refuses(cluster: Cluster) -> bool:
    try:
        _dry_run(cluster, "/apis/flux-framework.org/v1alpha2/namespaces/default/miniclusters", _WRONG)
    except KubeError as exc:
        # What is said of a webhook that cannot be reached names no field.
        return "spec.flux.brokerConfig" in str(exc)
    return False


def _changes(cluster: Cluster) -> bool:
    try:
        found = _dry_run(cluster, "/apis/batch/v1/namespaces/default/jobs", _LABELLED)
    except KubeError:
        return False
    return f"{_LABEL}-cluster" in found["metadata"]["labels"]


def _dry_run(cluster: Cluster, path: str, body: dict[str, Any]) -> Any:
    return cluster.api.request("POST", f"{path}?dryRun=All", body)
