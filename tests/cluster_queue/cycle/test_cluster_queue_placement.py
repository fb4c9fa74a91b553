"""Queues with placement bind, whose pods the program binds itself, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.cycle import actions
from headrace.cluster_queue.cycle.admit import Admit
from headrace.cluster_queue.model.snapshot import Change
from headrace.cluster_queue.names import CLAIMS, FLUXQUEUES, NODES
from headrace.cluster_queue.workloads import KINDS
from headrace.k8s.objects.kinds import PODS


def with_spec(cluster: Cluster, name: str, **spec: Any) -> None:
    body = {"containers": [{"name": "main", "image": "none"}], **spec}
    cluster.create(PODS, {"metadata": {"name": name, "namespace": "ns"}, "spec": body, "status": {"phase": "Pending"}})


def test_the_status_comes_first_then_the_gate_goes_then_the_pod_is_bound():
    cluster = Cluster(nodes=1, placement="bind")
    with_spec(cluster, "a", schedulerName="fluence")
    cluster.settle()
    kinds = [type(one).__name__ for one in cluster.writes]
    told_nodes = [isinstance(one, actions.Publish) and "nodes" in one.status for one in cluster.writes]
    assert told_nodes.index(True) < kinds.index("PatchPod") < kinds.index("Bind")
    told = cluster.writes[kinds.index("Bind") + 1]
    assert (told.component, told.report.reason) == ("fluence", "Scheduled")
    pod = cluster.one(PODS, "a")
    assert pod["spec"]["nodeName"] == "n0"
    # kube-scheduler would not look at the pod, so there is no rule for it.
    assert "affinity" not in pod["spec"]
    assert kinds.count("Bind") == 1


def test_a_pod_is_not_bound_where_a_pod_of_others_has_taken_the_room():
    cluster = Cluster(nodes=1, cores=4, placement="bind")
    cluster.pod("a", 4)
    cluster.pod("foreign", 1, namespace="other")
    cluster.settle(60)
    assert cluster.state("a") == "Released"
    assert "nodeName" not in cluster.one(PODS, "a")["spec"]
    cluster.end(cluster.one(PODS, "foreign", "other"))
    cluster.settle(5)
    assert cluster.state("a") == "Running"


@pytest.mark.parametrize("crash_at", [None, *range(4)])
@pytest.mark.parametrize("after", [False, True])
def test_a_pod_that_waits_to_be_bound_goes_to_another_node_where_its_own_is_gone(crash_at: int | None, after: bool):
    cluster = Cluster(nodes=2, cores=4, placement="bind")
    cluster.pod("a", 4)
    cluster.pod("foreign", 1, namespace="other")
    cluster.settle(5)
    assert (cluster.state("a"), cluster.status("a")["nodes"]) == ("Released", "n0")
    cluster.crash_at, cluster.crash_after = crash_at, after
    cluster.delete(NODES, "n0", "")
    cluster.settle(5)
    pod = cluster.one(PODS, "a")
    assert (cluster.state("a"), pod["spec"]["nodeName"], cluster.status("a")["nodes"]) == ("Running", "n1", "n1")
    assert pod["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n1"


def test_a_pod_that_is_not_bound_in_time_says_why_and_has_the_first_other_node():
    cluster = Cluster(nodes=1, cores=4, placement="bind", readyTimeout="1m")
    cluster.pod("a", 4)
    cluster.pod("foreign", 1, namespace="other")
    cluster.settle(70)
    assert cluster.status("a")["reason"] == "not bound in 1m: its node n0 has no room for it"
    cluster.node("n1", 4)
    cluster.settle(5)
    assert (cluster.state("a"), cluster.status("a")["nodes"]) == ("Running", "n1")
    assert "reason" not in cluster.status("a")


@pytest.mark.parametrize("mark", [{"labels": {"fluxqueue/skip": "true"}}, {"managedBy": "example.org/another"}])
@pytest.mark.parametrize("crash_at", [None, *range(8)])
def test_pods_of_an_object_that_is_left_alone_are_bound_where_there_is_room(mark: Any, crash_at: int | None):
    cluster = Cluster(nodes=2, cores=2, placement="bind")
    cluster.node("gpus", 4, {"gpu": "yes"}, taints=[{"key": "gpu", "effect": "NoSchedule"}])
    cluster.pod("first", 1)
    cluster.settle(5)
    cluster.crash_at, cluster.crash_after = crash_at, True
    cluster.job("alone", pods=4, cores=1, **mark)
    cluster.settle(5)
    bound = [one for one in cluster.writes if isinstance(one, actions.Bind)]
    assert [one.node for one in bound] == ["n0", "n0", "n1", "n1"]
    assert cluster.status("alone") == {}
    assert cluster.restarts == 1 + (crash_at is not None)
    # What they have counts as that of others, and the last of them waits for room.
    cluster.pod("next", 2)
    cluster.settle(5)
    assert cluster.state("next") == "Held"
    cluster.end_all("first")
    cluster.settle(5)
    assert {pod["spec"]["nodeName"] for pod in cluster.pods_of("alone")} == {"n0", "n1"}
    cluster.end_all("alone")
    cluster.settle(5)
    assert cluster.state("next") == "Running"
    assert [one.node for one in cluster.queue.context.queues["default"].holds.values()] == [
        cluster.status("next")["nodes"]
    ]


@pytest.mark.parametrize("name", ["FluxionScheduler", "headrace", "fluence"])
def test_a_queue_that_pins_refuses_the_names_of_schedulers_that_bind(name):
    cluster = Cluster()
    with_spec(cluster, "a", schedulerName=name)
    cluster.settle()
    status = cluster.status("a")
    assert status["state"] == "Refused"
    assert status["reason"] == f"schedulerName of its pods: {name} is for queues with placement bind, not for pin"
    # The queue comes to bind.
    queue = cluster.one(FLUXQUEUES, "default", "")
    cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "placement": "bind"}})
    cluster.settle(5)
    assert cluster.state("a") == "Running"


def test_what_waits_when_its_queue_comes_to_bind_is_pinned():
    cluster = Cluster(nodes=1, cores=1)
    for name in "ab":
        cluster.pod(name)
        cluster.settle()
    queue = cluster.one(FLUXQUEUES, "default", "")
    cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "placement": "bind"}})
    cluster.end_all("a")
    cluster.settle(5)
    assert cluster.state("b") == "Running"
    assert "affinity" in cluster.one(PODS, "b")["spec"]


def test_devices_by_claim_are_refused_where_the_queue_binds():
    cluster = Cluster(placement="bind")
    with_spec(cluster, "a", resourceClaims=[{"name": "device"}])
    cluster.settle()
    assert cluster.state("a") == "Refused"
    assert cluster.status("a")["reason"].startswith("resourceClaims of its pods: ")


def test_volumes_are_to_be_bound_before_a_pod_is():
    cluster = Cluster(placement="bind")
    with_spec(cluster, "a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "one"}}, {"name": "t"}])
    with_spec(cluster, "b", volumes=[{"name": "data", "ephemeral": {}}])
    claim = {"metadata": {"name": "one", "namespace": "ns"}, "status": {"phase": "Pending"}}
    cluster.put(CLAIMS, claim)
    cluster.settle()
    reason = "volumes of its pods: data: the PersistentVolumeClaim one is not bound"
    assert (cluster.state("a"), cluster.state("b")) == ("Refused", "Refused")
    assert cluster.status("a")["reason"].startswith(reason)
    cluster.put(CLAIMS, {**claim, "status": {"phase": "Bound"}})
    cluster.settle(5)
    assert (cluster.state("a"), cluster.state("b")) == ("Running", "Refused")


@pytest.mark.parametrize(
    ("policy", "ordinals"), [({}, [0]), ({"podManagementPolicy": "Parallel", "ordinals": {"start": 3}}, [3, 4])]
)
def test_claims_of_a_statefulset_are_to_be_bound_before_its_pods_are(policy: dict[str, Any], ordinals: list[int]):
    """Where the pods come one after the other, the claims of the second are made when the first is ready."""
    cluster = Cluster(placement="bind")
    made = cluster.replicas("StatefulSet", "web", 2)
    made["spec"].update(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}], **policy)
    cluster.put(KINDS["StatefulSet"].kind, made)
    names = [f"data-web-{ordinal}" for ordinal in ordinals]
    for name in names:
        cluster.settle(5)
        assert cluster.state("web") == "Refused"
        why = f"spec.volumeClaimTemplates: the PersistentVolumeClaim {name} is not bound"
        assert cluster.status("web")["reason"].startswith(why)
        cluster.put(CLAIMS, {"metadata": {"name": name, "namespace": "ns"}, "status": {"phase": "Bound"}})
    cluster.settle(5)
    assert cluster.state("web") == "Running"


def test_claims_of_a_statefulset_are_kube_schedulers_where_the_queue_pins():
    cluster = Cluster()
    made = cluster.replicas("StatefulSet", "web", 2)
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    cluster.put(KINDS["StatefulSet"].kind, made)
    cluster.settle(5)
    assert cluster.state("web") == "Running"


def test_a_claim_that_is_bound_and_not_is_a_matter_of_those_that_use_it(monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster(placement="bind")
    for name, claim in (("a", "one"), ("b", "two"), ("c", "")):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        with_spec(cluster, name, volumes=[volume] if claim else [])
    cluster.settle(3)
    reviewed = []
    review = Admit._review
    monkeypatch.setattr(Admit, "_review", lambda self, uid, now: (reviewed.append(uid), review(self, uid, now)))
    claim = {"metadata": {"name": "one", "namespace": "ns", "uid": "claim"}}
    for namespace in ("ns", "other"):
        for phase in ("Bound", "Lost"):
            meta = {**claim["metadata"], "namespace": namespace}
            cluster.queue.step([Change(CLAIMS, {"metadata": meta, "status": {"phase": phase}})], cluster.now)
    assert reviewed == [cluster.one(PODS, "a")["metadata"]["uid"]] * 2
