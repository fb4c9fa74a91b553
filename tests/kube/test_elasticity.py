"""MiniClusters change their size while jobs run: by hand, from inside, by an autoscaler, and by their own queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from external_metrics import ExternalMetrics, served
from kubecluster import build
from kubecluster.cluster import Cluster
from patience import until
from running_operator import MiniClusters

from headrace.formats.spec.idset import Idset

# A job that ends when a file is there.
WAITS = "until test -e /tmp/go; do sleep .1; done; echo went"


class Elastic:
    """A MiniCluster without a command, whose instance waits for those of the test."""

    def __init__(self, miniclusters: MiniClusters, name: str, **spec: Any) -> None:
        self.its, self.name = miniclusters, name
        miniclusters.apply(name, interactive=True, command="", **spec)
        miniclusters.phase(name, "Running")

    def pods(self) -> dict[int, str]:
        """The names of the pods that are there and do not go, by index."""
        found = {}
        for pod in self.its.pods(self.name):
            if not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") in ("Pending", "Running"):
                found[int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])] = pod
        return {index: pod["metadata"]["name"] for index, pod in found.items()}

    def run(self, index: int, *words: str) -> str:
        """A command in a pod."""
        return self.its.inside(self.name, *words, index=index)

    def flux(self, *words: str) -> str:
        return self.its.flux(self.name, *words)

    def up(self) -> set[int]:
        """Ranks that take jobs."""
        listed = self.flux("resource", "list", "-s", "free,allocated", "-no", "{ranks}")
        return {rank for line in listed.split() for rank in Idset.parse(line)}

    def until_pods(self, *indexes: int) -> None:
        until(lambda: set(self.pods()) == set(indexes))

    def hosts(self, nodes: int) -> list[str]:
        """Where a job on so many nodes runs."""
        return sorted(self.flux("run", f"-N{nodes}", "hostname").split())

    def names(self, *indexes: int) -> list[str]:
        return [f"{self.name}-{index}" for index in indexes]


def test_it_grows_for_jobs_that_wait_and_shrinks_when_those_on_the_top_are_over(miniclusters: MiniClusters) -> None:
    mc = Elastic(miniclusters, "scaled", size=1, maxSize=3)
    waits = mc.flux("submit", "-N3", "hostname").strip()
    miniclusters.kubectl("scale", "mc/scaled", "--replicas=3")
    assert sorted(mc.flux("job", "attach", waits).split()) == mc.names(0, 1, 2)
    assert miniclusters.cluster.api.get(_scale(miniclusters, "scaled"))["spec"]["replicas"] == 3
    until(lambda: miniclusters.cluster.api.get(_scale(miniclusters, "scaled"))["status"]["replicas"] == 3)

    top = mc.flux("submit", "--requires=rank:2", "sh", "-c", WAITS).strip()
    mc.flux("job", "wait-event", top, "start")
    miniclusters.kubectl("patch", "mc/scaled", "--type=merge", "-p", '{"spec": {"size": 1}}')
    miniclusters.reason("scaled", lambda reason: "waits until no job runs on them" in reason)
    # New jobs go where pods stay; the one on the top is let be.
    assert mc.hosts(1) == mc.names(0)
    assert set(mc.pods()) == {0, 1, 2}
    mc.run(2, "touch", "/tmp/go")
    mc.until_pods(0)
    assert mc.flux("job", "attach", top) == "went\n"
    assert mc.flux("jobs", "-no", "{status}", top) == "COMPLETED\n"
    miniclusters.wait("scaled", "size", "1")
    miniclusters.kubectl("scale", "mc/scaled", "--replicas=2")
    mc.until_pods(0, 1)
    until(lambda: mc.up() == {0, 1})
    assert mc.hosts(2) == mc.names(0, 1)


def test_it_grows_beyond_the_first_largest_size_while_a_job_runs(miniclusters: MiniClusters) -> None:
    mc = Elastic(miniclusters, "beyond", size=2)
    runs = mc.flux("submit", "-N2", "-n2", "sh", "-c", WAITS).strip()
    mc.flux("job", "wait-event", runs, "start")
    waits = mc.flux("submit", "-N2", "hostname").strip()
    miniclusters.kubectl("patch", "mc/beyond", "--type=merge", "-p", '{"spec": {"size": 4, "maxSize": 4}}')
    # Those that joined take the job that waits.
    assert sorted(mc.flux("job", "attach", waits).split()) == mc.names(2, 3)
    assert mc.flux("getattr", "hostlist") == "beyond-[0-3]\n"
    for index in (0, 1):
        mc.run(index, "touch", "/tmp/go")
    assert mc.flux("job", "attach", runs) == "went\nwent\n"
    assert mc.hosts(4) == mc.names(0, 1, 2, 3)
    miniclusters.wait("beyond", "maximumSize", "4")


def test_it_and_a_group_grow_beyond_their_first_largest_sizes(miniclusters: MiniClusters) -> None:
    mc = Elastic(miniclusters, "grows", size=1, groups=[{"name": "more"}])
    assert mc.flux("getattr", "hostlist") == "grows-0,grows-more-0\n"
    for change in ({"size": 2}, {"groups": [{"name": "more", "size": 2}]}):
        patch = json.dumps({"spec": {**change, "maxSize": 2}})
        miniclusters.kubectl("patch", "mc/grows", "--type=merge", "-p", patch)
    # Hosts keep their ranks, and those that come have the ranks that the lead gave them.
    assert mc.hosts(4) == ["grows-0", "grows-1", "grows-more-0", "grows-more-1"]
    assert mc.flux("getattr", "hostlist") == "grows-0,grows-more-0,grows-1,grows-more-1\n"


def _scale(miniclusters: MiniClusters, name: str) -> str:
    kind = f"/apis/flux-framework.org/v1alpha2/namespaces/{miniclusters.namespace}/miniclusters"
    return f"{kind}/{name}/scale"


def test_it_is_resized_from_inside_a_pod(miniclusters: MiniClusters) -> None:
    kubectl = Path(build.program("kubernetes", "kubectl"))
    role = ("create", "role", "resizer", "--verb=get,patch", "--resource=miniclusters.flux-framework.org")
    miniclusters.kubectl(*role)
    miniclusters.kubectl("create", "serviceaccount", "resizer")
    account = f"{miniclusters.namespace}:resizer"
    miniclusters.kubectl("create", "rolebinding", "resizer", "--role=resizer", f"--serviceaccount={account}")
    container = {
        "image": "local/busybox:1",
        "volumes": {"tools": {"path": "/tools", "hostPath": str(kubectl.parent)}},
    }
    pod = {"serviceAccountName": "resizer", "automountServiceAccountToken": True}
    mc = Elastic(miniclusters, "inside", size=1, maxSize=2, containers=[container], pod=pod)
    words = ("patch", "mc/inside", "--type=merge", "-p", '{"spec": {"size": 2}}')
    # A job of the MiniCluster asks for more pods, and one after it uses them.
    mc.flux("run", "env", "HOME=/tmp", f"/tools/{kubectl.name}", "-n", miniclusters.namespace, *words)
    assert mc.hosts(2) == mc.names(0, 1)


def test_its_queue_decides_how_large_it_is(miniclusters: MiniClusters) -> None:
    mc = Elastic(miniclusters, "queued", size=1, maxSize=3, autoscale={"minSize": 1, "idleSeconds": 1})
    job = mc.flux("submit", "-N3", "-n3", "hostname").strip()
    assert sorted(mc.flux("job", "attach", job).split()) == mc.names(0, 1, 2)
    mc.until_pods(0)
    miniclusters.wait("queued", "size", "1")
    assert "Autoscaled" in miniclusters.events("queued")


@pytest.fixture
def metrics(cluster: Cluster) -> Iterator[ExternalMetrics]:
    with served(cluster) as metrics:
        yield metrics


def test_an_autoscaler_of_the_cluster_resizes_it(miniclusters: MiniClusters, metrics: ExternalMetrics) -> None:
    mc = Elastic(miniclusters, "hpa", size=1, maxSize=3)
    metrics.values["waiting_jobs"] = 30
    wanted = {"metric": {"name": "waiting_jobs"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    target = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "hpa"}
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "hpa"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "External", "external": wanted}],
        },
    }
    miniclusters.kubectl("apply", "-f", "-", input=json.dumps(body))
    mc.until_pods(0, 1, 2)
    assert mc.hosts(3) == mc.names(0, 1, 2)
    metrics.values["waiting_jobs"] = 5
    mc.until_pods(0)
