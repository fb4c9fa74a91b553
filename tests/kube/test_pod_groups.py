"""Groups: further pods of other templates whose brokers join the instance, each with what its pod really has."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from kubecluster import devices
from kubecluster.cluster import Cluster
from patience import until
from running_operator import MiniClusters

# Run by the lead: where each host is, and what R says of it.
SCRIPT = r"""#!/bin/sh
flux run -N4 sh -c 'echo on \$(hostname) \$(ls -d /group 2>/dev/null)'
flux resource R
"""
CPUS = {"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}}


def test_the_pods_of_groups_join_with_their_own_templates(miniclusters: MiniClusters) -> None:
    runner = {
        "image": "local/busybox:1",
        "launcher": True,
        "commands": {"script": SCRIPT},
        "resources": CPUS,
    }
    groups = [
        {
            "name": "wide",
            "size": 2,
            "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "100m"}},
            "volumes": {"group": {"emptyDir": True, "path": "/group"}},
        },
        {"name": "plain", "pod": {"labels": {"kind": "plain"}}},
    ]
    miniclusters.apply("mixed", size=1, containers=[runner], groups=groups, logging={"quiet": True})

    def hosts() -> dict[str, str]:
        pods = miniclusters.pods("mixed")
        return {pod["metadata"]["labels"].get("kind", ""): pod["spec"]["hostname"] for pod in pods}

    # The pods of a group may be gone once the lead has ended.
    until(lambda: hosts().get("plain") == "mixed-plain-0")
    status = miniclusters.phase("mixed", "Finished")
    assert status["exitCode"] == 0
    out = miniclusters.log("mixed").splitlines()
    assert sorted(line.rstrip() for line in out if line.startswith("on ")) == [
        "on mixed-0",
        "on mixed-plain-0",
        "on mixed-wide-0 /group",
        "on mixed-wide-1 /group",
    ]
    (text,) = [line for line in out if line.startswith("{")]
    cores = {entry["rank"]: entry["children"]["core"] for entry in json.loads(text)["execution"]["R_lite"]}
    assert cores == {"0,3": "0", "1-2": "0-1"}


@pytest.fixture
def gpus(cluster: Cluster) -> Iterator[None]:
    """Each node has three GPUs, by the names that NVIDIA's driver gives them."""
    with contextlib.ExitStack() as nodes:
        for index in range(cluster.nodes):
            nodes.enter_context(devices.offered(cluster, index, "nvidia.com/gpu", "/dev/nvidia", ["0", "1", "2"]))
        yield


# How many GPUs a task finds in its pod, and which of them it was given.
GPU_SCRIPT = r"""#!/bin/sh
flux run -n4 -g1 -o gpu-affinity=per-task \
    sh -c 'echo on \$(hostname) \$(ls /dev | grep -c nvidia) use \$CUDA_VISIBLE_DEVICES'
flux run -N1 -n1 -g3 true || echo refused
flux resource R
"""


@pytest.mark.usefixtures("gpus")
def test_jobs_get_the_gpus_that_the_pods_of_a_group_were_given(miniclusters: MiniClusters) -> None:
    runner = {
        "image": "local/busybox:1",
        "launcher": True,
        "commands": {"script": GPU_SCRIPT},
        "resources": CPUS,
    }
    limits = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"}
    groups = [{"name": "gpu", "size": 2, "resources": {"limits": limits, "requests": {"cpu": "100m"}}}]
    miniclusters.apply("mixed", size=1, containers=[runner], groups=groups, logging={"quiet": True})
    status = miniclusters.phase("mixed", "Finished")
    assert status["exitCode"] == 0
    out = miniclusters.log("mixed").splitlines()
    assert sorted(line for line in out if line.startswith("on ")) == [
        "on mixed-gpu-0 2 use 0",
        "on mixed-gpu-0 2 use 1",
        "on mixed-gpu-1 2 use 0",
        "on mixed-gpu-1 2 use 1",
    ]
    assert "refused" in out
    (text,) = [line for line in out if line.startswith("{")]
    children = {entry["rank"]: entry["children"] for entry in json.loads(text)["execution"]["R_lite"]}
    assert children == {"0": {"core": "0"}, "1-2": {"core": "0-1", "gpu": "0-1"}}


def test_a_group_that_fails_fails_the_minicluster(miniclusters: MiniClusters) -> None:
    """Its lead, which waits for the group's broker, is ended."""
    fails = {"workerPre": '[ -z "${HEADRACE_POD_GROUP:-}" ] || exit 3'}
    runner = {"image": "local/busybox:1", "command": "echo never", "commands": fails}
    miniclusters.apply("poor", size=1, containers=[runner], groups=[{"name": "more"}], logging={"strict": True})
    status = miniclusters.phase("poor", "Failed")
    assert status["exitCode"] == 3
    assert status["reason"].startswith("group more: pod poor-more-0: ")
    until(lambda: not [pod for pod in miniclusters.pods("poor") if pod["status"]["phase"] == "Running"])


def test_a_group_ends_with_the_lead_whatever_its_job_returned(miniclusters: MiniClusters) -> None:
    miniclusters.apply("ends", size=1, command="sh -c 'exit 5'", groups=[{"name": "more"}])
    assert miniclusters.phase("ends", "Failed")["exitCode"] == 5

    def gone_or_done() -> bool:
        """The operator deletes the Job of a group whose followers have not ended by themselves."""
        jobs = {one["metadata"]["name"]: one["status"] for one in miniclusters.get("job")["items"]}
        more = jobs.get("ends-more", {"succeeded": 1})
        assert not more.get("failed")
        return more.get("succeeded") == 1

    until(gone_or_done)
