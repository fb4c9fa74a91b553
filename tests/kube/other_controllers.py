"""Controllers of other projects in the cluster of the tests: their images, and the wait for their certificates."""

from __future__ import annotations

import time
from pathlib import Path

from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError

from headrace.images import oci
from headrace.images.layer import Entry, program


def controller_image(name: str, binary: str) -> bytes:
    """The archive of `local/NAME:1`: one static program of somebody else's, as their own images have it."""
    layer = {"manager": program(Path(binary).read_bytes()), "tmp": Entry(0o1777)}
    config = {"Entrypoint": ["/manager"], "User": "65532:65532"}
    return oci.archive(f"docker.io/local/{name}:1", oci.Image([layer], config))


def fill_volumes(cluster: Cluster, namespace: str) -> None:
    """Have the kubelet bring the Secrets in the volumes of a namespace's pods up to date, by a change of each pod.

    By itself it looks at a pod's volumes about once a minute.
    """
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for pod in cluster.api.get(pods)["items"]:
        change = {"metadata": {"annotations": {"looked-at": str(time.time())}}}
        cluster.api.request("PATCH", f"{pods}/{pod['metadata']['name']}", change, "application/merge-patch+json")


def becomes_available(cluster: Cluster, namespace: str) -> bool:
    """Whether the controllers of a namespace become available within moments.

    They make certificates first, and wait for them in a volume.
    """
    fill_volumes(cluster, namespace)
    try:
        cluster.kubectl("-n", namespace, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=5s")
    except KubeError as exc:
        if "timed out" not in str(exc):
            raise
        return False
    return True
