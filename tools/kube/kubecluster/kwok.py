"""Nodes that kwok plays: their pods are told to run, but no process is started. For tests and benchmarks of many.

A played pod gets ready at once and runs until it is deleted, or annotated `headrace/exit: "CODE"`: then all its
containers have ended with that status. The nodes are called `played-0` and on; in a cluster with real nodes they are
tainted, so that only pods that tolerate `headrace/played` come to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from . import build
from .box import wait_for
from .cluster import Cluster
from .control_plane import START_PATIENCE
from .node import ready

_LABEL = "headrace/played"
_EXIT = "headrace/exit"
# A node that is never full.
LARGE = {"cpu": "1k", "memory": "1Ti", "pods": "10k"}
_NOW = "{{ $now := Now }}"

_RUNNING = (
    _NOW
    + """
conditions:
{{ range list "Initialized" "Ready" "ContainersReady" }}
- {type: {{ . | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    running: {startedAt: {{ $now | Quote }}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""
)
_ENDED = (
    _NOW
    + """
{{ $code := index .metadata.annotations "headrace/exit" }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  restartCount: 0
  state:
    terminated: {exitCode: {{ $code }}, reason: Ended, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
{{ end }}
phase: {{ if eq $code "0" }}Succeeded{{ else }}Failed{{ end }}
"""
)
_NODE = (
    _NOW
    + """
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
allocatable: CAPACITY
capacity: CAPACITY
phase: Running
"""
)


def _stage(name: str, kind: str, when: dict[str, list[str] | None], then: dict[str, Any]) -> dict[str, Any]:
    """A stage for objects in which each path has one of the values, or is there (None), or is not there ([])."""
    matches = []
    for path, values in when.items():
        if values:
            matches.append({"key": path, "operator": "In", "values": values})
        else:
            matches.append({"key": path, "operator": "Exists" if values is None else "DoesNotExist"})
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": matches},
            "next": then,
        },
    }


def _stages(capacity: Mapping[str, str]) -> list[dict[str, Any]]:
    deleted, exits = ".metadata.deletionTimestamp", f'.metadata.annotations["{_EXIT}"]'
    going: dict[str, list[str] | None] = {deleted: []}
    node = _NODE.replace("CAPACITY", json.dumps(dict(capacity)))
    return [
        _stage("node", "Node", {".status.phase": []}, {"statusTemplate": node}),
        _stage("run", "Pod", {**going, ".status.podIP": []}, {"statusTemplate": _RUNNING}),
        _stage("end", "Pod", {**going, ".status.phase": ["Running"], exits: None}, {"statusTemplate": _ENDED}),
        _stage("delete", "Pod", {deleted: None}, {"delete": True}),
    ]


def play(
    cluster: Cluster,
    nodes: int = 1,
    pods: str = "10.64.0.1/10",
    capacity: Mapping[str, str] = LARGE,
    labels: Callable[[int], dict[str, str]] = lambda index: {},
) -> None:
    """Start kwok with so many nodes, and wait until they are ready. `pods` is the range of the pods' addresses,
    `capacity` what each node has, `labels` gives the labels of a node by its index.
    """
    box = cluster.box
    # JSON documents, which are YAML.
    (box.state / "kwok.yaml").write_text("\n---\n".join(json.dumps(one) for one in _stages(capacity)))
    box.start(
        "kwok",
        [
            build.program("kwok", "kwok"),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--config={box.state}/kwok.yaml",
            f"--manage-nodes-with-label-selector={_LABEL}=true",
            f"--cidr={pods}",
            f"--node-ip={cluster.addresses.control_plane}",
            "--node-lease-duration-seconds=40",
        ],
    )
    taint = [{"key": _LABEL, "value": "true", "effect": "NoSchedule"}] if cluster.nodes else []
    for index in range(nodes):
        node: dict[str, Any] = {"metadata": {"name": f"played-{index}", "labels": {_LABEL: "true", **labels(index)}}}
        node["spec"] = {"taints": taint}
        cluster.api.request("POST", "/api/v1/nodes", node)
    wait_for(lambda: ready(cluster.api, cluster.nodes + nodes), f"{nodes} played nodes", START_PATIENCE, 0.1)
