"""The kinds of the cluster queue on a real Kubernetes, from apply to gone."""

from __future__ import annotations

from typing import Any

from kubecluster.cluster import Cluster
from patience import until
from running_fluxqueue import Held

Object = dict[str, Any]


def bound(held: Held, name: str) -> list[str]:
    """The names of an object's pods that run."""
    found = [one for one in held.get("pods")["items"] if (one["metadata"].get("labels") or {}).get("app") == name]
    return sorted(one["metadata"]["name"] for one in found if one["status"]["phase"] == "Running")


def test_deployments_replicasets_and_statefulsets_wait_grow_shrink_and_go(cluster: Cluster, held: Held) -> None:
    half = f"{int(cluster.api.get('/api/v1/nodes/node-0')['status']['allocatable']['cpu']) * 450}m"
    held.replicated("Deployment", "web", 2, half, "echo serves; sleep 3600")
    held.wait("web-deployment", "Running")
    # Of four places for pods two are left: the StatefulSet needs three, and has none until then.
    held.replicated("StatefulSet", "db", 3, half, "echo $HOSTNAME; sleep 3600")
    assert held.wait("db-statefulset", "Held")["position"] == 1
    assert not bound(held, "db")
    # Growth waits behind it, but for the pod whose place the StatefulSet will not need.
    held.scale("Deployment", "web", 4)
    until(lambda: "1 pod waits" in held.status("web-deployment").get("reason", ""))
    until(lambda: len(bound(held, "web")) == 3)
    held.scale("Deployment", "web", 1)
    status = held.wait("db-statefulset", "Running")
    assert "waits" not in held.status("web-deployment")
    assert bound(held, "db") == ["db-0", "db-1", "db-2"]
    assert cluster.kubectl("-n", held.namespace, "logs", "db-2") == "db-2\n"
    places = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in held.get("pods")["items"]}
    # A pod that is lost leaves its place to the next one.
    held.delete("pods", "db-1")
    until(lambda: "db-1" in bound(held, "db") and not held.get("pods", "db-1")["metadata"].get("deletionTimestamp"))
    assert held.get("pods", "db-1")["spec"]["nodeName"] == places["db-1"]
    assert held.status("db-statefulset")["nodes"] == status["nodes"]
    # A rollout: the new pod has the place that the old one leaves.
    cluster.kubectl(
        *("-n", held.namespace, "patch", "deployment/web", "--type=merge", "-p"),
        '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},'
        '"template":{"metadata":{"annotations":{"version":"2"}}}}}',
    )
    cluster.kubectl("-n", held.namespace, "rollout", "status", "deployment/web", "--timeout=300s")
    assert len(held.get("fluxjobs")["items"]) == 2
    for kind, name in (("deployment", "web"), ("statefulset", "db")):
        cluster.kubectl("-n", held.namespace, "delete", f"{kind}/{name}", "--wait=false")
    until(lambda: not held.get("fluxjobs")["items"])
    # A ReplicaSet of nobody's; each of its pods starts by itself.
    held.replicated("ReplicaSet", "set", 5, half)
    until(lambda: len(bound(held, "set")) == 4)
    assert held.status("set-replicaset")["reason"].startswith("1 pod waits")
    assert held.status("set-replicaset")["state"] == "Released"
    held.scale("ReplicaSet", "set", 4)
    held.wait("set-replicaset", "Running")
    cluster.kubectl("-n", held.namespace, "delete", "replicaset/set", "--wait=false")
    until(lambda: not held.get("fluxjobs")["items"])
