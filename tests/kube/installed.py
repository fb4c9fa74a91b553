"""The operator's install in a cluster of the tests. The operator runs on this machine, with the rights of its service
account, or in pods of its own image."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diagnosis
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT
from running_operator import RunningOperator, define_kind, free_port

from headrace.images import oci
from headrace.images.release_images import operator_image
from headrace.minicluster.operator.names import JOBS_PATH, OPERATOR, WEBHOOK_PATH
from headrace.programs.operator.install import Install, configuration, jobs_configuration
from headrace.programs.operator.package import PACKAGE

IMAGE = "local/headrace-operator:1"
# The pod of the operator, and what leads to it.
_CONFIGURATIONS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_ELSEWHERE = ("Deployment", "Service", *_CONFIGURATIONS)


def apply(cluster: Cluster, *found: dict[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(found)}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(listed))


def install(cluster: Cluster, chosen: Install) -> None:
    """Definition, namespace, account and roles."""
    define_kind(cluster)
    apply(cluster, *(one for one in PACKAGE.objects(chosen) if one["kind"] not in _ELSEWHERE))


def uninstall(cluster: Cluster, chosen: Install) -> None:
    """Everything but the definition and the namespace, which others use."""
    rest = [one for one in PACKAGE.objects(chosen) if one["kind"] not in ("CustomResourceDefinition", "Namespace")]
    listed = {"apiVersion": "v1", "kind": "List", "items": rest}
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=json.dumps(listed))


def account_kubeconfig(cluster: Cluster, namespace: str, folder: Path, account: str = OPERATOR) -> Path:
    """A kubeconfig of a service account, by default the operator's, for an hour."""
    token = cluster.kubectl("create", "token", account, f"--namespace={namespace}", "--duration=1h").strip()
    config = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    for user in config["users"]:
        user["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.touch(0o600)
    path.write_text(json.dumps(config))
    return path


@contextlib.contextmanager
def running(cluster: Cluster, chosen: Install, folder: Path, *options: str) -> Iterator[RunningOperator]:
    """The operator with the rights of its install, until the block ends."""
    operator = RunningOperator(cluster, folder)
    kubeconfig = account_kubeconfig(cluster, chosen.namespace, folder)
    elsewhere = ("--flux-operator-namespace", chosen.flux_operator_namespace)
    operator.start("--kubeconfig", str(kubeconfig), "--lease-namespace", chosen.namespace, *elsewhere, *options)
    try:
        yield operator
    finally:
        if operator.runs:
            operator.stop()


@contextlib.contextmanager
def guarded(cluster: Cluster, chosen: Install, folder: Path, *options: str) -> Iterator[RunningOperator]:
    """The webhook of such an operator stands before the cluster's MiniClusters and Jobs while the block runs."""
    port, machine = free_port(), cluster.addresses.machine
    address = f"https://{machine}:{port}"
    hooks = (
        configuration({"url": address + WEBHOOK_PATH}, chosen),
        jobs_configuration({"url": address + JOBS_PATH}, chosen),
    )
    apply(cluster, *hooks)
    webhook = ("--webhook-bind", f"{machine}:{port}", "--webhook-address", machine)
    try:
        with running(cluster, chosen, folder, *webhook, *options) as operator:
            operator.webhook = f"{machine}:{port}"
            yield operator
    finally:
        for one in hooks:
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


@contextlib.contextmanager
def installed_in_pods(cluster: Cluster, operator: RunningOperator, chosen: Install, folder: Path) -> Iterator[None]:
    """The install file is applied as users do, with the image of this tree, and its operators are ready while the block
    runs. The operator that is a process of this machine rests meanwhile."""
    archive = folder / "operator.tar"
    archive.write_bytes(oci.archive(f"docker.io/{IMAGE}", operator_image()))
    cluster.load(archive)
    operator.stop()
    try:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=PACKAGE.install_file(chosen))
        where = f"--namespace={chosen.namespace}"
        try:
            cluster.kubectl("rollout", "status", f"deployment/{OPERATOR}", where, TIMEOUT)
        except KubeError as exc:
            raise AssertionError(f"{exc}\n{diagnosis.of_namespace(cluster, chosen.namespace)}") from None
        yield
    finally:
        uninstall(cluster, chosen)
        operator.start()
