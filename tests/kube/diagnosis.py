"""What a cluster of the tests knows of a namespace, as text: the report of a test that has failed shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError

Object = dict[str, Any]

# Lines of each container's log, and the namespace's latest Events.
_LINES = 40
_EVENTS = 60
_MINICLUSTERS = "/apis/flux-framework.org/v1alpha2/namespaces/{}/miniclusters"


def of_namespace(cluster: Cluster, namespace: str) -> str:
    """MiniClusters with their status, Jobs, pods with the states of their containers, Events, and the ends of logs."""
    parts = (_miniclusters, _jobs, _pods, _events, _logs)
    return "\n".join(line for part in parts for line in _tried(part, cluster, namespace))


def _tried(part: Callable[[Cluster, str], Iterator[str]], cluster: Cluster, namespace: str) -> Iterator[str]:
    """Lines of a part. A cluster that does not answer is told of; the test has failed for another reason."""
    try:
        yield from part(cluster, namespace)
    except (KubeError, OSError) as exc:
        yield f"{part.__name__.strip('_')}: not known: {exc}"


def _miniclusters(cluster: Cluster, namespace: str) -> Iterator[str]:
    for one in cluster.api.get(_MINICLUSTERS.format(namespace))["items"]:
        status = one.get("status") or {}
        yield f"MiniCluster {_name(one)}: {status.get('phase', 'without a phase')}"
        yield f"  {json.dumps(status)}"


def _jobs(cluster: Cluster, namespace: str) -> Iterator[str]:
    for one in cluster.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]:
        yield f"Job {_name(one)}: {json.dumps(one.get('status') or {})}"


def _pods(cluster: Cluster, namespace: str) -> Iterator[str]:
    for pod in _all_pods(cluster, namespace):
        status = pod["status"]
        unmet = [
            f"{one['type']} is {one['status']}: {one.get('reason', '')} {one.get('message', '')}".rstrip(": ")
            for one in status.get("conditions", [])
            if one["status"] != "True"
        ]
        going = ", goes" if pod["metadata"].get("deletionTimestamp") else ""
        yield f"Pod {_name(pod)}: {status.get('phase')} on {pod['spec'].get('nodeName', 'no node')}{going}"
        yield from (f"  {one}" for one in unmet)
        for one in _containers(pod):
            yield f"  {one['name']}: {json.dumps(one['state'])}, {one['restartCount']} restarts"
            if one.get("lastState"):
                yield f"    before: {json.dumps(one['lastState'])}"


def _events(cluster: Cluster, namespace: str) -> Iterator[str]:
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    for one in sorted(found, key=lambda one: one["metadata"]["creationTimestamp"])[-_EVENTS:]:
        about = f"{one['involvedObject'].get('kind')}/{one['involvedObject'].get('name')}"
        at = one["metadata"]["creationTimestamp"]
        yield f"Event {at} {about}: {one.get('reason')} x{one.get('count', 1)}: {one.get('message')}"


def _logs(cluster: Cluster, namespace: str) -> Iterator[str]:
    for pod in _all_pods(cluster, namespace):
        for one in _containers(pod):
            for which in (True, False) if one["restartCount"] else (False,):
                yield f"Log of {_name(pod)}, {one['name']}{' before its restart' if which else ''}:"
                yield from (f"  | {line}" for line in _log(cluster, namespace, _name(pod), one["name"], which))


def _log(cluster: Cluster, namespace: str, pod: str, container: str, previous: bool) -> list[str]:
    query = f"container={container}&tailLines={_LINES}&previous={str(previous).lower()}"
    try:
        return cluster.api.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{query}").splitlines()
    except KubeError as exc:
        return [f"({exc})"]


def _all_pods(cluster: Cluster, namespace: str) -> list[Object]:
    return list(cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])


def _containers(pod: Object) -> list[Object]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _name(one: Object) -> str:
    return str(one["metadata"]["name"])
