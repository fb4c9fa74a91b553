"""Pods of played nodes run, end when told to, and go when deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from kubecluster import build, kwok
from kubecluster.cluster import Cluster, unmet
from kubecluster.errors import KubeError
from patience import until


@pytest.fixture
def played() -> Iterator[Cluster]:
    if unmet(0):
        pytest.skip(unmet(0))
    if not build.is_built("kwok"):
        pytest.skip("needs kwok: `make kube-tools` builds it")
    cluster = Cluster.up(f"played-{os.getpid()}", nodes=0)
    try:
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        kwok.play(cluster, nodes=2, capacity=capacity, labels=lambda index: {"rack": f"r{index}"})
        yield cluster
    finally:
        cluster.down()


def test_played_nodes_have_the_capacity_and_the_labels_that_were_asked_for(played: Cluster) -> None:
    nodes = played.api.get("/api/v1/nodes")["items"]
    assert [node["metadata"]["labels"]["rack"] for node in nodes] == ["r0", "r1"]
    assert [node["status"]["allocatable"] for node in nodes] == [{"cpu": "8", "memory": "32Gi", "pods": "110"}] * 2


def test_played_pods_run_until_they_are_told_to_end(played: Cluster) -> None:
    container = {"name": "main", "image": "local/none:1", "command": ["none"]}
    template = {"spec": {"restartPolicy": "Never", "initContainers": [{**container, "name": "first"}]}}
    template["spec"]["containers"] = [container]
    spec = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimit": 0, "template": template}
    where = "/apis/batch/v1/namespaces/default/jobs"
    until(lambda: played.api.get("/api/v1/namespaces/default/serviceaccounts")["items"])
    played.api.request("POST", where, {"metadata": {"name": "four"}, "spec": spec})
    until(lambda: _status(played, f"{where}/four").get("ready") == 4)
    pods = played.api.get("/api/v1/namespaces/default/pods")["items"]
    # The scheduler may have heard of one node alone by then.
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"played-0", "played-1"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 4
    _end(played, pods[0]["metadata"]["name"], "0")
    until(lambda: _status(played, f"{where}/four").get("succeeded") == 1)
    _end(played, pods[1]["metadata"]["name"], "7")
    # The others are deleted once one has failed.
    until(lambda: _status(played, f"{where}/four").get("failed") == 3)
    failed = played.api.get(f"/api/v1/namespaces/default/pods/{pods[1]['metadata']['name']}")["status"]
    assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def _status(played: Cluster, path: str) -> dict[str, int]:
    try:
        return dict(played.api.get(path).get("status", {}))
    except KubeError:
        return {}


def _end(played: Cluster, pod: str, code: str) -> None:
    change = {"metadata": {"annotations": {"headrace/exit": code}}}
    path = f"/api/v1/namespaces/default/pods/{pod}"
    played.api.request("PATCH", path, change, kind="application/merge-patch+json")
