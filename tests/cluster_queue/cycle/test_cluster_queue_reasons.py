"""A table of situations, each with the reason that the FluxJob of a waiting Job shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.names import NAMESPACES, NODES
from headrace.k8s.objects.kinds import PODS

RACK = "topology.kubernetes.io/rack"
WITHIN = {"fluxqueue/within": RACK}
OTHERS = "; pods outside the queue have cpu 3 of its nodes"

Situation = Callable[[], Cluster]


def plain(nodes: int = 2, **options: Any) -> Cluster:
    return Cluster(nodes=nodes, cores=4, **options)


def racks() -> Cluster:
    """Two racks of two nodes."""
    cluster = Cluster(nodes=0, cores=4, topology=[RACK])
    for n in range(4):
        cluster.node(f"n{n}", cores=4, labels={RACK: f"r{n // 2}"})
    return cluster


def used_by_others(cluster: Cluster, node: str = "n0", name: str = "theirs") -> Cluster:
    """Of a node, a pod in a namespace without a queue has three of four cores."""
    cluster.put(NAMESPACES, {"metadata": {"name": "other"}})
    cluster._bind_to(cluster.pod(name, cores=3, namespace="other"), node)
    cluster.settle(2)
    return cluster


def cordoned(cluster: Cluster, *nodes: str) -> Cluster:
    for node in nodes:
        cluster.put(NODES, {**cluster.one(NODES, node, ""), "spec": {"unschedulable": True}})
    return cluster


def not_ready(cluster: Cluster) -> Cluster:
    cluster.set_ready("n0", "Unknown")
    return cluster


def busy(cluster: Cluster, pods: int = 2, cores: int = 4, lasts: str = "", name: str = "before") -> Cluster:
    """With a job before the one that is asked about."""
    cluster.job(name, pods=pods, cores=cores, annotations={"fluxqueue/duration": lasts} if lasts else {})
    cluster.settle(5)
    return cluster


def reserved(lasts: str) -> Cluster:
    """A job has one node of two, and one that waits before the job that is asked about wants both."""
    cluster = busy(plain(policy="easy"), 1, lasts=lasts)
    return busy(cluster, lasts="1h", name="second")


NEVER = "no node could ever serve it as nodes are now: "
DOWN = "eligible node(s) are down, drained or cordoned"

SITUATIONS: list[tuple[str, Situation, dict[str, Any], str]] = [
    ("a pod larger than a node", plain, {"cores": 5}, f"{NEVER}a pod needs cpu 5, the largest node has 4"),
    ("more than all nodes", plain, {"pods": 3, "cores": 4}, f"{NEVER}need 12 cpu, the whole system has 8"),
    ("a label that no node has", plain, {"selector": {"disk": "ssd"}}, f"{NEVER}no node has property disk=ssd"),
    (
        "a rack too small",
        racks,
        {"pods": 3, "cores": 4, "annotations": WITHIN},
        f"{NEVER}3 pods of cpu 4 are not there in one rack (the most is 2, in r0)",
    ),
    (
        "one node of two cordoned",
        lambda: cordoned(plain(), "n0"),
        {"pods": 2, "cores": 4},
        f"no room while 1 {DOWN} (n0): it needs 2 pods of cpu 4, the other nodes have room for 1",
    ),
    (
        "all nodes cordoned",
        lambda: cordoned(plain(), "n0", "n1"),
        {"cores": 1},
        "no room while all eligible nodes are down, drained or cordoned (n0, n1)",
    ),
    (
        "the node not ready",
        lambda: not_ready(plain(1)),
        {"cores": 1},
        "no room while all eligible nodes are down, drained or cordoned (n0)",
    ),
    ("all taken", lambda: busy(plain()), {"cores": 1}, "insufficient resources: cpu x1 short (1 wanted, 0 free)"),
    (
        "room in parts",
        lambda: busy(plain(), cores=3),
        {"cores": 2},
        "insufficient resources: pod of cpu 2 x1 short (1 wanted, 0 free)",
    ),
    (
        "others use it",
        lambda: used_by_others(plain(1)),
        {"cores": 2},
        f"insufficient resources: cpu x1 short (2 wanted, 1 free){OTHERS}",
    ),
    (
        "others are in each rack",
        lambda: busy(used_by_others(racks(), "n2"), 1),
        {"pods": 2, "cores": 4, "annotations": WITHIN},
        f"insufficient resources: 2 pods of cpu 4 are not free in one rack (the most is 1, in r0){OTHERS}",
    ),
    ("behind one", lambda: busy(busy(plain()), name="second"), {"cores": 1}, "waits for the jobs before it"),
    (
        "no duration with backfill",
        lambda: reserved("1h"),
        {},
        "waits for the jobs before it; its duration is not known, so it never starts ahead of a reservation: set "
        "activeDeadlineSeconds or the annotation fluxqueue/duration",
    ),
    (
        "too long for backfill",
        lambda: reserved("1h"),
        {"annotations": {"fluxqueue/duration": "2h"}},
        "waits for the jobs before it",
    ),
]


@pytest.mark.parametrize(
    ("situation", "job", "says"), [one[1:] for one in SITUATIONS], ids=[one[0] for one in SITUATIONS]
)
def test_a_job_that_waits_says_why(situation: Situation, job: dict[str, Any], says: str) -> None:
    cluster = situation()
    cluster.job("asked", **job)
    cluster.settle(5)
    assert (cluster.state("asked"), cluster.status("asked")["reason"]) == ("Held", says)


def test_pods_of_others_that_have_ended_are_not_counted() -> None:
    cluster = used_by_others(plain())
    used_by_others(cluster, "n1", "more")
    cluster.job("asked", pods=2, cores=4)
    cluster.settle(5)
    assert cluster.status("asked")["reason"].endswith("pods outside the queue have cpu 6 of its nodes")
    cluster.delete(PODS, "theirs", "other")
    cluster.settle(5)
    assert cluster.status("asked")["reason"].endswith(OTHERS)
    cluster.delete(PODS, "more", "other")
    cluster.settle(5)
    assert cluster.state("asked") == "Running"
