"""Deployments, ReplicaSets and StatefulSets in the cluster queue: growth, shrinking, replacement and rollouts."""

from __future__ import annotations

import json

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.cycle import actions
from headrace.cluster_queue.cycle.assign import Assign
from headrace.cluster_queue.names import FLUXJOBS, NODES
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.kinds import PODS


def running(cluster: Cluster, name: str) -> int:
    return sum(1 for pod in cluster.pods_of(name) if pod["status"]["phase"] == "Running")


def promised(cluster: Cluster, name: str) -> int:
    """The places that a job has, by its status."""
    told = cluster.status(name)
    return len(list(Hostlist.parse(told.get("nodes", "")))) - len(Idset.parse(told.get("freed", "")))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_each_pod_starts_as_soon_as_there_is_room_and_belongs_to_one_fluxjob(kind):
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("first", 2)
    cluster.settle()
    cluster.replicas(kind, "web", 4)
    cluster.settle(5)
    cluster.pod("last", 1)
    cluster.settle(5)
    assert [one["metadata"]["name"] for one in cluster.all(FLUXJOBS)] == sorted(
        ["first-pod", f"web-{kind.lower()}", "last-pod"]
    )
    assert (running(cluster, "web"), cluster.state("web")) == (2, "Released")
    assert cluster.status("web")["reason"].startswith("2 pods wait: ")
    cluster.end_all("first")
    cluster.settle(5)
    # What waited before the last pod has the room.
    assert (running(cluster, "web"), cluster.state("web"), cluster.state("last")) == (4, "Running", "Held")


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment", "ReplicaSet"])
def test_a_gang_starts_all_at_once(kind):
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("first", 2)
    cluster.settle()
    cluster.replicas(kind, "web", 4, **({} if kind == "StatefulSet" else {"fluxqueue/gang": "true"}))
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("web")) == (0, "Held")
    cluster.end_all("first")
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("web")) == (4, "Running")


@pytest.mark.parametrize("start", [0, 2])
def test_the_nodes_of_a_statefulset_are_in_the_order_of_its_ordinals(start: int):
    cluster = Cluster(nodes=3, cores=1)
    cluster.pod("first")
    cluster.settle()
    cluster.replicas("StatefulSet", "db", 3)
    cluster.change("StatefulSet", "db", ordinals={"start": start})
    cluster.settle(5)
    for pod in cluster.pods_of("db"):
        cluster.drop(PODS, pod)
    cluster.end_all("first")
    cluster.settle(5)
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods_of("db")}
    assert nodes == {f"db-{start + index}": f"n{index}" for index in range(3)}
    assert cluster.status("db")["nodes"] == "n[0-2]"


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_growth_waits_at_the_end_of_the_queue_and_shrinking_frees_what_went(kind):
    cluster = Cluster(nodes=2, cores=4)
    cluster.replicas(kind, "web", 4)
    cluster.settle(5)
    for name in ("full", "second"):
        cluster.pod(name, 4)
        cluster.settle(5)
    cluster.change(kind, "web", replicas=6)
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("second")) == (4, "Held")
    cluster.end_all("full")
    cluster.settle(5)
    # The pod that waited before the growth goes first.
    assert (running(cluster, "web"), cluster.state("second")) == (4, "Running")
    cluster.end_all("second")
    cluster.settle(40)
    assert (running(cluster, "web"), promised(cluster, "web")) == (6, 6)
    cluster.change(kind, "web", replicas=1)
    cluster.settle(5)
    assert (running(cluster, "web"), promised(cluster, "web")) == (1, 1)
    cluster.pod("third", 4)
    cluster.settle(5)
    assert cluster.state("third") == "Running"


def test_the_counts_of_what_has_grown_are_told_before_long():
    cluster = Cluster(nodes=2, cores=8)
    cluster.replicas("Deployment", "web", 2)
    cluster.settle(1)
    cluster.change("Deployment", "web", replicas=9)
    cluster.settle(40)
    assert cluster.status("web")["pods"] == {"wanted": 9, "placed": 9, "running": 9}


def test_growth_in_the_second_in_which_a_job_came_goes_behind_that_job():
    cluster = Cluster(nodes=1, cores=4, policy="easy")
    cluster.replicas("Deployment", "web", 2)
    cluster.settle(5)
    cluster.replicas("StatefulSet", "db", 3)
    cluster.settle()
    cluster.change("Deployment", "web", replicas=4)
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("db")) == (3, "Held")
    cluster.change("Deployment", "web", replicas=1)
    cluster.settle(5)
    assert (running(cluster, "web"), running(cluster, "db"), cluster.state("db")) == (1, 3, "Running")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_under_a_quota_all_pods_start_and_growth_does_as_far_as_the_quota_goes(kind):
    cluster = Cluster(nodes=2, cores=8, quotas=[{"namespace": "ns", "pods": 7}])
    cluster.replicas(kind, "web", 5)
    cluster.settle(5)
    assert running(cluster, "web") == 5
    cluster.change(kind, "web", replicas=9)
    cluster.settle(40)
    assert running(cluster, "web") == 7
    assert "2 pods wait: over the quota of namespace ns: pods 8 of 7" in cluster.status("web")["reason"]
    cluster.change(kind, "web", replicas=7)
    cluster.settle(40)
    assert (running(cluster, "web"), cluster.status("web").get("reason")) == (7, None)


def test_of_one_second_a_job_goes_before_the_further_pods_of_what_was_created_after_it():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("runs", 3)
    cluster.settle(5)
    cluster.pod("first", 2)
    cluster.replicas("Deployment", "web", 3)
    cluster.settle(5)
    assert (cluster.status("first")["position"], running(cluster, "web")) == (1, 0)


def test_a_deployment_that_is_recreated_keeps_its_nodes():
    cluster = Cluster(nodes=2, cores=2)
    cluster.replicas("Deployment", "web", 2, cores=2)
    cluster.settle(5)
    cluster.pod("waits", 2)
    cluster.settle(5)
    deployment = cluster.one(cluster.kinds["deployments"], "web")
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    deployment["spec"]["template"]["metadata"]["labels"] = {"job": "web", "version": "2"}
    cluster.put(cluster.kinds["deployments"], deployment)
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("waits")) == (2, "Held")
    assert {pod["metadata"]["labels"]["version"] for pod in cluster.pods_of("web")} == {"2"}
    cluster.change("Deployment", "web", replicas=1)
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("waits")) == (1, "Running")


def test_what_was_scaled_to_nothing_comes_anew():
    cluster = Cluster(nodes=1, cores=2)
    cluster.replicas("Deployment", "web", 2)
    cluster.settle(5)
    cluster.change("Deployment", "web", replicas=0)
    cluster.settle(5)
    cluster.pod("next", 2)
    cluster.settle(5)
    cluster.change("Deployment", "web", replicas=2)
    cluster.settle(5)
    assert (cluster.state("next"), cluster.state("web")) == ("Running", "Held")
    cluster.end_all("next")
    cluster.settle(5)
    assert (running(cluster, "web"), cluster.state("web")) == (2, "Running")


def test_a_replacement_has_the_place_of_the_lost_pod_or_another_where_its_node_is_gone():
    cluster = Cluster(nodes=3, cores=2)
    cluster.replicas("StatefulSet", "db", 4)
    cluster.settle(5)
    cluster.pod("waits", 2, annotations={})
    cluster.pod("behind", 2)
    cluster.settle(5)
    places = [cluster.one(PODS, f"db-{index}")["spec"]["nodeName"] for index in range(4)]
    cluster.end(cluster.one(PODS, "db-2"), "Failed")
    cluster.settle(5)
    assert [cluster.one(PODS, f"db-{index}")["spec"]["nodeName"] for index in range(4)] == places
    lost = places[2]
    cluster.end_all("waits")
    cluster.settle()
    cluster.end_all("behind")
    cluster.settle(5)
    cluster.drop(NODES, cluster.one(NODES, lost, ""))
    for pod in cluster.pods_of("db"):
        if pod["spec"]["nodeName"] == lost:
            cluster.drop(PODS, pod)
    cluster.settle(5)
    assert running(cluster, "db") == 4
    assert lost not in [cluster.one(PODS, f"db-{index}")["spec"]["nodeName"] for index in range(4)]


@pytest.mark.parametrize("cores", [2, 1, 3])
def test_a_rollout_goes_through_with_others_in_the_queue(cores):
    """The new pods may ask for as much as the old ones, for less, or for more."""
    cluster = Cluster(nodes=2, cores=6)
    cluster.replicas("Deployment", "web", 3, cores=2)
    cluster.settle(5)
    cluster.change("Deployment", "web", cores=cores, replicas=3)
    if cores == 2:
        item = cluster.one(cluster.kinds["deployments"], "web")
        item["spec"]["template"]["metadata"]["labels"] = {"job": "web", "version": "2"}
        cluster.put(cluster.kinds["deployments"], item)
    cluster.settle(60)
    pods = cluster.pods_of("web")
    asked = {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods}
    assert (running(cluster, "web"), len(pods), asked) == (3, 3, {str(cores)})
    assert cluster.state("web") == "Running"
    assert len([one for one in cluster.all(FLUXJOBS)]) == 1


def test_a_large_deployment_costs_few_writes_of_its_status_and_few_looks_at_its_pods(monkeypatch):
    looks, settle = [], Assign._settle

    def counted(self, *arguments):
        looks.append(arguments)
        settle(self, *arguments)

    monkeypatch.setattr(Assign, "_settle", counted)
    cluster = Cluster(nodes=50, cores=20)
    cluster.replicas("Deployment", "web", 5)
    cluster.settle(5)
    before = len(cluster.writes)
    cluster.change("Deployment", "web", replicas=400)
    cluster.settle(30)
    assert running(cluster, "web") == 400
    statuses = [one for one in cluster.writes[before:] if isinstance(one, actions.Publish)]
    pins = [one for one in cluster.writes[before:] if isinstance(one, actions.PatchPod)]
    assert (len(pins), len(statuses) < 12) == (395, True)
    # Each look costs time for all its pods, so they are not taken pod by pod.
    assert len(looks) < 100
    cluster.change("Deployment", "web", replicas=5)
    cluster.settle(30)
    assert (running(cluster, "web"), promised(cluster, "web")) == (5, 5)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_a_fluxjob_tells_the_number_of_pods_as_it_changes(kind):
    cluster = Cluster(nodes=2, cores=4)
    cluster.replicas(kind, "web", 2)
    cluster.settle(5)
    for replicas in (4, 1, 0, 3):
        cluster.change(kind, "web", replicas=replicas)
        cluster.settle(10)
        (told,) = cluster.all(FLUXJOBS)
        state, reason = ("Running", None) if replicas else ("Held", "it requests no pods")
        assert (told["spec"]["nodes"], told["status"]["state"], told["status"].get("reason")) == (
            replicas,
            state,
            reason,
        )
        (slot,) = json.loads(told["spec"]["jobspec"])["resources"] if replicas else ({"count": 0},)
        assert slot["count"] == replicas


def test_the_spec_of_a_group_that_was_refused_and_then_mended_is_that_of_what_runs():
    cluster = Cluster(nodes=1, cores=4)
    for name, size in (("a", "2"), ("b", "3")):
        cluster.pod(name, labels={"fluxqueue/group": "g", "job": "g"}, annotations={"fluxqueue/group-size": size})
    cluster.settle(5)
    (told,) = cluster.all(FLUXJOBS)
    assert (told["status"]["state"], told["spec"]["jobspec"]) == ("Refused", "")
    pod = cluster.one(PODS, "b")
    pod["metadata"]["annotations"]["fluxqueue/group-size"] = "2"
    cluster.put(PODS, pod)
    cluster.settle(5)
    (told,) = cluster.all(FLUXJOBS)
    assert (told["status"]["state"], told["spec"]["nodes"]) == ("Running", 2)
    assert json.loads(told["spec"]["jobspec"])["resources"][0]["count"] == 2


def nodes_of_running(cluster: Cluster, name: str) -> list[str]:
    """The nodes of the pods of a job that run and are not told to end."""
    pods = [pod for pod in cluster.pods_of(name) if "deletionTimestamp" not in pod["metadata"]]
    return sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running")


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
@pytest.mark.parametrize("cores", [2, 3])
def test_pods_of_a_node_that_does_not_answer_are_replaced_on_other_nodes(kind: str, cores: int):
    """Kubernetes tells them to end, and they do not; the pods that replace them may be larger."""
    cluster = Cluster(nodes=4, cores=3)
    if kind == "Job":
        cluster.job("web", 3, 2)
    else:
        cluster.replicas(kind, "web", 3, cores=2)
    cluster.settle(5)
    cluster.sidecar = lambda: cores - 2
    cluster.lose("n0")
    cluster.settle(40)
    assert nodes_of_running(cluster, "web") == ["n1", "n2", "n3"]
    assert cluster.status("web")["pods"]["placed"] == 3
    # What the lost pod has of its node is nobody else's until it is gone.
    cluster.node("n0", 3)
    cluster.pod("next", 3)
    cluster.settle(5)
    assert (cluster.state("web"), cluster.state("next")) == ("Running", "Held")
    cluster.bring_back("n0")
    cluster.settle(5)
    assert nodes_of_running(cluster, "web") == ["n1", "n2", "n3"]
    assert (cluster.state("next"), cluster.free("n0")) == ("Running", 0)


def test_a_pod_that_a_dead_node_kept_has_its_place_until_its_statefulset_makes_another():
    cluster = Cluster(nodes=3, cores=2)
    cluster.replicas("StatefulSet", "db", 2, cores=2)
    cluster.settle(5)
    cluster.lose("n0")
    cluster.pod("next", 2)
    cluster.settle(40)
    # No other node is kept from others for as long as nobody deletes the lost pod.
    assert (cluster.status("db")["nodes"], cluster.state("next")) == ("n[0-1]", "Running")
    cluster.end_all("next")
    cluster.drop(PODS, cluster.one(PODS, "db-0"))
    cluster.settle(5)
    assert nodes_of_running(cluster, "db") == ["n1", "n2"]


@pytest.mark.parametrize("room", ["comes", "returns"])
def test_who_replaces_a_lost_pod_waits_for_another_node_or_for_that_one(room: str):
    cluster = Cluster(nodes=2, cores=2)
    cluster.replicas("Deployment", "web", 2, cores=2)
    cluster.settle(5)
    # A drained node, the kubelet of which dies before its pods have ended.
    cluster.node("n0", 2, unschedulable=True)
    cluster.settle(5)
    cluster.lose("n0")
    cluster.settle(40)
    assert nodes_of_running(cluster, "web") == ["n1"]
    assert "no other eligible node has room" in cluster.status("web")["reason"]
    if room == "comes":
        cluster.node("n2", 2)
    else:
        cluster.node("n0", 2)
        cluster.bring_back("n0")
    cluster.settle(5)
    assert nodes_of_running(cluster, "web") == (["n1", "n2"] if room == "comes" else ["n0", "n1"])
    assert cluster.status("web").get("reason") is None


def test_a_node_that_dies_while_its_cordoned_pods_end_gives_these_up():
    cluster = Cluster(nodes=3, cores=2)
    cluster.replicas("Deployment", "web", 2, cores=2)
    cluster.settle(5)
    cluster.node("n0", 2, unschedulable=True)
    lost = next(pod for pod in cluster.pods_of("web") if pod["spec"]["nodeName"] == "n0")
    lost["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:05Z"
    cluster.put(PODS, lost)
    cluster.settle(40)
    # It holds its place until it is gone.
    assert nodes_of_running(cluster, "web") == ["n1"]
    cluster.set_ready("n0", "Unknown")
    cluster.settle(5)
    assert nodes_of_running(cluster, "web") == ["n1", "n2"]
