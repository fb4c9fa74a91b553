"""Headrace's operator in a cluster for developers (`program`). As a pod it is installed by `deploy/`."""

from __future__ import annotations

from . import program
from .box import wait_for
from .cluster import Cluster

_KIND = program.ROOT / "deploy/kustomize/crd.yaml"
_MINICLUSTERS = "/apis/flux-framework.org/v1alpha2/miniclusters"


def start(cluster: Cluster, view_image: str) -> None:
    """Make the kind MiniCluster known, and start the operator. Returns when it works."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(_KIND))
    wait_for(lambda: program.served(cluster, _MINICLUSTERS), "the kind MiniCluster", 30, 0.1)
    words = ["operator", "run", "--lease-namespace=default", f"--view-image={view_image}"]
    program.start(cluster, "operator", words, 18080)


def stop(cluster: Cluster) -> None:
    """End the operator; MiniClusters and their pods stay."""
    cluster.box.stop("operator")
