"""JobSets, TrainJobs and MiniClusters in the cluster queue, with their real controllers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from foreign_sets import JOBSETS, TRAINJOBS, Sets, replicated
from kubecluster.cluster import Cluster
from patience import until
from peers import Trainer
from running_fluxqueue import Held
from running_operator import MiniClusters

Object = dict[str, Any]


@pytest.fixture
def full(cluster: Cluster, held: Held) -> Iterator[str]:
    """The command that makes room, where a pod has half of the cluster."""
    cpu = f"{int(cluster.api.get('/api/v1/nodes/node-0')['status']['allocatable']['cpu']) * 900}m"
    held.pod("full", cpu=cpu)
    held.wait("full-pod", "Running")
    yield "full"


def share(cluster: Cluster) -> str:
    """The cores of which a node has two and not three."""
    return f"{int(cluster.api.get('/api/v1/nodes/node-0')['status']['allocatable']['cpu']) * 450}m"


def asks(job: Object, cpu: str) -> Object:
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return job


def test_jobsets_and_trainjobs_wait_as_one_until_all_their_pods_have_room(
    cluster: Cluster, trainer: Trainer, held: Held, full: str
) -> None:
    sets, cpu = Sets(trainer, held.namespace), share(cluster)
    parts = [asks(replicated(name, "local/busybox:1", ["sh", "-c", f"echo {name}"], size), cpu)
             for name, size in (("driver", 1), ("worker", 2))]  # fmt: skip
    sets.jobset("both", *parts)
    held.wait("both-jobset", "Held")
    sets.runtime("plain", asks(replicated("node", "local/busybox:1", ["sh", "-c", "echo trained"], 1), cpu))
    sets.trainjob("train", "plain", "TrainingRuntime", trainer={"numNodes": 3})
    until(lambda: held.status("train-trainjob").get("position") == 2)
    assert sets.get(JOBSETS, "both")["spec"]["suspend"] is True
    assert sets.get(TRAINJOBS, "train")["spec"]["suspend"] is True
    assert [one["metadata"]["name"] for one in held.get("pods")["items"]] == ["full"]
    assert sorted(one["metadata"]["name"] for one in held.get("fluxjobs")["items"]) == [
        "both-jobset",
        "full-pod",
        "train-trainjob",
    ]
    held.delete("pods", full)
    for name in ("both-jobset", "train-trainjob"):
        held.wait(name, "Finished")
    for kind, name in (("jobset", "both"), ("trainjob", "train")):
        cluster.kubectl("-n", held.namespace, "delete", kind, name, "--wait=false")
    until(lambda: not held.get("fluxjobs")["items"])


def test_a_minicluster_waits_suspended_until_all_its_pods_have_room(
    cluster: Cluster, miniclusters: MiniClusters, held: Held, full: str
) -> None:
    container = {"image": "local/busybox:1", "command": "echo hello"}
    limited = {**container, "resources": {"requests": {"cpu": share(cluster)}}}
    miniclusters.apply("hello", size=3, tasks=3, containers=[limited])
    held.wait("hello-minicluster", "Held")
    assert miniclusters.phase("hello", "Suspended")
    held.delete("pods", full)
    held.wait("hello-minicluster", "Finished")
    assert miniclusters.log("hello").count("hello") >= 3
    cluster.kubectl("-n", held.namespace, "delete", "mc/hello", "--wait=false")
    until(lambda: not held.status("hello-minicluster"))
