"""Headrace's operator in a cluster for developers: a process from this work tree, so that a change needs no image.

It runs in the cluster's namespaces and ends with it. `kube restart NAME operator` takes changed code, `kube logs NAME
operator` is what it says. As a pod it is installed by `deploy/`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import urllib.request
from pathlib import Path

from .box import wait_for
from .cluster import Cluster
from .errors import KubeError

_ROOT = Path(__file__).resolve().parent.parent.parent.parent
_KIND = _ROOT / "deploy/kustomize/crd.yaml"
_MINICLUSTERS = "/apis/flux-framework.org/v1alpha2/miniclusters"

# Runs a command again whenever it ends, as a Deployment would: the operator ends when it loses its Lease, which it does
# on a busy machine. SIGTERM ends both.
_AGAIN = """
trap 'kill "$command"; wait "$command"; exit 0' TERM
while :; do
    "$@" &
    command=$!
    wait "$command"
    echo "the operator has ended with $?, and is started again" >&2
    sleep 1 &
    command=$!
    wait "$command"
done
"""


def headrace() -> str:
    """The command of this work tree. Raises KubeError where none is installed."""
    beside = Path(sys.executable).parent / "headrace"
    for path in (str(beside), str(_ROOT / ".venv/bin/headrace"), shutil.which("headrace")):
        if path and os.access(path, os.X_OK):
            return path
    raise KubeError("no headrace command: `make .venv/.installed` installs it")


def start(cluster: Cluster, view_image: str) -> None:
    """Make the kind MiniCluster known, and start the operator. Returns when it works."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(_KIND))
    wait_for(lambda: _served(cluster), "the kind MiniCluster", 30, 0.1)
    address = cluster.addresses.control_plane
    if "operator" in cluster.box.processes()[0]:
        cluster.box.stop("operator")
    command = [headrace(), "operator", "run", f"--kubeconfig={cluster.kubeconfig}", "--lease-namespace=default"]
    command += [f"--metrics-bind={address}:18080", f"--health-bind={address}:18081", f"--view-image={view_image}"]
    cluster.box.start("operator", ["sh", "-c", _AGAIN, "sh", *command, "--log-format=text"])
    wait_for(lambda: _ready(cluster), "the operator", 60, 0.1)


def stop(cluster: Cluster) -> None:
    """End the operator; MiniClusters and their pods stay."""
    cluster.box.stop("operator")


def _served(cluster: Cluster) -> bool:
    try:
        return bool(cluster.api.get(_MINICLUSTERS))
    except (KubeError, OSError):
        return False


def _ready(cluster: Cluster) -> bool:
    _, ended = cluster.box.processes()
    if "operator" in ended:
        raise KubeError(f"the operator ended with {ended['operator']}:\n{cluster.box.log('operator')}")
    address = f"http://{cluster.addresses.control_plane}:18081/readyz"
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
        return True
    return False
