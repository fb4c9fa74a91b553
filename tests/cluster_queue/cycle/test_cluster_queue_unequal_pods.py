"""Jobs whose pods ask for different things: each set has its own amounts and nodes, and places of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.names import FLUXJOBS, NODES
from headrace.cluster_queue.workloads import KINDS
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.kinds import JOBS, PODS

GPU = {"gpu": "yes"}
SETS = [
    *(("JobSet", "driver", "worker"), ("TrainJob", "initializer", "node")),
    *(("MPIJob", "launcher", "worker"), ("MiniCluster", "brokers", "gpus")),
]


def where(cluster: Cluster, name: str) -> dict[str, list[str]]:
    """The nodes of the running pods of a job, by set."""
    found: dict[str, list[str]] = {}
    for pod in cluster.pods_of(name):
        if pod["status"]["phase"] == "Running":
            found.setdefault(pod["metadata"]["labels"]["set"], []).append(pod["spec"]["nodeName"])
    return {own: sorted(nodes) for own, nodes in found.items()}


def places(status: dict[str, Any]) -> dict[str, list[str]]:
    """The nodes of a job by set, as its status has them."""
    nodes = list(Hostlist.parse(status["nodes"]))
    sets = {one["name"]: Idset.parse(one["indexes"]) for one in status["sets"]}
    # The sets of a MiniCluster have the names of its Jobs.
    return {name.removeprefix("a-"): [nodes[index] for index in indexes] for name, indexes in sets.items()}


@pytest.mark.parametrize(("kind", "first", "second"), SETS)
def test_a_small_and_a_large_set_have_what_they_ask_for_and_no_more(kind, first, second):
    cluster = Cluster(nodes=1, cores=1)
    cluster.node("g0", 4, GPU)
    # As one set of the largest, with the node rules of both, this would need eight cores with a GPU.
    cluster.sets(kind, "a", **{first: (1, 1, 1, None), second: (1, 1, 4, GPU)})
    cluster.settle(5)
    assert (cluster.state("a"), where(cluster, "a")) == ("Running", {first: ["n0"], second: ["g0"]})
    assert places(cluster.status("a")) == where(cluster, "a")
    flux = next(one for one in cluster.all(FLUXJOBS))
    spec = json.loads(flux["spec"]["jobspec"])
    assert flux["spec"]["nodes"] == 2
    assert [(one["label"].removeprefix("a-"), one["count"], one["with"][0]["count"]) for one in spec["resources"]] == [
        *((first, 1, 1000), (second, 1, 4000))
    ]
    assert list(spec["attributes"]["user"]["constraints"].values()) == [{"properties": ["gpu=yes"]}]


@pytest.mark.parametrize(("kind", "first", "second"), SETS)
def test_all_sets_start_or_none(kind, first, second):
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("before", 2)
    cluster.settle(5)
    cluster.node("g0", 4, GPU)
    cluster.sets(kind, "a", **{first: (1, 1, 2, {"gpu": "yes"}), second: (1, 1, 3, GPU)})
    cluster.settle(5)
    assert cluster.state("a") == "Held"
    assert "no node could ever serve it" in cluster.status("a")["reason"]
    cluster.delete(KINDS[kind].kind, "a")
    cluster.sets(kind, "b", **{first: (1, 1, 2, None), second: (1, 1, 3, GPU)})
    cluster.settle(5)
    assert (cluster.state("b"), where(cluster, "b")) == ("Held", {})
    assert cluster.status("b")["reason"].startswith("insufficient resources: cpu x1 short (5 wanted, 4 free")
    cluster.end_all("before")
    cluster.settle(5)
    assert where(cluster, "b") == {first: ["n0"], second: ["g0"]}


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_what_restarts_after_a_job_of_it_has_failed_keeps_its_places_until_it_fails_for_good(kind: str):
    cluster = Cluster(nodes=2, cores=2)
    cluster.sets(kind, "a", driver=(1, 1, 2, None), worker=(1, 1, 2, None))
    item = cluster.one(KINDS[kind].kind, "a")
    item["spec"]["failurePolicy"] = {"maxRestarts": 1}
    for one in item["spec"]["replicatedJobs"]:
        one["template"]["spec"]["backoffLimit"] = 0
    cluster.put(KINDS[kind].kind, item)
    cluster.settle(5)
    ran = where(cluster, "a")
    cluster.pod("next", 2)
    cluster.settle(5)
    for states in (("Running", "Held"), ("Failed", "Running")):
        cluster.end(next(one for one in cluster.pods_of("a") if one["status"]["phase"] == "Running"), "Failed")
        cluster.settle(5)
        assert (cluster.state("a"), cluster.state("next")) == states
        assert where(cluster, "a") == (ran if states[0] == "Running" else {})


def test_a_minicluster_whose_jobs_are_made_anew_keeps_its_places(monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster(nodes=2, cores=2)
    cluster.sets("MiniCluster", "a", brokers=(1, 1, 2, None), gpus=(1, 1, 2, None))
    cluster.settle(5)
    ran = where(cluster, "a")
    cluster.pod("next", 2)
    cluster.settle(5)
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "_control_minicluster", lambda item: None)
        for job in cluster.all(JOBS):
            cluster.drop(JOBS, job)
        cluster.settle(5)
        assert cluster.pods_of("a") == []
    cluster.settle(5)
    # The simulated operator acts when something changes.
    cluster.put(KINDS["MiniCluster"].kind, cluster.one(KINDS["MiniCluster"].kind, "a"))
    cluster.settle(5)
    assert (where(cluster, "a"), cluster.state("next")) == (ran, "Held")


def test_a_pod_that_is_lost_is_replaced_at_the_place_of_its_own_set_also_by_a_core_that_begins_anew():
    cluster = Cluster(nodes=1, cores=1)
    cluster.node("g0", 4, GPU)
    cluster.node("g1", 4, GPU)
    cluster.sets("MPIJob", "a", launcher=(0, 1, 1, None), worker=(0, 2, 4, GPU))
    cluster.settle(5)
    before = where(cluster, "a")
    assert before == {"launcher": ["n0"], "worker": ["g0", "g1"]}
    for pod in [one for one in cluster.pods_of("a") if one["metadata"]["name"] != "a-worker-1"]:
        cluster.end(pod, "Failed")
    cluster.restart()
    cluster.settle(5)
    assert where(cluster, "a") == before
    # Each worker is where it was by its index.
    worker = cluster.one(PODS, "a-worker-0")
    assert worker["spec"]["nodeName"] == places(cluster.status("a"))["worker"][0]


def test_completion_indexes_of_several_jobs_have_places_in_their_order():
    cluster = Cluster(nodes=1, cores=1)
    for index in range(4):
        cluster.node(f"g{index}", 2, GPU)
    cluster.sets("JobSet", "a", driver=(1, 1, 1, None), worker=(2, 2, 2, GPU))
    cluster.settle(5)
    ordered = sorted(
        (labels["jobset.sigs.k8s.io/job-index"], labels["batch.kubernetes.io/job-completion-index"], node)
        for pod in cluster.pods_of("a")
        if (labels := pod["metadata"]["labels"])["set"] == "worker" and (node := pod["spec"]["nodeName"])
    )
    assert [node for _, _, node in ordered] == places(cluster.status("a"))["worker"]


def test_a_place_of_a_set_moves_to_a_node_of_its_own_rules():
    cluster = Cluster(nodes=2, cores=4)
    cluster.node("g0", 4, GPU)
    cluster.unbindable = {"g0"}
    cluster.sets("JobSet", "a", driver=(1, 1, 1, None), worker=(1, 1, 2, GPU))
    # The core gives places, and is killed before it has pinned a pod.
    cluster.crash_at = 2
    cluster.settle(0)
    node = cluster.one(NODES, "g0", "")
    node["spec"] = {"unschedulable": True}
    cluster.put(NODES, node)
    cluster.settle(5)
    assert "worker" not in where(cluster, "a")
    cluster.node("g1", 4, GPU)
    cluster.settle(30)
    assert set(places(cluster.status("a"))["worker"]) <= {"g0", "g1"}


def test_a_group_of_unequal_pods_has_a_set_for_each_request():
    cluster = Cluster(nodes=2, cores=4)
    marks = {"labels": {"fluxqueue/group": "g"}, "annotations": {"fluxqueue/group-size": "3"}}
    for name, cores in (("a", 4), ("b", 1), ("c", 1)):
        cluster.pod(name, cores, **json.loads(json.dumps(marks)))
    cluster.settle(5)
    told = cluster.one(FLUXJOBS, "g-group")["status"]
    assert told["state"] == "Running"
    assert sorted(map(len, places(told).values())) == [1, 2]
    nodes = {name: cluster.one(PODS, name)["spec"]["nodeName"] for name in "abc"}
    assert nodes["b"] == nodes["c"] != nodes["a"]
    # A pod that comes in the place of another has that one's place.
    cluster.delete(PODS, "a")
    cluster.settle(5)
    cluster.pod("late", 4)
    cluster.restart()
    cluster.settle(5)
    assert cluster.state("late") == "Held"
    cluster.pod("a", 4, **json.loads(json.dumps(marks)))
    cluster.settle(5)
    assert cluster.one(PODS, "a")["spec"]["nodeName"] == nodes["a"]


def test_sets_within_one_zone_are_in_one():
    cluster = Cluster(nodes=0)
    for index, zone in enumerate("xyyx"):
        cluster.node(f"n{index}", 2 if zone == "x" and index else 4, {"zone": zone})
    cluster = _with_topology(cluster)
    cluster.sets("JobSet", "a", {"fluxqueue/within": "zone"}, driver=(1, 1, 3, None), worker=(1, 1, 4, None))
    cluster.settle(5)
    assert where(cluster, "a") == {"driver": ["n1"], "worker": ["n2"]} or where(cluster, "a") == {
        "driver": ["n2"],
        "worker": ["n1"],
    }


def _with_topology(before: Cluster) -> Cluster:
    cluster = Cluster(nodes=0, topology=["zone"])
    for node in before.all(NODES):
        cores = int(node["status"]["allocatable"]["cpu"])
        cluster.node(node["metadata"]["name"], cores, node["metadata"]["labels"])
    return cluster
