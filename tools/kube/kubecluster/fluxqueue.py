"""The cluster queue in a cluster for developers (`program`), with the objects of its install but for its pods."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import yaml

from . import program
from .box import wait_for
from .cluster import Cluster

_QUEUES = "/apis/jobs.converged-computing.org/v1alpha1/fluxqueues"
_PORT = 18443
# The pods of the queue, and what leads to them.
_ELSEWHERE = ("Deployment", "Service")


def start(cluster: Cluster) -> None:
    """Install the queue, and start it. Returns when it works."""
    printed = subprocess.run([program.headrace(), "fluxqueue", "manifests"], check=True, capture_output=True).stdout
    found: list[Any] = [one for one in yaml.safe_load_all(printed) if one["kind"] not in _ELSEWHERE]
    address = cluster.addresses.control_plane
    for one in found:
        for hook in one.get("webhooks", ()):
            hook["clientConfig"] = {"url": f"https://{address}:{_PORT}{hook['clientConfig']['service']['path']}"}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=listed)
    wait_for(lambda: program.served(cluster, _QUEUES), "the kind FluxQueue", 30, 0.1)
    webhook = [f"--webhook-bind={address}:{_PORT}", f"--webhook-address={address}"]
    words = ["fluxqueue", "run", "--lease-namespace=fluxqueue-system", *webhook]
    program.start(cluster, "fluxqueue", words, 18082)
    wait_for(lambda: bool(cluster.api.get(_QUEUES)["items"]), "the first queue", 60, 0.1)


def stop(cluster: Cluster) -> None:
    """End the queue, and hold nothing any more."""
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "headrace-fluxqueue", "--ignore-not-found")
    cluster.box.stop("fluxqueue")
