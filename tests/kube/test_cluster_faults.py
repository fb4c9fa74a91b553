"""The faults that other tests cause, and that they are undone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from kubecluster import faults
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT, until

_POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: local/busybox:1
    command: [sh, -c, "mkdir /tmp/w && echo served > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"]
"""


def _pods(cluster: Cluster, namespace: str, *names: str) -> list[str]:
    """Start web servers; their addresses."""
    text = "---".join(_POD.replace("NAME", name) for name in names)
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=text)
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "--all", "pod", TIMEOUT)
    return [_get(cluster, namespace, name)["status"]["podIP"] for name in names]


def _get(cluster: Cluster, namespace: str, pod: str) -> dict[str, object]:
    return json.loads(cluster.kubectl("-n", namespace, "get", "pod", pod, "-o", "json"))


def _reaches(cluster: Cluster, namespace: str, pod: str, address: str) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            words = ["exec", pod, "--", "timeout", "1", "wget", "-qO-", f"http://{address}:8080"]
            return cluster.kubectl("-n", namespace, *words) == "served\n"
        except KubeError:
            return False

    return tried


def _resolves(cluster: Cluster) -> bool:
    name = "kubernetes.default.svc.cluster.local"
    asking = ["/bin/busybox", "timeout", "2", "/bin/busybox", "nslookup", name, cluster.addresses.control_plane]
    return subprocess.run(asking, capture_output=True, check=False).returncode == 0


def test_a_killed_container_ends_with_the_signals_code(cluster: Cluster, namespace: str) -> None:
    _pods(cluster, namespace, "one")
    faults.kill_container(cluster, namespace, "one", "main")
    pod = _wait_for_restart(cluster, namespace, "one")
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    with pytest.raises(KubeError, match="pod one has no running container other"):
        faults.kill_container(cluster, namespace, "one", "other")


def _wait_for_restart(cluster: Cluster, namespace: str, name: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    until(lambda: _get(cluster, namespace, name)["status"]["containerStatuses"][0].get("restartCount"))
    return _get(cluster, namespace, name)


def test_a_drained_node_has_no_pods_and_takes_some_afterwards(cluster: Cluster, namespace: str) -> None:
    _pods(cluster, namespace, "one", "two", "three")
    listing = ["-n", namespace, "get", "pods", "--field-selector=spec.nodeName=node-1", "-o", "name"]
    assert cluster.kubectl(*listing)
    with faults.drained(cluster, "node-1"):
        assert cluster.kubectl(*listing) == ""
    assert "unschedulable" not in json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json"))["spec"]


def test_parted_pods_do_not_reach_each_other(cluster: Cluster, namespace: str) -> None:
    one, two, three = _pods(cluster, namespace, "one", "two", "three")
    reaches = _reaches(cluster, namespace, "one", two)
    until(reaches)
    with faults.parted(cluster, one, two):
        assert not reaches()
        assert _reaches(cluster, namespace, "one", three)()
    until(reaches)


def test_names_do_not_resolve_while_dns_hangs_or_is_stopped(cluster: Cluster) -> None:
    until(lambda: _resolves(cluster))
    for fault in (faults.hung, faults.stopped):
        with fault(cluster, "coredns"):
            assert not _resolves(cluster)
        until(lambda: _resolves(cluster))


def test_objects_outlast_an_outage_of_the_api_server(control_plane: Cluster, namespace: str) -> None:
    control_plane.kubectl("-n", namespace, "create", "configmap", "kept", "--from-literal=a=b")
    with faults.stopped(control_plane, "kube-apiserver"):
        assert not control_plane.api.ready()
    assert control_plane.kubectl("-n", namespace, "get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
