"""The cluster queue in a cluster for developers (`program`), with the objects of its install but for its pods."""

from __future__ import annotations

from . import program
from .box import wait_for
from .cluster import Cluster
from .errors import KubeError

_QUEUES = "/apis/jobs.converged-computing.org/v1alpha1/fluxqueues"
# The pods of the queue, and what leads to them.
_ELSEWHERE = ("Deployment", "Service")


def start(cluster: Cluster) -> None:
    """Install the queue, and start it. Returns when it works."""
    objects = [one for one in program.manifests("fluxqueue") if one["kind"] not in _ELSEWHERE]
    webhook = program.install(cluster, objects, 18443)
    wait_for(lambda: program.served(cluster, _QUEUES), "the kind FluxQueue", 30, 0.1)
    words = ["fluxqueue", "run", "--lease-namespace=fluxqueue-system", *webhook]
    program.start(cluster, "fluxqueue", words, 18082)
    wait_for(lambda: _has_queue(cluster), "the first queue", 60, 0.1)


def _has_queue(cluster: Cluster) -> bool:
    try:
        return bool(cluster.api.get(_QUEUES)["items"])
    except KubeError:
        # The API server answers 404 for moments more while definitions come.
        return False


def stop(cluster: Cluster) -> None:
    """End the queue, and hold nothing any more."""
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "headrace-fluxqueue", "--ignore-not-found")
    cluster.box.stop("fluxqueue")
