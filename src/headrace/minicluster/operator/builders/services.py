"""The Services of a MiniCluster: one for the pods' host names, and one for each sidecar with ports."""

from __future__ import annotations

from typing import Any

from ...api.fields import Container, MiniCluster
from ...api.pod_plan import BROKER_PORT
from .. import names
from ..objects import owned


def network(cluster: MiniCluster, uid: str) -> dict[str, Any]:
    """The headless Service of the pods' host names; with `minimalService` it has only the lead's address.

    Brokers connect before their pods are ready, so the Service also publishes pods that are not ready.
    """
    metadata = owned(cluster, names.service(cluster), uid)
    if cluster.flux.minimal_service:
        spec: dict[str, Any] = {
            "ports": [{"port": BROKER_PORT, "targetPort": BROKER_PORT, "protocol": "TCP"}],
            "selector": {names.JOB_NAME: cluster.name, names.COMPLETION_INDEX: "0"},
        }
    else:
        # The pods of groups belong to Jobs with other names.
        selector = {names.CLUSTER: cluster.name} if cluster.spec.groups else {names.JOB_NAME: cluster.name}
        return headless(metadata, selector)
    return _service(metadata, {**spec, "publishNotReadyAddresses": True})


def headless(metadata: dict[str, Any], selector: dict[str, str]) -> dict[str, Any]:
    """A headless Service for pods that must find each other before they are ready."""
    return _service(metadata, {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True})


def sidecars(cluster: MiniCluster, uid: str) -> list[dict[str, Any]]:
    """A Service with the container's name for each sidecar with ports."""
    return [_sidecar(cluster, one, uid) for one in cluster.spec.containers if one is not cluster.runner and one.ports]


def _sidecar(cluster: MiniCluster, one: Container, uid: str) -> dict[str, Any]:
    ports: list[dict[str, Any]] = [
        {"port": port, "targetPort": port, "protocol": "TCP"} for port in dict.fromkeys(one.ports)
    ]
    if len(ports) > 1:
        # Kubernetes requires port names if a Service has more than one port.
        ports = [{"name": f"port-{port['port']}", **port} for port in ports]
    selector = {names.APP_NAME: cluster.name}
    if cluster.spec.services or cluster.spec.groups:
        # The pods of services and groups have the same label, but not the sidecar.
        selector[names.HPA_SELECTOR] = cluster.name
    return _service(owned(cluster, one.name, uid), {"ports": ports, "selector": selector})


def _service(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
