"""Kueue in a cluster, as a process beside the API server: what benchmarks compare the cluster queue with.

It queues Jobs alone, and has no webhooks, so Jobs are to be created as these would have them: suspended, with the label
`kueue.x-k8s.io/queue-name: QUEUE`. Build it first: `tools/kube/kube build kueue`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

from . import build
from .box import wait_for
from .cluster import Cluster
from .errors import KubeError

QUEUE = "queue"
_MODULE = "sigs.k8s.io/kueue"
_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
_PATIENCE = 60.0
# Kueue reads the certificate of its metrics at a path in /etc that cannot be chosen: it is given an /etc of its own.
_STARTED = """
mount -t tmpfs none /etc
mkdir -p /etc/kueue/metrics/certs "$1"
for folder in /etc/kueue/metrics/certs "$1"; do
    cp "$2.crt" "$folder/tls.crt" && cp "$2.key" "$folder/tls.key" || exit
done
shift 2
exec "$@"
"""


def start(cluster: Cluster, quota: Mapping[str, str], namespace: str = "default") -> None:
    """Start Kueue with one queue for a namespace (BestEffortFIFO), whose jobs have so much of each resource together.
    Returns when the queue admits.
    """
    program = build.program("kueue", "kueue")
    definitions = build.source("kueue", _MODULE) / "config/components/crd/bases"
    cluster.kubectl("apply", "--server-side", "-f", str(definitions))
    state = cluster.box.state
    certificates = state / "kueue"
    (state / "kueue.yaml").write_text(json.dumps(_configuration(str(certificates))))
    words = [program, f"--kubeconfig={cluster.kubeconfig}", f"--config={state}/kueue.yaml"]
    pair = [str(certificates), str(state / "certificates/apiserver")]
    shell = shutil.which("sh") or "/bin/sh"
    # Kueue ends where the API server does not know its kinds yet.
    wait_for(lambda: _are_served(cluster), "the kinds of Kueue", _PATIENCE, 0.1)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": _queue(quota, namespace)})
    wait_for(lambda: _applied(cluster, listed), "objects of Kueue's kinds", _PATIENCE, 0.2)
    cluster.box.start("kueue", ["unshare", "--mount", shell, "-c", _STARTED, "sh", *pair, *words])
    wait_for(lambda: _is_active(cluster), "Kueue's queue", _PATIENCE, 0.1)


def _configuration(certificates: str) -> dict[str, Any]:
    """Its own defaults, but for what needs pods or webhooks."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "127.0.0.1:18090"},
        "metrics": {"bindAddress": "127.0.0.1:18091"},
        "webhook": {"host": "127.0.0.1", "port": 18092, "certDir": certificates},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


def _queue(quota: Mapping[str, str], namespace: str) -> list[dict[str, Any]]:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": "nodes", "resources": resources}]}
    spec = {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": [group]}
    local = {"name": QUEUE, "namespace": namespace}
    return [
        {**head, "kind": "ResourceFlavor", "metadata": {"name": "nodes"}},
        {**head, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec},
        {**head, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": QUEUE}},
    ]


def _are_served(cluster: Cluster) -> bool:
    found = cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    return all(
        any(
            each["type"] == "Established" and each["status"] == "True" for each in one["status"].get("conditions") or ()
        )
        for one in found
    )


def _applied(cluster: Cluster, listed: str) -> bool:
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", input=listed)
    except KubeError:
        return False
    return True


def _is_active(cluster: Cluster) -> bool:
    _, ended = cluster.box.processes()
    if "kueue" in ended:
        raise KubeError(f"kueue ended with {ended['kueue']}:\n{cluster.box.log('kueue')}")
    conditions = cluster.api.get(f"{_QUEUES}/{QUEUE}").get("status", {}).get("conditions", ())
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)
