"""What goes wrong in clusters, made to happen: each is undone at the end of its `with`, or lasts by nature."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator

from . import node
from .box import wait_for
from .cluster import Cluster
from .control_plane import START_PATIENCE
from .errors import KubeError


@contextlib.contextmanager
def stopped(cluster: Cluster, component: str) -> Iterator[None]:
    """A component is killed, and started again: connections to it are refused. The API server is ready at the end."""
    cluster.box.stop(component, signal.SIGKILL)
    try:
        yield
    finally:
        cluster.box.restart(component)
        if component in ("kube-apiserver", "etcd"):
            wait_for(cluster.api.ready, "the API server", START_PATIENCE, 0.05)


@contextlib.contextmanager
def hung(cluster: Cluster, component: str) -> Iterator[None]:
    """A component takes no step: what it is asked gets no answer (`coredns`: looking a name up ends by time-out)."""
    cluster.box.signal(component, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.box.signal(component, signal.SIGCONT)


@contextlib.contextmanager
def drained(cluster: Cluster, name: str) -> Iterator[None]:
    """A node takes no pods, and those that it has are evicted, all namespaces' alike."""
    try:
        cluster.kubectl(
            "drain",
            name,
            "--force",
            "--delete-emptydir-data",
            "--ignore-daemonsets",
            "--grace-period=5",
            "--timeout=300s",
        )
        yield
    finally:
        cluster.kubectl("uncordon", name)


@contextlib.contextmanager
def parted(cluster: Cluster, one: str, other: str) -> Iterator[None]:
    """Packets between two addresses (of pods, nodes, or ranges of them) are lost, both ways."""
    rules = [
        (chain, "-s", source, "-d", target, "-j", "DROP")
        for source, target in ((one, other), (other, one))
        for chain in ("FORWARD", "INPUT", "OUTPUT")
    ]
    for rule in rules:
        cluster.exec_in_netns(["iptables", "--wait", "-I", *rule])
    try:
        yield
    finally:
        for rule in rules:
            cluster.exec_in_netns(["iptables", "--wait", "-D", *rule])


def kill_container(cluster: Cluster, namespace: str, pod: str, container: str = "") -> None:
    """Kill the process 1 of a running container, the first one of its pod unless it is named."""
    status = json.loads(cluster.kubectl("-n", namespace, "get", "pod", pod, "-o", "json"))
    statuses = [
        one for part in ("initContainerStatuses", "containerStatuses") for one in status["status"].get(part, [])
    ]
    for one in statuses:
        running = "running" in one.get("state", {})
        if running and container in ("", one["name"]):
            index = int(status["spec"]["nodeName"].rpartition("-")[2])
            node.kill(cluster.box, index, one["containerID"].rpartition("/")[2])
            return
    raise KubeError(f"pod {pod} has no running container {container}".rstrip())
