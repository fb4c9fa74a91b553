"""What the core does about a cluster in memory, from the objects alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest
from simulated_cluster import OWN, Cluster

from headrace.cluster_queue.controller import trimmed_workload
from headrace.cluster_queue.cycle import actions
from headrace.cluster_queue.cycle.cycle import Cycle
from headrace.cluster_queue.cycle.external import made_of
from headrace.cluster_queue.model import nodes, resources
from headrace.cluster_queue.model.cluster_queue import ClusterQueue
from headrace.cluster_queue.model.request import Refusal
from headrace.cluster_queue.model.snapshot import Change, is_held
from headrace.cluster_queue.names import (
    FLUXJOBS,
    FLUXQUEUES,
    HELD,
    HOLD,
    JOBID,
    NAMESPACES,
    NODES,
    PLACE,
    PRIORITY_CLASSES,
)
from headrace.cluster_queue.workloads import KINDS
from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects.kinds import JOBS, PODS
from headrace.k8s.objects.timestamps import seconds_of
from headrace.sched.graph.request import RequestError, parse_jobspec

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"


def states(cluster: Cluster, names: Iterable[str]) -> str:
    return " ".join(cluster.state(name) for name in names)


def test_jobs_start_in_their_order_and_give_back_what_they_had():
    cluster = Cluster(nodes=2, cores=4)
    cluster.job("a", pods=2, cores=4)
    cluster.settle()
    for name, cores in (("b", 3), ("c", 4), ("d", 1)):
        cluster.pod(name, cores)
        cluster.settle()
    assert states(cluster, "abcd") == "Running Held Held Held"
    assert [cluster.status(name)["position"] for name in "bcd"] == [1, 2, 3]
    assert "cpu x3 short (3 wanted, 0 free)" in cluster.status("b")["reason"]
    assert cluster.status("c")["reason"] == "waits for the jobs before it"
    # One pod of the job ends: its node is free, the other is not.
    cluster.end(cluster.pods_of("a")[0])
    cluster.settle(5)
    # First come, first served: d would fit, and waits for c.
    assert states(cluster, "abcd") == "Running Running Held Held"
    assert cluster.status("c")["position"] == 1
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "abcd") == "Finished Running Running Running"
    assert {name: cluster.status(name)["nodes"] for name in "abcd"} == {"a": "n[0-1]", "b": "n0", "c": "n1", "d": "n0"}


def test_jobs_of_one_second_start_in_the_order_of_their_creation_whatever_writes_to_them_meanwhile():
    cluster = Cluster(nodes=1, cores=4)
    cluster.settle()
    cluster.job("first", cores=4)
    cluster.job("second", cores=4)
    # As the Job controller says that it is suspended.
    cluster.change("Job", "first", backoffLimit=1)
    cluster.settle()
    assert states(cluster, ("first", "second")) == "Running Held"


def test_a_waiting_job_has_no_pods_and_a_waiting_pod_has_the_gate():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle()
    cluster.job("b")
    cluster.pod("c")
    cluster.settle()
    assert cluster.pods_of("b") == []
    assert cluster.one(JOBS, "b")["spec"]["suspend"] is True
    assert cluster.one(PODS, "c")["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    for name in "abc":
        cluster.end_all(name)
        cluster.settle(5)
    assert states(cluster, "abc") == "Finished Finished Finished"
    assert HELD not in cluster.one(JOBS, "b")["metadata"]["annotations"]


def test_the_status_has_the_nodes_before_anything_is_started():
    cluster = Cluster()
    cluster.job("a", pods=2)
    cluster.settle()
    kinds = [type(one).__name__ for one in cluster.writes if not isinstance(one, actions.Tell)]
    # The first is that of the FluxQueue.
    assert kinds == ["Publish", "Create", "Publish", "Change", "PatchPod", "PatchPod", "Publish"]
    flux = cluster.one(FLUXJOBS, "a-job")
    assert flux["spec"]["nodes"] == 2
    assert flux["spec"]["queue"] == "default"
    assert flux["status"]["submitStatus"] == "statusSubmit"
    assert flux["metadata"]["labels"]["fluxqueue/jobid"] == flux["status"]["jobid"]
    pod = cluster.pods_of("a")[0]
    assert pod["metadata"]["labels"]["fluxqueue/jobid"] == flux["status"]["jobid"]
    assert pod["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == pod["spec"]["nodeName"]


def test_a_small_job_costs_few_writes():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle()
    before = len(cluster.writes)
    cluster.job("b")
    cluster.settle(120)
    cluster.end_all("a")
    cluster.settle(5)
    cluster.end_all("b")
    cluster.settle(5)
    about = [
        one
        for one in cluster.writes[before:]
        if not (isinstance(one, actions.Publish) and one.item["metadata"]["name"] != "b-job")
    ]
    assert len(about) <= 9, [type(one).__name__ for one in about]


@pytest.mark.parametrize("kind", [PODS, JOBS])
def test_who_waits_or_runs_may_be_deleted(kind):
    cluster = Cluster(nodes=1, cores=2)
    make = cluster.pod if kind is PODS else cluster.job
    make("a", cores=2)
    cluster.settle()
    make("b", cores=2)
    make("c", cores=2)
    cluster.settle()
    cluster.delete(kind, "b")
    cluster.settle(5)
    assert states(cluster, "abc") == "Running  Held"
    cluster.delete(kind, "a")
    cluster.settle(5)
    assert states(cluster, "abc") == "  Running"
    assert [one["metadata"]["name"] for one in cluster.all(FLUXJOBS)] == [f"c-{kind.kind.lower()}"]


def test_what_pods_of_others_have_is_not_given_to_jobs():
    cluster = Cluster(nodes=2, cores=4)
    cluster.pod("foreign", 3, namespace="other")
    cluster.settle()
    cluster.job("a", pods=2, cores=2)
    cluster.settle()
    assert cluster.status("a")["nodes"] == "n[1,1]"
    cluster.pod("b", 2)
    cluster.settle()
    assert cluster.state("b") == "Held"
    cluster.end(cluster.one(PODS, "foreign", "other"))
    cluster.settle()
    assert cluster.status("b")["nodes"] == "n0"


def lasting(cluster: Cluster, name: str, cores: int, node: str) -> dict[str, Any]:
    """A pod of another namespace that runs until somebody deletes it, as those of a DaemonSet do."""
    pod = cluster.pod(name, cores, namespace="other")
    pod["spec"].update(restartPolicy="Always", nodeSelector={"kubernetes.io/hostname": node}, nodeName=node)
    pod["status"] = {"phase": "Running"}
    return cluster.put(PODS, pod)


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_nobody_waits_for_pods_of_others_that_never_end(policy: str):
    cluster = Cluster(nodes=2, cores=4, policy=policy)
    daemons = [lasting(cluster, f"daemon-{index}", 1, f"n{index}") for index in range(2)]
    cluster.settle()
    cluster.job("all", pods=2, cores=4)
    cluster.settle(5)
    cluster.pod("a", 3)
    cluster.settle(5)
    assert states(cluster, ["all", "a"]) == "Held Running"
    assert "no node could ever serve it as nodes are now" in cluster.status("all")["reason"]
    # A job that waits already when such a pod comes is in nobody's way either.
    cluster.job("wide", pods=2, cores=3)
    cluster.settle(5)
    assert "insufficient resources" in cluster.status("wide")["reason"]
    daemons.append(lasting(cluster, "another", 1, "n1"))
    cluster.settle(5)
    cluster.pod("b", 2)
    cluster.settle(5)
    assert states(cluster, ["wide", "b"]) == "Held Running"
    for pod in daemons:
        cluster.drop(PODS, pod)
    for name in "ab":
        cluster.end_all(name)
    cluster.settle(5)
    assert states(cluster, ["all", "wide"]) == "Running Held"
    cluster.restart()
    cluster.settle(5)
    assert states(cluster, ["all", "wide"]) == "Running Held"


def test_a_pod_that_is_told_to_end_holds_what_it_has_until_it_is_gone():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle()
    cluster.pod("b")
    cluster.settle()
    pod = cluster.one(PODS, "a")
    pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    cluster.put(PODS, pod)
    cluster.settle(5)
    assert cluster.state("b") == "Held"
    cluster.delete(PODS, "a")
    cluster.settle(5)
    assert cluster.state("b") == "Running"


def test_pods_of_a_deleted_job_hold_what_they_have_until_they_are_gone():
    cluster = Cluster(nodes=1, cores=1)
    cluster.job("a")
    cluster.settle()
    cluster.pod("b")
    cluster.settle()
    # The garbage collector is slow.
    pods = cluster.pods_of("a")
    cluster.delete(JOBS, "a")
    steps = cluster.queue.step(cluster._changes, cluster.now)
    cluster._changes = []
    assert not any(isinstance(one, actions.Publish) for several in steps.writes.values() for one in several)
    for pod in pods:
        cluster.drop(PODS, pod)
    cluster.settle(5)
    assert cluster.state("b") == "Running"


def test_pods_take_over_the_places_of_those_that_end():
    cluster = Cluster(nodes=2, cores=2)
    cluster.job("a", pods=2, completions=5)
    cluster.pod("b", 2)
    cluster.settle()
    assert cluster.status("a")["nodes"] == "n[0,0]"
    cluster.pod("c", 1)
    cluster.settle()
    assert states(cluster, "abc") == "Running Running Held"
    for _ in range(4):
        cluster.end(next(one for one in cluster.pods_of("a") if one["status"]["phase"] == "Running"))
        cluster.settle(5)
    # One completion is left: the place of the other pod has gone to who waited.
    assert states(cluster, "abc") == "Running Running Running"
    assert all(pod["spec"].get("nodeName") == "n0" for pod in cluster.pods_of("a"))
    cluster.end_all("a")
    cluster.settle(5)
    assert cluster.state("a") == "Finished"


def test_a_job_that_its_user_suspends_waits_anew_in_its_old_place():
    cluster = Cluster(nodes=1, cores=2)
    cluster.job("a", cores=2)
    cluster.settle()
    cluster.pod("b", 2)
    cluster.settle(10)
    job = cluster.one(JOBS, "a")
    job["spec"]["suspend"] = True
    cluster.put(JOBS, job)
    cluster.settle(5)
    # It came first: it is released again, and b still waits.
    assert states(cluster, "ab") == "Running Held"
    assert cluster.log.count("a-job Held") == 1
    assert cluster.one(JOBS, "a")["spec"]["suspend"] is False


@pytest.mark.parametrize("kind", [JOBS, PODS])
def test_a_job_on_hold_waits_outside_the_order_and_is_back_in_its_place_after(kind):
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("a", 2)
    cluster.settle(2)
    (cluster.job if kind is JOBS else cluster.pod)("b", cores=2)
    cluster.settle(2)
    cluster.pod("c", 2)
    cluster.settle(2)

    def annotate(name, value):
        item = cluster.one(kind, name)
        item["metadata"].setdefault("annotations", {})[HOLD] = value
        cluster.put(kind, item)
        cluster.settle(5)

    annotate("b", "true")
    assert cluster.status("b")["reason"] == "its user put it on hold (annotation fluxqueue/hold)"
    assert "position" not in cluster.status("b") and "estimatedStart" not in cluster.status("b")
    # The next moves up, and is not held up.
    cluster.end_all("a")
    cluster.settle(35)
    assert states(cluster, "bc") == "Held Running"
    cluster.pod("d", 2)
    cluster.settle(2)
    annotate("b", "false")
    cluster.settle(35)
    assert [cluster.status(name)["position"] for name in "bd"] == [1, 2]
    cluster.end_all("c")
    cluster.settle(5)
    assert states(cluster, "bd") == "Running Held"
    # What runs is not touched by a hold.
    annotate("b", "true")
    assert states(cluster, "bd") == "Running Held"


def test_who_creates_a_job_suspended_unsuspends_it():
    cluster = Cluster()
    cluster.job("a", suspend=True)
    cluster.settle()
    assert cluster.status("a") == {}
    job = cluster.one(JOBS, "a")
    job["spec"]["suspend"] = False
    cluster.put(JOBS, job)
    cluster.settle()
    assert cluster.state("a") == "Running"


def test_who_unsuspends_a_held_job_gets_gated_pods():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle()
    cluster.job("b")
    cluster.settle()
    job = cluster.one(JOBS, "b")
    job["spec"]["suspend"] = False
    cluster.put(JOBS, job)
    cluster.settle()
    (pod,) = cluster.pods_of("b")
    assert pod["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    assert cluster.state("b") == "Held"
    cluster.end_all("a")
    cluster.settle()
    assert cluster.state("b") == "Running"


@pytest.mark.parametrize(
    "template", [{"spec": {"nodeName": "n0"}}, {"metadata": {"labels": {"fluxqueue/skip": "true"}}}]
)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_runs_before_its_turn_is_not_told_to_be_held(template: Object, restarts: bool):
    """Admission refuses such a template now: the Job is older, or somebody has taken the webhook away."""
    cluster = Cluster(nodes=2, cores=4, quotas=[{"namespace": "ns", "cpu": 4}])
    cluster.pod("first", 4)
    cluster.settle()
    cluster.job("early", pods=2)
    cluster.settle()
    assert states(cluster, ["first", "early"]) == "Running Held"
    job = cluster.one(JOBS, "early")
    job["spec"]["suspend"] = False
    for part, more in template.items():
        job["spec"]["template"].setdefault(part, {}).update(more)
    cluster.put(JOBS, job)
    cluster.settle()
    if restarts:
        cluster.restart()
        cluster.settle()
    told = cluster.status("early")
    assert told["state"] == "Running"
    assert told["reason"].startswith("it runs outside the queue: its pods have no scheduling gate")
    # What its pods have counts against the quota, and on their nodes.
    cluster.pod("later")
    cluster.settle()
    assert "cpu 7 of 4 (3 over, 6 taken)" in cluster.status("later")["reason"]
    for pod in cluster.pods_of("early"):
        cluster.end(pod)
    cluster.settle()
    assert states(cluster, ["first", "early"]) == "Running Finished"


@pytest.mark.parametrize("has_marks", [False, True])
@pytest.mark.parametrize("size", ["2", "3"])
def test_a_group_with_a_pod_that_names_its_node_is_never_told_to_wait(has_marks: bool, size: str):
    """Its user may write the queue's own marks into the pod, and a size with which the group is refused."""
    cluster = Cluster(nodes=1, cores=4, quotas=[{"namespace": "ns", "cpu": 4}])
    cluster.pod("first", 3)
    member(cluster, "a", "2")
    jobid = cluster.one(FLUXJOBS, "g-group")["status"]["jobid"]
    meta: Object = {"labels": {"fluxqueue/group": "g"}, "annotations": {"fluxqueue/group-size": size}}
    if has_marks:
        meta["labels"][JOBID], meta["annotations"][PLACE] = jobid, "n0"
    named = cluster.pod("b", 1, **meta)
    named["spec"]["nodeName"], named["status"]["phase"] = "n0", "Running"
    cluster.put(PODS, {**named, "spec": {**named["spec"], "schedulingGates": []}})
    for _ in range(2):
        cluster.settle()
        assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Running"
        cluster.restart()
    cluster.settle()
    # What the pod has counts against the quota.
    cluster.pod("later", 1)
    cluster.settle()
    assert "4 taken" in cluster.status("later")["reason"]
    # Without it, the group waits.
    cluster.delete(PODS, "b")
    cluster.settle()
    assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Held"


def test_a_job_some_of_whose_pods_run_before_their_turn_waits_with_the_others():
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("a", 2)
    cluster.pod("b", 2)
    cluster.settle()
    cluster.job("early", pods=2)
    cluster.settle()
    job = cluster.one(JOBS, "early")
    job["spec"]["suspend"] = False
    cluster.put(JOBS, job)
    cluster.settle()
    pod, _ = cluster.pods_of("early")
    pod["spec"].update(schedulingGates=[], nodeName="n0")
    cluster.put(PODS, pod)
    cluster.settle(5)
    told = cluster.status("early")
    assert (told["state"], told["waits"][0]["pods"]) == ("Running", 1)
    assert told["reason"].startswith("1 pod waits: ")
    cluster.delete(PODS, pod["metadata"]["name"])
    cluster.settle()
    assert cluster.state("early") == "Held"
    cluster.end_all("b")
    cluster.end_all("a")
    cluster.settle()
    assert cluster.state("early") == "Running" and not is_held(cluster.one(JOBS, "early"))


@pytest.mark.parametrize("label", [{"fluxqueue/skip": "true"}, {"kueue.x-k8s.io/queue-name": "q"}])
def test_objects_that_are_left_alone_and_their_pods_do_not_wait(label):
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("full")
    cluster.settle()
    cluster.pod("a", 0, labels=label)
    item = cluster.job("b", cores=0)
    cluster.drop(JOBS, item)
    fresh = {"metadata": {"name": "b", "namespace": "ns", "labels": label}, "status": {}}
    spec = {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
    cluster.create(JOBS, {**fresh, "spec": spec})
    cluster.settle()
    assert [pod["spec"].get("nodeName") for name in "ab" for pod in cluster.pods_of(name)] == ["n0", "n0"]
    assert states(cluster, "ab") == " "


def test_a_request_that_no_node_could_meet_holds_up_nobody_until_one_can():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("a", 8)
    cluster.pod("b", 1)
    cluster.settle()
    assert states(cluster, "ab") == "Held Running"
    assert "no node could ever serve it" in cluster.status("a")["reason"]
    before = len(cluster.writes)
    cluster.settle(600)
    assert cluster.writes[before:] == []
    cluster.node("large", 8)
    cluster.settle(5)
    assert cluster.status("a")["nodes"] == "large"


def test_nodes_are_cordoned_go_and_come_back():
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("a", 2)
    cluster.settle()
    cluster.node("n1", 2, unschedulable=True)
    cluster.pod("b", 2)
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Held"
    cluster.node("n1", 2)
    cluster.settle(5)
    assert cluster.status("b")["nodes"] == "n1"
    cluster.delete(NODES, "n0", "")
    cluster.delete(PODS, "a")
    cluster.pod("c", 2)
    cluster.settle(5)
    assert cluster.state("c") == "Held"
    cluster.node("n0", 2)
    cluster.settle(5)
    assert cluster.status("c")["nodes"] == "n0"


def test_a_job_whose_queue_is_deleted_has_no_place_in_an_order():
    cluster = Cluster(nodes=1, cores=4, policy="easy")
    for name in "ab":
        cluster.pod(name, 4, annotations={"fluxqueue/duration": "1m"})
        cluster.settle(3)
    assert cluster.status("b")["position"] == 1
    cluster.delete(FLUXQUEUES, "default", "")
    cluster.settle(60)
    assert cluster.status("b")["reason"] == "there is no FluxQueue default"
    assert not {"position", "estimatedStart"} & cluster.status("b").keys()


def test_an_unknown_queue_holds_its_jobs_until_it_is_there():
    cluster = Cluster(nodes=1)
    cluster.delete(FLUXQUEUES, "default", "")
    cluster.pod("a")
    cluster.settle()
    assert cluster.status("a")["reason"] == "there is no FluxQueue default"
    cluster.put(FLUXQUEUES, {"metadata": {"name": "default"}, "spec": {"policy": "easy"}})
    cluster.settle()
    assert cluster.state("a") == "Running"


def test_the_later_of_two_queues_that_share_a_node_is_invalid():
    cluster = Cluster(nodes=2)
    cluster.now += 60
    cluster.put(FLUXQUEUES, {"metadata": {"name": "second"}, "spec": {}})
    cluster.settle()
    assert cluster.one(FLUXQUEUES, "default", "")["status"] == {"state": "Active", "nodes": 2}
    status = cluster.one(FLUXQUEUES, "second", "")["status"]
    assert status == {"state": "Invalid", "reason": "it shares node n0 with the FluxQueue default", "nodes": 0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "invalid duration 'soon'"),
        ("0", "must be more than zero"),
        ("2h", "is longer than the queue's maxDuration"),
    ],
)
def test_a_wrong_duration_is_refused_by_name_until_it_is_mended(text, why):
    cluster = Cluster(nodes=1, maxDuration="1h")
    cluster.pod("a", annotations={"fluxqueue/duration": text})
    cluster.settle()
    assert cluster.state("a") == "Refused"
    assert why in cluster.status("a")["reason"]
    pod = cluster.one(PODS, "a")
    pod["metadata"]["annotations"] = {"fluxqueue/duration": "30m"}
    cluster.put(PODS, pod)
    cluster.settle()
    assert cluster.state("a") == "Running"
    assert "reason" not in cluster.status("a")


def test_a_deadline_of_zero_seconds_is_no_duration():
    cluster = Cluster(nodes=1, defaultDuration="1h")
    cluster.job("a", activeDeadlineSeconds=0)
    cluster.settle()
    assert cluster.state("a") == "Refused"
    assert cluster.status("a")["reason"].startswith("activeDeadlineSeconds: must be more than zero, not 0")


def test_a_duration_of_less_than_a_second_is_a_second():
    cluster = Cluster()
    cluster.job("a", annotations={"fluxqueue/duration": "0.5s"})
    cluster.settle(5)
    assert cluster.one(FLUXJOBS, "a-job")["spec"]["duration"] == 1


def test_the_place_of_an_index_that_failed_for_good_is_given_back():
    cluster = Cluster(nodes=2, cores=1)
    cluster.job("a", pods=2, backoffLimitPerIndex=1)
    cluster.settle(5)
    cluster.job("b")
    cluster.settle(5)
    for state in ("Held", "Running"):
        cluster.end(next(one for one in cluster.pods_of("a") if one["metadata"]["labels"][INDEX] == "0"
                         and one["status"]["phase"] == "Running"), "Failed")  # fmt: skip
        cluster.settle(5)
        assert states(cluster, "ab") == f"Running {state}"


def test_under_easy_a_wide_job_has_a_reserved_start_which_small_ones_do_not_delay():
    cluster = Cluster(nodes=2, cores=2, policy="easy")
    for name in "ab":
        cluster.pod(name, 2, annotations={"fluxqueue/duration": "100"})
    cluster.settle()
    cluster.delete(PODS, "b")
    cluster.settle()
    cluster.job("wide", pods=2, cores=2, annotations={"fluxqueue/duration": "1h"})
    cluster.pod("long", 2, annotations={"fluxqueue/duration": "101"})
    cluster.pod("short", 2, annotations={"fluxqueue/duration": "50"})
    cluster.pod("unknown", 2)
    cluster.settle(5)
    assert cluster.state("short") == "Running"
    assert [cluster.state(name) for name in ("wide", "long", "unknown")] == ["Held", "Held", "Held"]
    assert cluster.status("wide")["estimatedStart"] == "2027-01-15T08:01:43Z"
    assert "its duration is not known" in cluster.status("unknown")["reason"]
    for name in ("short", "a"):
        cluster.end_all(name)
        cluster.settle(5)
    assert cluster.state("wide") == "Running"


def test_a_fluxjob_that_is_deleted_by_hand_comes_back_in_its_place():
    cluster = Cluster(nodes=1, cores=1)
    for name in "abc":
        cluster.pod(name)
        cluster.settle()
    ids = {name: cluster.status(name)["jobid"] for name in "abc"}
    for name in "ab":
        cluster.delete(FLUXJOBS, f"{name}-pod")
        cluster.settle()
    assert states(cluster, "abc") == "Running Held Held"
    assert {name: cluster.status(name)["jobid"] for name in "abc"} == ids
    # Even where the core, too, begins anew.
    cluster.delete(FLUXJOBS, "a-pod")
    cluster.restart()
    cluster.settle()
    assert cluster.status("a")["jobid"] == ids["a"]
    assert cluster.status("a")["nodes"] == "n0"
    assert states(cluster, "abc") == "Running Held Held"


def test_a_priority_class_goes_before_the_order_of_arrival():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle()
    cluster.pod("b")
    urgent = cluster.pod("c")
    urgent["spec"]["priority"] = 100
    cluster.put(PODS, urgent)
    cluster.settle(5)
    assert [cluster.status(name)["position"] for name in "bc"] == [2, 1]
    cluster.end_all("a")
    cluster.settle()
    assert states(cluster, "bc") == "Held Running"


def member(cluster: Cluster, name: str, size: str = "3", cores: int = 2, **annotations: str) -> None:
    labels = {"fluxqueue/group": "g"}
    cluster.pod(name, cores, labels=labels, annotations={"fluxqueue/group-size": size, **annotations})
    cluster.settle()


def test_a_group_of_pods_starts_when_all_are_there_and_all_fit():
    cluster = Cluster(nodes=2, cores=4)
    for name in "ab":
        member(cluster, name)
    assert cluster.one(FLUXJOBS, "g-group")["status"]["reason"] == "the group has 2 of its 3 pods"
    # It holds up nobody meanwhile.
    cluster.pod("other", 3)
    cluster.settle()
    assert cluster.state("other") == "Running"
    member(cluster, "c")
    cluster.settle(5)
    status = cluster.one(FLUXJOBS, "g-group")["status"]
    assert status["state"] == "Held"
    assert all(pod["spec"]["schedulingGates"] for name in "abc" for pod in cluster.pods_of(name))
    cluster.end_all("other")
    cluster.settle(5)
    flux = cluster.one(FLUXJOBS, "g-group")
    assert (flux["status"]["state"], flux["spec"]["type"], flux["spec"]["nodes"]) == ("Running", 9, 3)
    for name in "abc":
        cluster.end_all(name)
        cluster.settle()
    assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Finished"
    for name in "abc":
        cluster.delete(PODS, name)
        cluster.settle()
    assert cluster.all(FLUXJOBS)[0]["metadata"]["name"] == "other-pod"
    assert len(cluster.all(FLUXJOBS)) == 1


def test_a_group_named_as_fluence_names_it_survives_a_crash_at_any_write():
    outcomes = []
    for crash_at in (None, *range(8)):
        cluster = Cluster(nodes=2, cores=2)
        cluster.crash_at = crash_at
        for name in "ab":
            labels = {"scheduling.x-k8s.io/pod-group": "g", "fluence.group-size": "2"}
            cluster.pod(name, 2, labels=labels)
        cluster.settle(5)
        nodes = {name: pod["spec"].get("nodeName") for name in "ab" for pod in cluster.pods_of(name)}
        outcomes.append((cluster.one(FLUXJOBS, "g-group")["status"]["state"], nodes))
    assert outcomes == [("Running", {"a": "n0", "b": "n1"})] * 9


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        (("2", "3"), "must be the same in all pods of a group: b has 3, a has 2"),
        (("0", "0"), "must be the number of pods in the group, at least 1, not '0'"),
        (("", ""), "must be the number of pods in the group"),
    ],
)
def test_a_group_whose_size_is_wrong_is_refused(sizes, why):
    cluster = Cluster()
    for name, size in zip("ab", sizes, strict=True):
        member(cluster, name, size)
    status = cluster.one(FLUXJOBS, "g-group")["status"]
    assert status["state"] == "Refused"
    assert status["reason"].startswith("fluxqueue/group-size: ")
    if sizes == ("2", "3"):
        assert "a has 2" in status["reason"]
        assert "b has 3" in status["reason"]
    else:
        assert why in status["reason"]


def test_a_place_on_a_node_that_is_cordoned_before_its_pod_comes_moves_to_another_node():
    cluster = Cluster(nodes=2, cores=2)
    cluster.job("a", pods=1, cores=2, completions=2)
    cluster.settle()
    (pod,) = cluster.pods_of("a")
    cluster.node("n0", 2, unschedulable=True)
    cluster.settle()
    # What runs stays where it is.
    assert (cluster.status("a")["nodes"], pod["spec"]["nodeName"]) == ("n0", "n0")
    cluster.end(pod)
    cluster.settle()
    assert cluster.status("a")["nodes"] == "n1"
    assert [one["spec"]["nodeName"] for one in cluster.pods_of("a")] == ["n0", "n1"]


def test_a_place_without_another_node_waits_for_one():
    cluster = Cluster(nodes=1, cores=2)
    cluster.job("a", pods=1, cores=2, completions=3)
    cluster.settle()
    for comes in ("uncordoned", "another"):
        cluster.node("n0", 2, unschedulable=True)
        cluster.end_all("a")
        cluster.settle()
        assert [bool(one["spec"].get("schedulingGates")) for one in cluster.pods_of("a")][-1]
        why = "the node of a slot no longer accepts its pod, and no other eligible node has room"
        assert cluster.status("a")["reason"] == why
        cluster.node("n0" if comes == "uncordoned" else "n1", 2)
        cluster.settle(5)
        assert "reason" not in cluster.status("a")
        assert cluster.pods_of("a")[-1]["spec"]["nodeName"] == ("n0" if comes == "uncordoned" else "n1")


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
@pytest.mark.parametrize("annotations", [{}, {"fluxqueue/duration": "1h"}])
def test_a_job_that_has_lost_a_node_gets_another_before_who_waits_for_its_end(policy: str, annotations: dict[str, str]):
    cluster = Cluster(nodes=3, cores=2, policy=policy)
    cluster.job("runs", pods=2, cores=2, annotations=annotations)
    cluster.job("other", pods=1, cores=2, annotations=annotations)
    cluster.settle(5)
    cluster.job("waits", pods=2, cores=2, annotations=annotations)
    cluster.settle(5)
    for pod in cluster.pods_of("runs"):
        if pod["spec"]["nodeName"] == "n1":
            cluster.drop(PODS, pod)
    cluster.delete(NODES, "n1", "")
    cluster.settle(60)
    cluster.end_all("other")
    cluster.settle(5)
    assert nodes_of(cluster, "runs") == ["n0", "n2"]
    assert states_of(cluster, "runs", "waits") == ["Running", "Held"]
    cluster.end_all("runs")
    cluster.settle(5)
    assert cluster.state("waits") == "Running"


@pytest.mark.parametrize("why", ["maxDuration", "annotation", "topology"])
def test_a_job_that_its_queue_would_refuse_by_now_keeps_what_it_has_over_a_restart(why: str):
    cluster = Cluster(nodes=0, topology=["zone"])
    for index in range(3):
        cluster.node(f"n{index}", 2, labels={"zone": "a"})
    asked = {"fluxqueue/duration": "2h", "fluxqueue/within": "zone"}
    cluster.job("a", pods=2, cores=2, annotations=asked)
    cluster.settle(5)
    if why == "annotation":
        job = cluster.one(JOBS, "a")
        job["metadata"]["annotations"].update({"fluxqueue/duration": "2 hours"})
        cluster.put(JOBS, job)
    else:
        queue = cluster.one(FLUXQUEUES, "default", "")
        queue["spec"].update({"maxDuration": "1h"} if why == "maxDuration" else {"topology": []})
        cluster.put(FLUXQUEUES, queue)
    cluster.settle(5)
    cluster.restart()
    cluster.settle(5)
    assert cluster.status("a")["reason"].startswith("metadata.annotations[fluxqueue/")
    # It ends when it was to.
    (job,) = cluster.queue.context.entries.values()
    assert (cluster.one(FLUXJOBS, "a-job")["spec"]["duration"], job.planned_end) == (7200, 1_800_007_203)
    for lost, expected in (("one", ["n0", "n1"]), ("node", ["n0", "n2"])):
        pod = cluster.pods_of("a")[-1]
        if lost == "node":
            cluster.delete(NODES, "n1", "")
        cluster.end(pod, "Failed")
        cluster.settle(5)
        assert (cluster.state("a"), nodes_of(cluster, "a")) == ("Running", expected)
        assert sum(one["status"]["phase"] == "Running" for one in cluster.pods_of("a")) == 2


def test_jobs_without_a_reservation_have_the_start_that_sums_of_resources_let_expect():
    cluster = Cluster(nodes=1, cores=1)
    for name in "abcd":
        cluster.pod(name, annotations={"fluxqueue/duration": "10m"} if name != "c" else {})
        cluster.settle()
    cluster.settle(40)
    assert [cluster.status(name).get("estimatedStart") for name in "bcd"] == [
        "2027-01-15T08:10:03Z",
        "2027-01-15T08:20:06Z",
        # Nobody knows how long c runs.
        None,
    ]
    conditions = {one["type"]: one["status"] for one in cluster.status("b")["conditions"]}
    assert conditions == {"Quota": "True", "Reserved": "False", "Released": "False"}


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_estimates_of_those_behind_a_job_that_runs_too_long_are_made_anew(policy: str):
    cluster = Cluster(nodes=1, cores=1, policy=policy)
    for name in "abc":
        cluster.pod(name, annotations={"fluxqueue/duration": "60s"})
        cluster.settle()
    cluster.settle(3600)
    estimates = [seconds_of(cluster.status(name)["estimatedStart"]) for name in "bc"]
    # A status is written each half minute at most.
    assert [estimates[0] > cluster.now - 40, estimates[1] - estimates[0]] == [True, 63]
    assert len(cluster.writes) < 500
    written = len(cluster.writes)
    cluster.delete(FLUXQUEUES, "default", "")
    cluster.settle(3600)
    assert len(cluster.writes) < written + 10


def test_what_is_held_waits_its_turn_though_its_namespace_has_lost_the_label():
    cluster = Cluster(nodes=1, cores=1)
    for name in "ab":
        cluster.pod(name)
        cluster.settle()
    cluster.put(NAMESPACES, {"metadata": {"name": "ns"}})
    cluster.restart()
    cluster.pod("later", 0)
    cluster.settle()
    assert states(cluster, "ab") == "Running Held"
    assert cluster.status("later") == {}
    assert cluster.pods_of("later")[0]["spec"]["nodeName"] == "n0"
    cluster.end_all("a")
    cluster.settle()
    assert cluster.state("b") == "Running"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_released_after_its_namespace_has_lost_the_label_has_what_kube_scheduler_gives_it(restarts: bool):
    cluster = Cluster(nodes=2, cores=1, matchPolicy="hinode")
    cluster.job("first", pods=2)
    cluster.settle(5)
    cluster.job("a")
    cluster.settle(5)
    cluster.put(NAMESPACES, {"metadata": {"name": "ns"}})
    cluster.settle(5)
    cluster.end_all("first")
    cluster.settle(5)
    if restarts:
        cluster.restart()
        cluster.settle(5)
    # The queue has planned it for the other node.
    assert (cluster.state("a"), cluster.pods_of("a")[0]["spec"]["nodeName"]) == ("Running", "n0")
    cluster.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {"fluxqueue/queue": "default"}}})
    cluster.pod("b")
    cluster.settle(5)
    assert (cluster.state("b"), cluster.status("b")["nodes"]) == ("Running", "n1")


def test_the_place_of_a_pod_without_the_gate_is_kept_until_kube_scheduler_has_bound_it(
    monkeypatch: pytest.MonkeyPatch,
):
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("first")
    cluster.settle(5)
    cluster.job("a")
    cluster.settle(5)
    cluster.put(NAMESPACES, {"metadata": {"name": "ns"}})
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "_bind", lambda pod: None)
        cluster.end_all("first")
        cluster.settle(5)
        cluster.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {"fluxqueue/queue": "default"}}})
        cluster.pod("b")
        cluster.settle(5)
    assert states(cluster, "ab") == "Released Held"
    cluster.node("n1", 0)
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Held"
    assert cluster.status("a")["pods"] == {"wanted": 1, "placed": 1, "running": 1}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_ran_before_its_namespace_had_a_queue_asks_for_what_is_lost_alone(restarts: bool):
    cluster = Cluster(nodes=3, cores=1)
    cluster.put(NAMESPACES, {"metadata": {"name": "ns"}})
    cluster.job("a", pods=3)
    cluster.settle(5)
    cluster.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {"fluxqueue/queue": "default"}}})
    cluster.settle(5)
    cluster.end(cluster.pods_of("a")[1], "Failed")
    cluster.settle(5)
    if restarts:
        cluster.restart()
    cluster.pod("b")
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Held"
    assert sum(1 for one in cluster.pods_of("a") if one["status"]["phase"] == "Running") == 3
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "ab") == "Finished Running"


def test_a_queue_may_change_its_policy_while_jobs_wait_and_run():
    cluster = Cluster(nodes=2, cores=1)
    for name, cores in (("a", 1), ("wide", 2), ("c", 1)):
        if name == "wide":
            cluster.job(name, pods=2, cores=1)
        else:
            cluster.pod(name, cores, annotations={"fluxqueue/duration": "1m"})
        cluster.settle()
    assert [cluster.state(name) for name in ("a", "wide", "c")] == ["Running", "Held", "Held"]
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"] = {"policy": "easy"}
    cluster.put(FLUXQUEUES, queue)
    cluster.settle(5)
    # c ends before a does, so it does not delay the wide job.
    assert [cluster.state(name) for name in ("a", "wide", "c")] == ["Running", "Held", "Running"]
    for name in "ac":
        cluster.end_all(name)
        cluster.settle(5)
    assert cluster.state("wide") == "Running"


def with_spec(cluster: Cluster, name: str, **spec: Any) -> None:
    """A pod of one core with something more in its spec."""
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "namespace": "ns", "labels": {"app": "a"}}
    cluster.create(PODS, {"metadata": meta, "spec": {"containers": [main], **spec}, "status": {"phase": "Pending"}})


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    return list(Hostlist.parse(cluster.status(name).get("nodes", "")))


def test_a_tainted_node_is_for_pods_that_tolerate_it():
    cluster = Cluster(nodes=1)
    cluster.job("wide", pods=1, cores=4)
    cluster.pod("waits")
    cluster.settle(1)
    cluster.node("n1", taints=[{"key": "gpu", "value": "x", "effect": "NoSchedule"}])
    with_spec(cluster, "tolerates", tolerations=[{"key": "gpu", "operator": "Exists"}])
    cluster.settle(5)
    assert (cluster.state("waits"), nodes_of(cluster, "tolerates")) == ("Held", [])
    cluster.end_all("wide")
    cluster.settle(5)
    assert nodes_of(cluster, "waits") == ["n0"]
    # Either would do, and the policy prefers the first; the second is all that is left with four cores.
    with_spec(cluster, "only", tolerations=[{"key": "gpu", "value": "x"}], nodeSelector={"never": "there"})
    cluster.settle(5)
    assert "no node has property never=there" in cluster.status("only")["reason"]
    labelled = cluster.one(NODES, "n1", "")
    labelled["metadata"]["labels"] = {"never": "there"}
    cluster.put(NODES, labelled)
    cluster.settle(5)
    assert nodes_of(cluster, "only") == ["n1"]


def test_a_node_takes_more_pods_when_it_has_more_for_them():
    cluster = Cluster(nodes=1, cores=2)
    for name in "abc":
        cluster.pod(name)
    cluster.settle(5)
    assert cluster.state("c") == "Held"
    cluster.node("n0", 3)
    cluster.settle(5)
    assert nodes_of(cluster, "c") == ["n0"]


def test_an_event_says_what_is_left_to_kube_scheduler():
    cluster = Cluster()
    with_spec(cluster, "a", topologySpreadConstraints=[{"maxSkew": 1}])
    cluster.settle(5)
    told = [line for line in cluster.log if "LeftToScheduler" in line]
    assert len(told) == 1
    assert told[0].endswith("spec.topologySpreadConstraints")


def test_pods_of_a_job_that_keep_apart_have_a_node_each():
    cluster = Cluster(nodes=3)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": "a"}}}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.job("a", pods=3)
    job = cluster.one(JOBS, "a")
    job["spec"]["template"]["spec"]["affinity"] = rules
    cluster.put(JOBS, job)
    cluster.settle(5)
    assert sorted(nodes_of(cluster, "a")) == ["n0", "n1", "n2"]


def test_the_pods_of_a_job_are_in_one_zone_where_it_asks_for_that():
    cluster = Cluster(nodes=4, cores=2)
    for index, zone in enumerate("abba"):
        item = cluster.one(NODES, f"n{index}", "")
        item["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone}
        cluster.put(NODES, item)
    cluster.pod("other", 2)
    cluster.settle(5)
    assert nodes_of(cluster, "other") == ["n0"]
    cluster.job("a", pods=2, cores=2, annotations={"fluxqueue/within": "topology.kubernetes.io/zone"})
    cluster.job("b", annotations={"fluxqueue/within": "room"})
    cluster.settle(5)
    assert nodes_of(cluster, "a") == ["n1", "n2"]
    assert cluster.state("b") == "Refused"
    assert "metadata.annotations[fluxqueue/within]" in cluster.status("b")["reason"]


def test_a_pod_that_is_resized_holds_what_it_has_beyond_its_place():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("a", 2)
    cluster.settle(5)
    pod = cluster.one(PODS, "a")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    cluster.put(PODS, pod)
    cluster.pod("b", 2)
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Held"
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    cluster.put(PODS, pod)
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Running"


@pytest.mark.parametrize(
    ("duration", "own", "deadline"),
    [("1.5m", None, 90), ("1m", 30, 30), ("500ms", 40, 1), (None, 50, 50), (None, None, None)],
)
def test_what_starts_is_told_to_end_by_its_duration_where_the_queue_enforces_that(duration, own, deadline):
    annotations = {"fluxqueue/duration": duration} if duration else {}
    for enforces in (False, True):
        cluster = Cluster(enforceDuration=enforces)
        cluster.job("a", annotations=annotations, **({"activeDeadlineSeconds": own} if own else {}))
        body = {
            "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
            "status": {"phase": "Pending"},
        }
        spec = {"containers": [], **({"activeDeadlineSeconds": own} if own else {})}
        cluster.create(PODS, {**body, "spec": spec})
        cluster.settle()
        assert (cluster.state("a"), cluster.state("p")) == ("Running", "Running")
        for one in (cluster.one(JOBS, "a"), cluster.one(PODS, "p")):
            assert one["spec"].get("activeDeadlineSeconds") == (deadline if enforces else own)
        # The Job ends all of its pods itself.
        (pod,) = cluster.pods_of("a")
        assert "activeDeadlineSeconds" not in pod["spec"]
        # It comes with the release, in one patch.
        changes = [one for one in cluster.writes if isinstance(one, actions.Change)]
        assert len(changes) == 1


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_job_that_its_user_unsuspends_ends_by_its_duration_from_its_start_on(by_queue: bool):
    """Kubernetes counts a deadline from when the Job was unsuspended: here it waits for 40 s from then on."""
    cluster = Cluster(nodes=1, cores=1, enforceDuration=True)
    cluster.pod("first")
    cluster.settle(10)
    cluster.job("a", pods=1, annotations={"fluxqueue/duration": "100"}, **({} if by_queue else {"suspend": True}))
    cluster.settle(10)
    cluster.change("Job", "a", suspend=False)
    cluster.settle(40)
    cluster.end_all("first")
    cluster.settle(10)
    assert cluster.state("a") == "Running"
    assert cluster.one(JOBS, "a")["spec"]["activeDeadlineSeconds"] == 140
    # A pod that replaces another changes nothing of that.
    cluster.end(cluster.pods_of("a")[0], "Failed")
    cluster.settle(10)
    assert cluster.one(JOBS, "a")["spec"]["activeDeadlineSeconds"] == 140
    changes = [one for one in cluster.writes if isinstance(one, actions.Change) and one.kind == JOBS]
    assert len(changes) == 1


@pytest.mark.parametrize(("own", "deadlines"), [(None, [1800, 7205]), (600, [600, 600])])
@pytest.mark.parametrize("by_default", [False, True])
def test_a_job_that_starts_anew_ends_by_the_duration_that_it_has_then(own, deadlines, by_default):
    """The deadline that the queue gave it at its first start was not its user's."""
    cluster = Cluster(nodes=1, cores=2, enforceDuration=True, defaultDuration="30m" if by_default else None)
    marks = {} if by_default else {"fluxqueue/duration": "30m"}
    cluster.job("a", annotations=marks, **({"activeDeadlineSeconds": own} if own else {}))
    cluster.settle(5)
    assert cluster.one(JOBS, "a")["spec"]["activeDeadlineSeconds"] == deadlines[0]
    job, queue = cluster.one(JOBS, "a"), cluster.one(FLUXQUEUES, "default", "")
    job["spec"]["suspend"] = True
    job["metadata"]["annotations"].update({} if by_default else {"fluxqueue/duration": "2h"})
    cluster.put(JOBS, job)
    if by_default:
        queue["spec"]["defaultDuration"] = "2h"
        cluster.put(FLUXQUEUES, queue)
    cluster.settle(5)
    assert cluster.state("a") == "Running"
    assert cluster.one(JOBS, "a")["spec"]["activeDeadlineSeconds"] == deadlines[1]


def test_a_pod_that_replaces_another_ends_with_its_job():
    cluster = Cluster(nodes=2, cores=1, enforceDuration=True)
    annotations = {"fluxqueue/duration": "100"}
    cluster.sets("JobSet", "a", annotations, worker=(1, 1, 1, None))
    cluster.replicas("StatefulSet", "db", 1, **annotations)
    cluster.settle(60)
    ends = {"a": [100], "db": [100]}
    # A StatefulSet has no end: each of its pods has its own.
    for wait, left in ((60, 43), (50, 1)):
        for name in ("a", "db"):
            cluster.end(next(one for one in cluster.pods_of(name) if one["status"]["phase"] == "Running"), "Failed")
        ends["a"].append(left)
        ends["db"] = [100]
        cluster.settle(wait)
        found = {name: [one["spec"]["activeDeadlineSeconds"] for one in cluster.pods_of(name)] for name in ("a", "db")}
        assert found == ends


def test_a_node_that_comes_to_another_queue_takes_along_what_its_pods_have():
    cluster = Cluster(nodes=2, cores=2)
    for index in range(2):
        node = cluster.one(NODES, f"n{index}", "")
        node["metadata"]["labels"] = {"pool": "ab"[index]}
        cluster.put(NODES, node)
    cluster.put(NAMESPACES, {"metadata": {"name": "more", "labels": {"fluxqueue/queue": "second"}}})
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"]["nodeSelector"] = {"pool": "a"}
    cluster.put(FLUXQUEUES, queue)
    cluster.put(FLUXQUEUES, {"metadata": {"name": "second"}, "spec": {"nodeSelector": {"pool": "b"}}})
    cluster.settle()
    cluster.pod("a", 1)
    cluster.settle()
    node = cluster.one(NODES, "n0", "")
    node["metadata"]["labels"] = {"pool": "b"}
    cluster.put(NODES, node)
    cluster.settle(5)
    cluster.job("wide", pods=2, cores=2)
    cluster.pod("full", 2, namespace="more")
    cluster.settle(5)
    assert cluster.one(PODS, "full", "more")["spec"]["nodeName"] == "n1"
    cluster.pod("over", 2, namespace="more")
    cluster.settle(5)
    assert cluster.one(PODS, "over", "more")["spec"]["schedulingGates"]
    node["metadata"]["labels"] = {"pool": "a"}
    cluster.put(NODES, node)
    cluster.settle(5)
    cluster.pod("b", 1)
    cluster.settle(5)
    assert states(cluster, "ab") == "Running Running"


@pytest.mark.parametrize("selector", [None, {"key": "x", "operator": "DoesNotExist"}])
def test_a_core_that_begins_anew_finds_places_for_the_rest_of_a_partly_pinned_group(selector):
    """The nodes of pods that are pinned already are no rules for those of the others."""
    for crash_at in range(12):
        cluster = Cluster(nodes=3, cores=2)
        for name in "ab":
            labels, sizes = {"fluxqueue/group": "g"}, {"fluxqueue/group-size": "2"}
            meta = {"name": name, "namespace": "ns", "labels": labels, "annotations": sizes}
            main = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
            term = {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [selector]}]
                }
            }
            spec = {"containers": [main], **({"affinity": {"nodeAffinity": term}} if selector else {})}
            cluster.create(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
        cluster.crash_at, cluster.crash_after = crash_at, True
        # The node of a pod that is not pinned yet is cordoned while no core is there.
        begin = cluster.restart

        def restart(cluster=cluster, begin=begin):
            pinned = {
                pod["metadata"].get("annotations", {}).get("fluxqueue/fluxion-nodes") for pod in cluster.all(PODS)
            }
            if "n0" in pinned and "n1" not in pinned:
                cluster.node("n1", 2, unschedulable=True)
            begin()

        cluster.restart = restart
        cluster.settle(5)
        assert all(cluster.pods_of(name)[0]["status"]["phase"] == "Running" for name in "ab"), crash_at
        cluster.restart = begin


def test_the_value_that_a_priority_class_has_now_sorts_and_is_shown():
    cluster = Cluster(nodes=1, cores=1)
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": 10})
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    cluster.pod("a")
    cluster.settle()
    for name, of_class in (("b", ""), ("c", "low"), ("d", "gone")):
        cluster.job(name)
        job = cluster.one(JOBS, name)
        job["spec"]["template"]["spec"]["priorityClassName"] = of_class
        cluster.put(JOBS, job)
        with_spec(cluster, f"p{name}", priorityClassName=of_class, priority=7)
        cluster.settle(1)
    cluster.settle(40)

    def line() -> list[tuple[str, int]]:
        waiting = [one for one in cluster.all(FLUXJOBS) if one["status"].get("position")]
        waiting.sort(key=lambda one: one["status"]["position"])
        return [(one["spec"]["name"], one["spec"]["priority"]) for one in waiting]

    assert line() == [("c", 10), ("pc", 10), ("pb", 7), ("pd", 7), ("b", 5)]
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": 1})
    cluster.settle(40)
    assert line() == [("pb", 7), ("pd", 7), ("b", 5), ("c", 1), ("pc", 1)]
    cluster.end_all("a")
    cluster.settle(5)
    assert cluster.state("pb") == "Running"


def test_a_held_object_that_changes_keeps_its_place_and_shows_what_it_asks_for():
    cluster = Cluster(nodes=1, cores=1)
    for name in "abc":
        cluster.job(name)
        cluster.settle(1)
    job = cluster.one(JOBS, "b")
    job["spec"].update(parallelism=1, completions=1, activeDeadlineSeconds=60)
    cluster.put(JOBS, job)
    cluster.settle(40)
    assert [cluster.status(name)["position"] for name in "bc"] == [1, 2]
    assert cluster.one(FLUXJOBS, "b-job")["spec"]["duration"] == 60


def test_a_write_that_is_asked_for_again_hides_no_change_that_waits_for_the_next_step():
    """The end of a pod is on its way when a write fails: what was seen before must not come after it."""
    cluster = Cluster(nodes=1)
    cluster.pod("a")
    cluster.settle(5)
    cluster.end(cluster.pods_of("a")[0])
    cluster.queue.context.touch(cluster.one(PODS, "a")["metadata"]["uid"])
    cluster.settle(5)
    assert cluster.state("a") == "Finished"


def test_a_status_of_a_queue_is_asked_for_again():
    cluster = Cluster(nodes=1)
    cluster.settle(5)
    queue = cluster.one(FLUXQUEUES, "default", "")
    core = Cycle(OWN)
    changes = [Change(cluster.kinds[plural], one) for (plural, *_), one in cluster.items.items()]
    queue["status"] = {}
    first = core.step(changes, cluster.now).writes["default"]
    assert "default" not in core.step([], cluster.now).writes
    core.context.touch("default")
    assert core.step([], cluster.now).writes["default"] == first


def test_a_job_without_a_duration_is_started_ahead_of_no_reservation_by_a_core_that_begins_anew_either():
    cluster = Cluster(nodes=1, cores=4, policy="easy")
    for name, cores in (("runs", 3), ("first", 4), ("small", 1)):
        cluster.job(name, 1, cores)
        cluster.settle(5)
    assert [cluster.state(name) for name in ("runs", "first", "small")] == ["Running", "Held", "Held"]
    cluster.restart()
    cluster.settle(60)
    assert [cluster.state(name) for name in ("runs", "first", "small")] == ["Running", "Held", "Held"]


def test_a_job_none_of_whose_pods_is_bound_in_time_waits_anew():
    cluster = Cluster(nodes=2, cores=2, readyTimeout="5m")
    cluster.unbindable = {"n0"}
    cluster.job("a", pods=1, cores=2)
    cluster.settle(299)
    assert cluster.state("a") == "Released"
    cluster.pod("b", 2)
    cluster.settle()
    assert nodes_of(cluster, "b") == ["n1"]
    cluster.settle(2)
    told = [line for line in cluster.log if "NotBound" in line]
    assert told == ["a: NotBound: not bound by kube-scheduler in 5m: no reason given"]
    # It has the same node again, and waits there for five minutes more.
    assert (cluster.state("a"), nodes_of(cluster, "a")) == ("Released", ["n0"])
    assert "reason" not in cluster.status("a")
    assert cluster.one(JOBS, "a")["status"]["active"] == 1
    # It is told each time.
    cluster.settle(302)
    assert sum("NotBound" in line for line in cluster.log) == 2
    cluster.unbindable = set()
    cluster.restart()
    cluster.settle()
    assert cluster.state("a") == "Running"
    cluster.settle(3600)
    assert cluster.state("a") == "Running"


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_what_was_not_bound_in_time_goes_to_another_node_that_has_room(kind: str, cores: int):
    cluster = Cluster(nodes=3, cores=2, readyTimeout="5m")
    cluster.unbindable = {"n0", "n1"}
    if kind == "Job":
        cluster.job("a", pods=1, cores=cores)
    else:
        cluster.replicas(kind, "a", 1, cores=cores)
    tried = []
    for _ in range(3):
        cluster.settle(5)
        tried += nodes_of(cluster, "a")
        cluster.settle(300)
    assert (cluster.state("a"), tried) == ("Running", ["n0", "n1", "n2"])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_was_not_bound_in_time_waits_behind_all_others(restarts: bool):
    cluster = Cluster(nodes=1, cores=2, readyTimeout="5m")
    cluster.unbindable = {"n0"}
    cluster.job("a", pods=1, cores=2)
    cluster.settle(10)
    cluster.pod("b", 2)
    cluster.settle(270)
    if restarts:
        cluster.restart()
    assert states(cluster, "ab") == "Released Held"
    cluster.settle(30)
    assert states(cluster, "ab") == "Held Released"
    cluster.unbindable = set()
    cluster.restart()
    cluster.settle(5)
    assert states(cluster, "ab") == "Held Running"
    cluster.end_all("b")
    cluster.settle(5)
    assert cluster.state("a") == "Running"
    assert "reason" not in cluster.status("a")


@pytest.mark.parametrize("marks", [{}, {"labels": {"fluxqueue/group": "g"}}])
def test_a_pod_that_somebody_else_keeps_back_gets_no_node_before_it_could_run(marks: dict[str, Any]):
    cluster = Cluster(nodes=1, cores=4)
    sizes = {"annotations": {"fluxqueue/group-size": "1"}} if marks else {}
    cluster.pod("kept", 4, **marks, **sizes)
    pod = cluster.one(PODS, "kept")
    pod["spec"]["schedulingGates"].insert(0, {"name": "my/own"})
    cluster.put(PODS, pod)
    cluster.pod("a", 4)
    cluster.settle(5)
    assert cluster.state("a") == "Running"
    flux = "g-group" if marks else "kept-pod"
    kept = cluster.one(FLUXJOBS, flux)["status"]
    assert (kept["state"], kept["reason"].endswith("another controller must remove its scheduling gate my/own")) == (
        "Held",
        True,
    )
    cluster.end_all("a")
    cluster.settle(5)
    pod = copy.deepcopy(cluster.one(PODS, "kept"))
    del pod["spec"]["schedulingGates"][0]
    cluster.put(PODS, pod)
    cluster.settle(5)
    assert cluster.one(FLUXJOBS, flux)["status"]["state"] == "Running"


def test_a_group_all_of_whose_pods_have_ended_is_over_whatever_their_sizes_say():
    cluster = Cluster(nodes=1, cores=4)
    for name in "ab":
        cluster.pod(name, 1, labels={"fluxqueue/group": "g"}, annotations={"fluxqueue/group-size": "2"})
    cluster.settle(5)
    cluster.pod("other", 1, labels={"fluxqueue/group": "g"}, annotations={"fluxqueue/group-size": "1"})
    cluster.settle(5)
    for name in ("a", "b", "other"):
        cluster.end(cluster.one(PODS, name))
        cluster.settle(5)
    assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Finished"
    cluster.pod("next", 4)
    cluster.settle(5)
    assert cluster.state("next") == "Running"


@pytest.mark.parametrize("crash_at", [None, *range(8)])
def test_a_pod_that_is_not_bound_in_time_is_made_anew_by_its_controller(crash_at):
    cluster = Cluster(nodes=2, cores=2)
    cluster.job("a", pods=2, cores=2)
    cluster.unbindable = {"n1"}
    cluster.settle(601 if crash_at is None else 1)
    cluster.crash_at = crash_at
    cluster.settle(601)
    pods = cluster.pods_of("a")
    assert sorted(pod["status"]["phase"] for pod in pods) == ["Pending", "Running"]
    # A crash may have it told again; on a real cluster that is the same Event.
    assert sum("NotBound" in line for line in cluster.log) in (1, 2)
    deleted = [one for one in cluster.writes if isinstance(one, actions.Delete)]
    assert deleted
    assert all(one.item["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in pods] for one in deleted)
    # Its pod has the node once more, and ten minutes. A core that begins just after a pod was deleted does not know
    # that it had waited in vain.
    assert cluster.state("a") == "Released"
    assert ("reason" in cluster.status("a")) == (crash_at in (4, 5))
    cluster.unbindable = set()
    cluster.restart()
    cluster.settle(5)
    assert cluster.state("a") == "Running"
    assert "reason" not in cluster.status("a")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("restarts", [False, True])
def test_replicas_that_were_not_bound_in_time_wait_behind_all_others(kind: str, restarts: bool):
    cluster = Cluster(nodes=2, cores=2, readyTimeout="5m")
    cluster.unbindable = {"n1"}
    cluster.replicas(kind, "a", 2, cores=2)
    cluster.settle(10)
    cluster.job("b", cores=2)
    cluster.settle(270)
    if restarts:
        cluster.restart()
    flux = f"a-{kind.lower()}"
    assert cluster.one(FLUXJOBS, flux)["status"]["pods"] == {"wanted": 2, "placed": 2, "running": 1}
    assert cluster.state("b") == "Held"
    cluster.settle(30)
    told = cluster.one(FLUXJOBS, flux)["status"]
    assert cluster.state("b") == "Released"
    assert told["pods"]["placed"] == 1
    assert told["reason"].startswith("1 pod waits")
    cluster.unbindable = set()
    cluster.restart()
    cluster.settle(5)
    cluster.end_all("b")
    cluster.settle(5)
    told = cluster.one(FLUXJOBS, flux)["status"]
    assert (told["state"], told["pods"]["running"], "reason" in told) == ("Running", 2, False)


def test_a_bare_pod_that_is_not_bound_in_time_says_why():
    cluster = Cluster(nodes=1, readyTimeout="1m")
    cluster.unbindable = {"n0"}
    pod = cluster.pod("a")
    cluster.settle(30)
    unmet = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: no volume"}
    pod = cluster.one(PODS, "a")
    pod["status"]["conditions"] = [unmet]
    cluster.put(PODS, pod)
    cluster.settle(31)
    why = "not bound by kube-scheduler in 1m: 0/1 nodes are available: no volume"
    assert (cluster.state("a"), cluster.status("a")["reason"]) == ("Released", why)
    before = len(cluster.writes)
    cluster.settle(600)
    cluster.restart()
    cluster.settle(600)
    assert cluster.writes[before:] == []
    cluster.unbindable = set()
    cluster.restart()
    cluster.settle(1)
    assert cluster.state("a") == "Running"
    assert "reason" not in cluster.status("a")


def test_a_queue_that_does_not_make_sense_is_invalid_and_hurts_no_other():
    cluster = Cluster(nodes=2)
    for index in range(2):
        node = cluster.one(NODES, f"n{index}", "")
        node["metadata"]["labels"] = {"pool": "ab"[index]}
        cluster.put(NODES, node)
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"]["nodeSelector"] = {"pool": "a"}
    cluster.put(FLUXQUEUES, queue)
    cluster.put(NAMESPACES, {"metadata": {"name": "more", "labels": {"fluxqueue/queue": "wrong"}}})
    cluster.now += 1
    wrong = {
        "metadata": {"name": "wrong"},
        "spec": {"nodeSelector": {"pool": "b"}, "defaultDuration": "2h", "maxDuration": "1h"},
    }
    cluster.put(FLUXQUEUES, wrong)
    cluster.pod("a")
    cluster.pod("b", namespace="more")
    cluster.settle(5)
    why = "spec.defaultDuration: 2h is longer than spec.maxDuration, 1h"
    assert cluster.one(FLUXQUEUES, "wrong", "")["status"] == {"state": "Invalid", "reason": why, "nodes": 0}
    assert cluster.state("a") == "Running"
    assert cluster.one(PODS, "b", "more")["spec"]["schedulingGates"]
    wrong["spec"]["maxDuration"] = "3h"
    cluster.put(FLUXQUEUES, wrong)
    cluster.settle(5)
    assert cluster.one(PODS, "b", "more")["status"]["phase"] == "Running"


def test_pods_that_wait_are_counted_in_reasons_and_a_job_that_has_all_its_pods_has_none():
    cluster = Cluster(nodes=1, cores=2)
    cluster.replicas("Deployment", "d", 1)
    cluster.settle(3)
    item = cluster.one(KINDS["Deployment"].kind, "d")
    item["metadata"]["annotations"] = {"fluxqueue/hold": "true"}
    cluster.put(KINDS["Deployment"].kind, item)
    cluster.settle(3)
    assert (cluster.state("d"), cluster.status("d").get("reason")) == ("Running", None)
    for replicas, said in ((2, "1 pod waits: its user put"), (3, "2 pods wait: its user put")):
        cluster.change("Deployment", "d", replicas=replicas)
        cluster.settle(3)
        assert cluster.status("d")["reason"].startswith(said)


def test_the_first_in_the_order_waits_behind_nobody_and_is_kept_back_by_nothing():
    cluster = Cluster(nodes=1, cores=2, policy="easy")
    cluster.replicas("Deployment", "d", 6)
    cluster.settle(10)
    reason = cluster.status("d")["reason"]
    assert reason.startswith("4 pods wait: ") and "behind" not in reason and "ahead of a reservation" not in reason
    cluster.job("a", pods=1, cores=1)
    cluster.settle(40)
    assert "ahead of a reservation" in cluster.status("a")["reason"]


def test_a_group_that_says_no_size_is_told_that_none_is_said():
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("a", labels={"fluxqueue/group": "g"})
    cluster.settle()
    told = cluster.one(FLUXJOBS, "g-group")["status"]
    assert (told["state"], told["reason"]) == (
        "Refused",
        "fluxqueue/group-size: must be the number of pods in the group, at least 1; no pod of the group has it",
    )


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        (
            {"annotations": {HOLD: "yes"}},
            'metadata.annotations[fluxqueue/hold]: must be "true" or "false", not \'yes\'',
        ),
        ({"annotations": {"fluxqueue/gang": "maybe"}}, 'metadata.annotations[fluxqueue/gang]: must be "true" or'),
        ({"labels": {"fluxqueue/skip": "True"}}, 'metadata.labels[fluxqueue/skip]: must be "true" or "false"'),
        (
            {"annotations": {"fluxqueue/group": "g"}},
            "metadata.annotations[fluxqueue/group]: must be a label, not an annotation",
        ),
        ({"labels": {"fluxqueue/queue": "x"}}, "metadata.labels[fluxqueue/queue]: must be a label of the namespace"),
        ({"annotations": {HOLD: "false"}, "labels": {"fluxqueue/skip": "false", "fluxqueue/queue": "default"}}, ""),
    ],
)
def test_marks_that_say_what_they_cannot_are_refused_by_name(marks: Any, why: str):
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("a", **marks)
    cluster.settle(3)
    assert cluster.state("a") == ("Refused" if why else "Running")
    assert cluster.status("a").get("reason", "").startswith(why)


def test_a_job_whose_priorityclass_is_not_there_is_refused_until_it_comes():
    cluster = Cluster(nodes=1, cores=2)
    item = cluster.job("a")
    item["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    cluster.put(JOBS, item)
    cluster.settle(3)
    told = cluster.status("a")
    assert told["state"] == "Refused"
    assert (
        told["reason"] == "priorityClassName of its pods: there is no PriorityClass urgent, so they cannot be created"
    )
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 7})
    cluster.settle(3)
    assert (cluster.state("a"), cluster.one(FLUXJOBS, "a-job")["spec"]["priority"]) == ("Running", 7)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pod_whose_gate_somebody_takes_away_runs_outside_the_queue_and_holds_up_nobody(restarts: bool):
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("a", 2)
    cluster.pod("b", 1)
    cluster.settle(5)
    cluster.pod("first", 2)
    cluster.settle(5)
    cluster.pod("second", 1)
    cluster.settle(5)
    assert (cluster.state("first"), cluster.state("second")) == ("Held", "Held")
    pod = cluster.one(PODS, "second")
    pod["spec"]["schedulingGates"] = []
    cluster.put(PODS, pod)
    if restarts:
        cluster.restart()
    cluster.settle(5)
    told = cluster.status("second")
    assert (told["state"], told.get("position")) == ("Running", None)
    assert told["reason"].startswith("it runs outside the queue: its pods have no scheduling gate")
    cluster.end_all("b")
    cluster.settle(5)
    # The core that the pod has is nobody else's.
    assert (cluster.state("first"), cluster.one(PODS, "second")["status"]["phase"]) == ("Held", "Running")
    cluster.end_all("second")
    cluster.settle(5)
    assert (cluster.state("first"), cluster.state("second")) == ("Running", "Finished")


@pytest.mark.parametrize("jobid", ["abc", "9" * 40, "-1", str(2**63 - 1), "another's", "5", "0"])
def test_marks_of_the_queue_that_a_user_has_written_give_nothing(jobid: str):
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("first", 4)
    cluster.settle()
    cluster.pod("second", 4)
    cluster.settle()
    if jobid == "another's":
        jobid = cluster.status("first")["jobid"]
    marks = {"labels": {"fluxqueue/jobid": jobid}, "annotations": {"fluxqueue/fluxion-nodes": "n0"}}
    cluster.pod("liar", 4, **marks)
    cluster.settle(5)
    # One without a gate runs outside the queue, whatever it says of itself.
    cluster.put(PODS, {**cluster.one(PODS, "liar"), "metadata": {"name": "free", "namespace": "ns", **marks}})
    free = cluster.one(PODS, "free")
    free["spec"] = {**free["spec"], "schedulingGates": []}
    cluster.settle(5)
    names = ("first", "second", "liar")
    assert [cluster.state(name) for name in names] == ["Running", "Held", "Held"]
    cluster.end_all("first")
    cluster.delete(PODS, "free")
    cluster.settle(5)
    cluster.restart()
    cluster.pod("later", 1)
    cluster.settle(5)
    assert [cluster.state(name) for name in (*names, "later")] == ["Finished", "Running", "Held", "Held"]
    ids = [int(cluster.status(name)["jobid"]) for name in (*names, "later")]
    assert sorted(set(ids)) == ids


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"mpiReplicaSpecs": "words"},
        {"mpiReplicaSpecs": {"Worker": 5}},
        {"mpiReplicaSpecs": {"Worker": {"replicas": "many", "template": {"spec": {"containers": []}}}}},
        {"mpiReplicaSpecs": {"Worker": {"template": {}}}},
        {"mpiReplicaSpecs": {"Worker": {"template": {"spec": 5}}}},
        {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": "words"}}}}},
        {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": 5}}}}},
        {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"resources": {"requests": 5}}]}}}}},
        {
            "mpiReplicaSpecs": {
                "Worker": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "abc"}}}]}}}
            }
        },
        {
            "mpiReplicaSpecs": {
                "Worker": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}}}
            }
        },
    ],
)
def test_objects_that_nobody_has_checked_harm_no_others(spec: Any, monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster(nodes=1, cores=4)
    monkeypatch.setattr(cluster, "_control_mpijob", lambda item: None)
    cluster.create(KINDS["MPIJob"].kind, {"metadata": {"name": "wrong", "namespace": "ns"}, "spec": spec})
    trimmed = trimmed_workload(cluster.one(KINDS["MPIJob"].kind, "wrong"))
    assert trimmed["metadata"]["name"] == "wrong"
    cluster.pod("a")
    cluster.settle(3)
    assert cluster.state("a") == "Running"
    if not spec:
        assert cluster.status("wrong")["reason"] == "it requests no pods"
        return
    assert cluster.state("wrong") == "Refused"
    where = "resources of its pods: cpu: must" if "'cpu'" in str(spec) else "not valid as MPIJob"
    assert cluster.status("wrong")["reason"].startswith(where)


@pytest.mark.parametrize("wrong", [{"nodes": "n[0-"}, {"freed": "many"}, {"state": "Odd"}, {"startedAt": "yesterday"}])
def test_a_status_that_somebody_has_edited_harms_no_others(wrong: dict[str, str]):
    cluster = Cluster(nodes=2, cores=4)
    cluster.job("a", pods=2)
    cluster.settle()
    flux = cluster.one(FLUXJOBS, "a-job")
    flux["status"].update(wrong)
    cluster.put(FLUXJOBS, flux)
    cluster.settle(3)
    cluster.restart()
    cluster.settle(3)
    cluster.pod("b")
    cluster.settle(3)
    assert cluster.state("b") == "Running"
    assert cluster.queue.step([Change(FLUXJOBS, {**flux, "status": {**flux["status"], **wrong}})], cluster.now).defects


def owned_by(*owners: dict[str, Any]) -> dict[str, Any]:
    """The references of an object that a user says to be made by Jobs."""
    heads = ({"apiVersion": "batch/v1", "kind": "Job", "controller": True, **one} for one in owners)
    return {"ownerReferences": list(heads)}


def test_owners_in_a_circle_and_in_long_chains_harm_no_others():
    cluster = Cluster(nodes=2, cores=4)
    for name in ("self", "one", "other"):
        cluster.job(name)
    cluster.settle()
    for name, owner in (("self", "self"), ("one", "other"), ("other", "one")):
        item = cluster.one(JOBS, name)
        reference = {"name": owner, "uid": cluster.one(JOBS, owner)["metadata"]["uid"]}
        cluster.put(JOBS, {**item, "metadata": {**item["metadata"], **owned_by(reference)}})
        cluster.queue.step([Change(JOBS, cluster.one(JOBS, name))], cluster.now)
    for index in range(1, 1500):
        owner = owned_by({"name": f"link-{index - 1}", "uid": f"link-{index - 1}"})
        job = copy.deepcopy(cluster.one(JOBS, "self"))
        job["metadata"].update({"name": f"link-{index}", "uid": f"link-{index}", **owner})
        assert not cluster.queue.step([Change(JOBS, job)], cluster.now).defects


def test_an_owner_in_another_namespace_is_none():
    cluster = Cluster(nodes=2, cores=4)
    cluster.job("a", pods=1, cores=4)
    cluster.settle()
    victim = cluster.one(JOBS, "a")["metadata"]["uid"]
    pod = copy.deepcopy(cluster.pods_of("a")[0])
    marks = {"batch.kubernetes.io/job-completion-index": "0"}
    pod["metadata"] = {"name": "liar", "namespace": "other", "labels": marks, **owned_by({"name": "a", "uid": victim})}
    pod["spec"].pop("nodeName", None)
    pod["spec"]["schedulingGates"] = [{"name": "fluxqueue"}]
    pod["status"] = {"phase": "Pending"}
    for one in cluster.pods_of("a"):
        cluster.drop(PODS, one)
    cluster.put(PODS, pod)
    cluster.settle(5)
    assert cluster.one(PODS, "liar", "other")["spec"]["schedulingGates"]


def test_a_pod_that_a_controller_adopts_leaves_nothing_behind():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("a", 4)
    cluster.settle()
    cluster.replicas("ReplicaSet", "set", 0, cores=4)
    cluster.settle()
    pod, owner = cluster.one(PODS, "a"), cluster.one(KINDS["ReplicaSet"].kind, "set")["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": owner, "controller": True}
    pod = cluster.put(PODS, {**pod, "metadata": {**pod["metadata"], "ownerReferences": [reference]}})
    cluster.settle(3)
    cluster.drop(PODS, pod)
    cluster.settle(5)
    cluster.pod("b", 4)
    cluster.settle(5)
    assert cluster.state("b") == "Running"


def test_a_jobset_of_a_thousand_million_jobs_is_counted_and_not_made():
    jobset = {
        "metadata": {"name": "many", "namespace": "ns"},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "one",
                    "replicas": 10**9,
                    "template": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": {}}}},
                }
            ]
        },
    }
    assert KINDS["JobSet"].demand(jobset, {}).pods == 2 * 10**9


@pytest.mark.parametrize(
    ("annotations", "spec", "where"),
    [
        ({"fluxqueue/duration": "1e18"}, {}, "metadata.annotations[fluxqueue/duration]"),
        ({"fluxqueue/duration": "1e300s"}, {}, "metadata.annotations[fluxqueue/duration]"),
        ({"fluxqueue/duration": "24856d"}, {}, "metadata.annotations[fluxqueue/duration]"),
        ({}, {"activeDeadlineSeconds": 2**31}, "activeDeadlineSeconds"),
        ({}, {"activeDeadlineSeconds": 2**63 - 1}, "activeDeadlineSeconds"),
        ({}, {"activeDeadlineSeconds": 10**400}, "activeDeadlineSeconds"),
        ({"fluxqueue/duration": "2147483647"}, {"activeDeadlineSeconds": 2**63 - 1}, ""),
    ],
)
def test_no_job_runs_for_longer_than_a_deadline_may_be(annotations: Any, spec: Any, where: str):
    cluster = Cluster(nodes=1, cores=4)
    cluster.job("a", annotations=annotations, **spec)
    cluster.settle()
    if where:
        assert cluster.state("a") == "Refused"
        assert cluster.status("a")["reason"].startswith(f"{where}: must be at most 2147483647 seconds, about 68 years")
    else:
        assert cluster.state("a") == "Running"


@pytest.mark.parametrize("quotas", [[], [{"namespace": "ns", "cpu": 8}]])
def test_what_is_no_request_is_refused_wherever_that_is_found(quotas: Any, monkeypatch: pytest.MonkeyPatch):
    submit = ClusterQueue.submit

    def refusing(queue: ClusterQueue, jobid: int, request: Any, priority: int, arrival: float) -> None:
        if request.duration == 77:
            raise RequestError("attributes.system.duration: must be another")
        submit(queue, jobid, request, priority, arrival)

    monkeypatch.setattr(ClusterQueue, "submit", refusing)
    cluster = Cluster(nodes=1, cores=4, quotas=quotas)
    for name in ("a", "b"):
        cluster.job(name, cores=4, annotations={"fluxqueue/duration": "77"} if name == "a" else {})
    cluster.settle(3)
    assert states(cluster, "ab") == "Refused Running"
    assert cluster.status("a")["reason"] == "attributes.system.duration: must be another"
    item = cluster.one(JOBS, "a")
    item["metadata"]["annotations"]["fluxqueue/duration"] = "78"
    cluster.put(JOBS, item)
    cluster.end_all("b")
    cluster.settle(3)
    assert states(cluster, "ab") == "Running Finished"


@pytest.mark.parametrize(
    "wrong",
    [
        {"allocatable": {"cpu": "9223372036854775807", "memory": "8Ei", "pods": "9223372036854775807"}},
        {"allocatable": {"cpu": "-1", "pods": "-1"}},
        {"allocatable": {"cpu": "1" * 5000, "pods": "words"}},
        {"allocatable": "words"},
        {"conditions": [{"status": "True"}]},
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_node_of_a_form_that_nobody_has_thought_of_costs_itself_alone(wrong: Any, before: bool):
    cluster = Cluster(nodes=1, cores=4)
    if before:
        cluster.node("odd", 1)
        cluster.settle()
    odd = {"metadata": {"name": "odd"}, "spec": {"unschedulable": True}, "status": wrong}
    cluster.queue.step([*cluster._changes, Change(NODES, odd)], cluster.now)
    cluster._changes = []
    cluster.pod("a", 4)
    cluster.settle(3)
    assert cluster.state("a") == "Running"
    # It is used as soon as it makes sense.
    cluster.node("odd", 8)
    cluster.pod("b", 8)
    cluster.settle(3)
    assert cluster.status("b")["nodes"] == "odd"


def test_an_ordinal_that_its_user_has_written_harms_no_others_and_not_itself():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("a", labels={"batch.kubernetes.io/job-completion-index": "9" * 20})
    cluster.settle()
    assert cluster.state("a") == "Running"


@pytest.mark.parametrize(("edited", "other"), [("a", "b"), ("b", "a")])
def test_a_fluxjob_that_is_labelled_with_the_id_of_another_leaves_both_their_own(edited: str, other: str):
    cluster = Cluster(nodes=1, cores=4)
    for name in "ab":
        cluster.pod(name, 4)
        cluster.settle(3)
    ids = {name: cluster.status(name)["jobid"] for name in "ab"}
    flux = cluster.one(FLUXJOBS, f"{edited}-pod")
    flux["metadata"]["labels"][JOBID] = ids[other]
    cluster.put(FLUXJOBS, flux)
    cluster.settle(3)
    cluster.restart()
    cluster.settle(3)
    assert {name: cluster.status(name)["jobid"] for name in "ab"} == ids
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "ab") == "Finished Running"
    assert {str(one.facts.jobid): one.facts.name for one in cluster.records} == {ids["a"]: "a", ids["b"]: "b"}


def external(name: str, jobid: str, node: str, told: str = "", namespace: str = OWN) -> dict[str, Any]:
    given = {"nodes": [{"name": node, "amounts": {"cpu": 4000}}]}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {JOBID: jobid}},
        "spec": {"type": 10, "queue": "default", "resources": given},
        "status": {"jobid": told} if told else {},
    }


def test_a_match_that_is_labelled_with_the_id_of_another_takes_nothing_from_it():
    cluster = Cluster(nodes=3, cores=4)
    cluster.put(FLUXJOBS, external("match-5-external", "5", "n0", "5"))
    cluster.put(FLUXJOBS, external("match-6-external", "6", "n1", "6"))
    third = cluster.put(FLUXJOBS, external("match-7-external", "5", "n2"))
    cluster.settle()
    assert set(cluster.queue.context.snapshot.externals) == {5, 6}
    second = cluster.one(FLUXJOBS, "match-6-external", OWN)
    second["metadata"]["labels"][JOBID] = "5"
    cluster.put(FLUXJOBS, second)
    cluster.drop(FLUXJOBS, third)
    cluster.pod("a", 4)
    cluster.pod("b", 4)
    cluster.settle(3)
    assert (cluster.status("a")["nodes"], cluster.state("b")) == ("n2", "Held")
    cluster.drop(FLUXJOBS, second)
    cluster.settle(3)
    assert cluster.status("b")["nodes"] == "n1"


def test_a_match_that_somebody_writes_into_another_namespace_counts_for_nothing():
    cluster = Cluster(nodes=1, cores=4)
    made = cluster.put(FLUXJOBS, external("match-5-external", "5", "n0", "5", "ns"))
    cluster.put(FLUXJOBS, external("match-6-external", "6", "n0", "", "other"))
    cluster.pod("a", 4)
    cluster.settle(3)
    assert (cluster.queue.context.snapshot.externals, cluster.state("a")) == ({}, "Running")
    # Nor does it come to an end in the history, and nobody but its author deletes it.
    cluster.drop(FLUXJOBS, made)
    cluster.settle(3)
    assert [one.facts.name for one in cluster.records if one.facts.kind == "External"] == []
    assert [one["metadata"]["name"] for one in cluster.all(FLUXJOBS)] == ["a-pod", "match-6-external"]


def test_matches_count_against_the_quota_of_the_queues_own_namespace():
    cluster = Cluster(nodes=2, cores=4, quotas=[{"namespace": OWN, "cpu": 6}])
    cluster.settle()

    def match(cpus: int) -> int:
        jobspec = resources.jobspec("a", "", 1, {"cpu": 1000 * cpus, "pod": 1}, 60)
        jobid, selection, _ = cluster.queue.externals.match(
            "default", jobspec, parse_jobspec(jobspec), cluster.now, False
        )
        amounts = nodes.amounts_in(selection)
        cluster.put(FLUXJOBS, made_of(jobid, OWN, "default", amounts, jobspec, 60))
        return jobid

    first = match(4)
    for settled in (False, True):
        if settled:
            cluster.restart()
            cluster.settle()
        with pytest.raises(Refusal, match=f"no room now: over the quota of namespace {OWN}: cpu 7 of 6"):
            match(3)
    match(2)
    cluster.delete(FLUXJOBS, f"match-{first}-external", OWN)
    cluster.settle()
    match(4)
    cluster.settle()
    # Another quota counts for what is there.
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"]["quotas"] = [{"namespace": OWN, "jobs": 2}]
    cluster.put(FLUXQUEUES, queue)
    cluster.settle()
    with pytest.raises(Refusal, match="jobs 3 of 2"):
        match(1)


def test_what_has_come_and_gone_leaves_nothing_behind():
    cluster = Cluster(nodes=1, cores=4)
    for turn in range(3):
        cluster.sets("JobSet", f"s{turn}", w=(1, 1, 1, None))
        cluster.put(
            PODS,
            {
                "metadata": {
                    "name": f"p{turn}",
                    "namespace": f"gone-{turn}",
                    "annotations": {"fluxqueue/fluxion-nodes": f"no-{turn}"},
                },
                "spec": {"containers": []},
                "status": {},
            },
        )
        cluster.settle(3)
        assert cluster.state(f"s{turn}") == "Running"
        cluster.delete(KINDS["JobSet"].kind, f"s{turn}")
        cluster.delete(PODS, f"p{turn}", f"gone-{turn}")
        cluster.settle(3)
    world = cluster.queue.context.snapshot
    indexes = (world._owns, world._made, world.pods_on, world._in_namespace, world._owner, world._maker)
    assert [dict(one) for one in indexes] == [{}] * len(indexes)


def test_what_is_told_of_a_mark_is_short():
    cluster = Cluster(nodes=1, cores=4)
    cluster.job("a", annotations={"fluxqueue/duration": "x" * 100_000})
    cluster.settle()
    assert cluster.state("a") == "Refused"
    assert len(cluster.status("a")["reason"]) <= 1000


def test_a_priority_that_a_template_says_of_itself_is_not_believed():
    cluster = Cluster(nodes=1, cores=4)
    cluster.pod("first", 4)
    cluster.settle()
    for name in ("old", "liar"):
        cluster.replicas("StatefulSet", name, 1, 4)
        cluster.settle(2)
    item = cluster.one(KINDS["StatefulSet"].kind, "liar")
    item["spec"]["template"]["spec"]["priority"] = 2**31 - 1
    cluster.put(KINDS["StatefulSet"].kind, item)
    cluster.settle(3)
    cluster.end_all("first")
    cluster.settle(5)
    assert states_of(cluster, "old", "liar") == ["Running", "Held"]


def states_of(cluster: Cluster, *names: str) -> list[str]:
    return [cluster.state(name) for name in names]


@pytest.mark.parametrize("how", ["another namespace", "left alone", "no gate"])
def test_a_pod_that_is_only_said_to_be_on_a_node_has_nothing_of_it(how: str, monkeypatch: pytest.MonkeyPatch):
    cluster = Cluster(nodes=1, cores=4)
    monkeypatch.setattr(cluster, "_bind", lambda pod, bind=cluster._bind: _is_hog(pod) or bind(pod))
    mark = {"fluxqueue/fluxion-nodes": "n0"}
    labels = {"fluxqueue/skip": "true"} if how == "left alone" else {}
    namespace = "other" if how == "another namespace" else "ns"
    cluster.pod("hog", 1000, namespace, labels=labels, annotations=mark)
    pod = cluster.one(PODS, "hog", namespace)
    if how == "no gate":
        del pod["spec"]["schedulingGates"]
        pod["metadata"].update(labels={"fluxqueue/jobid": "1"}, annotations=mark)
        cluster.put(PODS, pod)
    cluster.settle(3)
    cluster.pod("a", 4)
    cluster.settle(5)
    assert cluster.state("a") == "Running"


def _is_hog(pod: dict[str, Any]) -> bool:
    """It asks for what no scheduler has, so that it never runs."""
    return bool(pod["metadata"]["name"] == "hog")


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
@pytest.mark.parametrize("back", [0.5, 5, 3600, 100_000])
def test_a_clock_that_is_set_back_holds_up_nobody(policy: str, back: float):
    cluster = Cluster(nodes=1, cores=4, policy=policy)
    marks = {"fluxqueue/duration": "1h"}
    for name in "abc":
        cluster.pod(name, 4, annotations=marks)
        cluster.settle(20)
    cluster.end_all("a")
    cluster.now -= back
    cluster.settle(5)
    assert states(cluster, "abc") == "Finished Running Held"
    cluster.end_all("b")
    cluster.pod("d", 4, annotations={"fluxqueue/duration": "5m"})
    cluster.settle(5)
    # By the clock, d may have come before c.
    assert sorted(states_of(cluster, "c", "d")) == ["Held", "Running"]
    first, then = sorted("cd", key=cluster.state, reverse=True)
    cluster.end_all(first)
    cluster.settle(60)
    assert states_of(cluster, first, then) == ["Finished", "Running"]
    jobids = [cluster.status(name)["jobid"] for name in "abcd"]
    assert sorted(jobids, key=int) == jobids
    assert len(set(jobids)) == 4


def test_a_pod_that_asks_for_more_than_its_template_waits_for_as_much():
    cluster = Cluster(nodes=2, cores=64, quotas=[{"namespace": "ns", "cpu": 10}])
    cluster.sidecar = lambda: 59
    cluster.replicas("ReplicaSet", "tiny", 1, 1)
    cluster.settle(5)
    assert "quota of namespace ns: cpu 60 of 10 (50 over)" in cluster.status("tiny")["reason"]
    assert cluster.pods_of("tiny")[0]["spec"]["schedulingGates"]
    # One that asks for what there is room for is not held up by it.
    cluster.sidecar = lambda: 7
    cluster.replicas("ReplicaSet", "fits", 1, 1)
    cluster.settle(5)
    assert states_of(cluster, "tiny", "fits") == ["Held", "Running"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_admission_adds_to_the_pods_of_a_job_costs_it_neither_its_turn_nor_its_start(restarts: bool):
    cluster = Cluster(nodes=2, cores=8)
    cluster.pod("first", 8)
    cluster.pod("second", 6)
    cluster.settle()
    cluster.sidecar = lambda: 2
    cluster.job("a", pods=2, cores=1)
    cluster.settle(20)
    cluster.pod("later", 8)
    cluster.settle(20)
    # Each pod was given a place of one core, which is too small: they wait for three, before whoever came after them.
    assert states_of(cluster, "a", "later") == ["Released", "Held"]
    assert "cpu x4 short (6 wanted, 2 free)" in cluster.status("a")["reason"]
    if restarts:
        cluster.restart()
        cluster.settle(5)
    cluster.end_all("first")
    cluster.settle(5)
    assert states_of(cluster, "a", "later") == ["Running", "Held"]
    assert len(cluster.pods_of("a")) == 2
    cluster.end_all("a")
    cluster.settle(5)
    assert states_of(cluster, "a", "later") == ["Finished", "Running"]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_pod_goes_to_a_node_that_admission_has_it_ask_for(kind: str, restarts: bool):
    """As a RuntimeClass with a node selector does, which stands in no template."""
    cluster = Cluster(nodes=2, cores=2)
    cluster.node("n2", 2, labels={"sandbox": "yes"}, taints=[{"key": "sandbox", "effect": "NoSchedule"}])
    cluster.added = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
    cluster.pod("first", 2, **{"labels": {"fluxqueue/skip": "true"}})
    pod = cluster.one(PODS, "first")
    pod["spec"]["nodeName"] = "n2"
    cluster.end(pod, "Running")
    if kind == "Job":
        cluster.job("a", 1, 1)
    else:
        cluster.replicas(kind, "a", 1)
    cluster.settle(5)
    why = "the node of a slot no longer accepts its pod, and no other eligible node has room"
    assert (cluster.state("a"), cluster.status("a")["reason"]) == ("Released", why)
    if restarts:
        cluster.restart()
        cluster.settle(5)
    cluster.end_all("first")
    cluster.settle(5)
    assert (cluster.state("a"), nodes_of(cluster, "a")) == ("Running", ["n2"])


def test_a_pod_whose_gate_its_user_takes_away_counts_against_the_quota():
    cluster = Cluster(nodes=2, cores=8, quotas=[{"namespace": "ns", "cpu": 4}])
    cluster.pod("a", 6)
    cluster.settle(3)
    assert cluster.state("a") == "Held"
    pod = cluster.one(PODS, "a")
    del pod["spec"]["schedulingGates"]
    cluster.put(PODS, pod)
    cluster.settle(3)
    cluster.pod("b", 1)
    cluster.settle(3)
    assert states(cluster, "ab") == "Running Held"
    assert "cpu 7 of 4 (3 over, 6 taken)" in cluster.status("b")["reason"]
    cluster.end_all("a")
    cluster.settle(3)
    assert states(cluster, "ab") == "Finished Running"


def test_what_a_pod_has_beyond_its_place_counts_against_the_quota():
    cluster = Cluster(nodes=2, cores=8, quotas=[{"namespace": "ns", "cpu": 4}])
    cluster.pod("a", 1)
    cluster.settle(3)
    pod = cluster.one(PODS, "a")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    cluster.put(PODS, pod)
    cluster.settle(3)
    cluster.pod("b", 1)
    cluster.settle(3)
    assert "cpu 5 of 4 (1 over, 4 taken)" in cluster.status("b")["reason"]
    cluster.end_all("a")
    cluster.settle(3)
    assert cluster.state("b") == "Running"


def events(cluster: Cluster, name: str) -> list[str]:
    """The Events about an object, as REASON: MESSAGE."""
    return [line.partition(": ")[2] for line in cluster.log if line.startswith(f"{name}: ")]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_fluxjob_of_an_object_that_was_deleted_alone_makes_way_for_that_of_its_next(restarts):
    cluster = Cluster(nodes=1, cores=4)
    kind = KINDS["StatefulSet"].kind
    cluster.replicas("StatefulSet", "web", 1)
    cluster.settle(5)
    # `kubectl delete --cascade=orphan`: the garbage collector takes the references to it out of what is its.
    for one in [*cluster.all(FLUXJOBS), *cluster.all(PODS)]:
        cluster.put(type_of(cluster, one), {**one, "metadata": {**one["metadata"], "ownerReferences": []}})
    cluster.delete(kind, "web")
    if restarts:
        cluster.restart()
    cluster.settle(5)
    # Its pod is on its own now.
    assert [one["metadata"]["name"] for one in cluster.all(FLUXJOBS)] == ["web-0-pod"]
    for pod in cluster.pods_of("web"):
        cluster.drop(PODS, pod)
    cluster.replicas("StatefulSet", "web", 2)
    cluster.settle(5)
    assert cluster.state("web") == "Running"
    assert [pod["spec"]["nodeName"] for pod in cluster.pods_of("web")] == ["n0", "n0"]


def type_of(cluster: Cluster, item: dict[str, Any]) -> Any:
    return next(kind for kind in (FLUXJOBS, PODS) if item in cluster.all(kind))


def test_a_fluxjob_whose_name_another_object_has_meanwhile_goes_before_that_ones_is_made():
    cluster = Cluster(nodes=1, cores=4)
    cluster.job("a")
    cluster.settle(5)
    flux = cluster.one(FLUXJOBS, "a-job")
    cluster.put(FLUXJOBS, {**flux, "metadata": {**flux["metadata"], "ownerReferences": []}})
    for pod in cluster.pods_of("a"):
        cluster.drop(PODS, pod)
    cluster.delete(JOBS, "a")
    cluster.job("a")
    cluster.settle(5)
    assert cluster.state("a") == "Running"
    assert cluster.status("a")["jobid"] != flux["status"]["jobid"]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_object_that_gets_the_label_of_those_left_alone_later_keeps_its_turn(restarts):
    cluster = Cluster(nodes=1, cores=1)
    for name in "ab":
        cluster.job(name)
        cluster.settle(2)
    for name in "ab":
        job = cluster.one(JOBS, name)
        cluster.put(JOBS, {**job, "metadata": {**job["metadata"], "labels": {"fluxqueue/skip": "true"}}})
    cluster.settle(2)
    if restarts:
        cluster.restart()
        cluster.settle(2)
    assert states(cluster, "ab") == "Running Held"
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "ab") == "Finished Running"


@pytest.mark.parametrize("restarts", [False, True])
def test_pods_of_a_group_that_is_over_are_another_job(restarts):
    cluster = Cluster(nodes=2, cores=1)

    def run(*names: str, end: str) -> tuple[str, str]:
        for name in names:
            marks = {"labels": {"fluxqueue/group": "g"}, "annotations": {"fluxqueue/group-size": "2"}}
            cluster.pod(name, **marks)
            if restarts:
                cluster.restart()
            cluster.settle(5)
        pods = [cluster.one(PODS, name) for name in names]
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n0", "n1"]
        for pod in pods:
            cluster.end(pod, end)
            if restarts:
                cluster.restart()
            cluster.settle(5)
        told = cluster.one(FLUXJOBS, "g-group")["status"]
        return told["state"], told["jobid"]

    ended = [run("a", "b", end="Failed"), run("c", "d", end="Succeeded"), run("e", "f", end="Succeeded")]
    assert [state for state, _ in ended] == ["Failed", "Finished", "Finished"]
    assert len({jobid for _, jobid in ended}) == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_is_made_again_with_another_size_beside_its_ended_pods(restarts):
    cluster = Cluster(nodes=2, cores=4)
    for names in ("ab", "cde"):
        for name in names:
            marks = {
                "labels": {"fluxqueue/group": "g", "job": names},
                "annotations": {"fluxqueue/group-size": str(len(names))},
            }
            cluster.pod(name, **marks)
        if restarts:
            cluster.restart()
        cluster.settle(5)
        assert [pod["status"]["phase"] for pod in cluster.pods_of(names)] == ["Running"] * len(names)
        cluster.end_all(names)
        cluster.settle(5)
        assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Finished"


@pytest.mark.parametrize(
    ("marks", "state", "told"),
    [
        ([{}, {"fluxqueue/hold": "true"}], "Held", "its user put it on hold (annotation fluxqueue/hold)"),
        ([{"fluxqueue/duration": "10m"}, {"fluxqueue/duration": "2h"}], "Running", 7200),
        ([{}, {"fluxqueue/duration": "2h"}], "Running", 7200),
        ([{}, {"fluxqueue/duration": "zork"}], "Refused", "g1: metadata.annotations[fluxqueue/duration]: "),
        (
            [{}, {"fluxqueue/hold": "yes"}],
            "Refused",
            'g1: metadata.annotations[fluxqueue/hold]: must be "true" or "false"',
        ),
        ([{}, {"fluxqueue/within": "zork"}], "Refused", "g1: metadata.annotations[fluxqueue/within]: must be a label"),
        (
            [{"fluxqueue/within": f"topology.kubernetes.io/{level}"} for level in ("zone", "rack")],
            "Refused",
            "metadata.annotations[fluxqueue/within]: must be the same in all pods of a group",
        ),
    ],
)
def test_the_marks_of_each_pod_of_a_group_count(marks: list[dict[str, str]], state: str, told: Any):
    cluster = Cluster(nodes=2, cores=4)
    for index, one in enumerate(marks):
        annotations = {"fluxqueue/group-size": str(len(marks)), **one}
        cluster.pod(f"g{index}", labels={"fluxqueue/group": "g"}, annotations=annotations)
    cluster.settle(5)
    found = cluster.one(FLUXJOBS, "g-group")
    assert found["status"]["state"] == state
    if isinstance(told, int):
        assert found["spec"]["duration"] == told
    else:
        assert told in found["status"]["reason"]


def test_a_held_job_that_wants_no_pods_for_a_while_keeps_its_place():
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("runs", 2)
    cluster.settle(2)
    for name in "ab":
        cluster.job(name, pods=2)
        cluster.settle(2)
    for pods in (0, 2):
        cluster.change("Job", "a", parallelism=pods)
        cluster.settle(5)
    assert [cluster.status(name)["position"] for name in "ab"] == [1, 2]


def test_the_fluxjob_of_a_group_belongs_to_all_its_pods_whichever_came_first():
    cluster = Cluster(nodes=3, cores=1)
    for name in "cab":
        cluster.pod(name, labels={"fluxqueue/group": "g"}, annotations={"fluxqueue/group-size": "3"})
        cluster.settle(60)
    told = cluster.one(FLUXJOBS, "g-group")
    assert sorted(one["name"] for one in told["metadata"]["ownerReferences"]) == ["a", "b", "c"]
    for name in "ca":
        cluster.end(cluster.one(PODS, name))
        cluster.drop(PODS, cluster.one(PODS, name))
        cluster.settle()
        cluster.restart()
        cluster.settle(5)
    after = cluster.one(FLUXJOBS, "g-group")["status"]
    assert [after[key] for key in ("queuedAt", "startedAt")] == [
        told["status"][key] for key in ("queuedAt", "startedAt")
    ]


def test_a_group_of_which_one_pod_has_ended_is_not_yet_another():
    cluster = Cluster(nodes=2, cores=1)
    for name in "ab":
        cluster.pod(name, labels={"fluxqueue/group": "g"}, annotations={"fluxqueue/group-size": "2"})
    cluster.settle(5)
    jobid = cluster.one(FLUXJOBS, "g-group")["status"]["jobid"]
    cluster.end(cluster.one(PODS, "a"))
    cluster.restart()
    cluster.settle(5)
    assert cluster.one(FLUXJOBS, "g-group")["status"]["state"] == "Running"
    assert cluster.one(FLUXJOBS, "g-group")["status"]["jobid"] == jobid


def test_a_job_that_its_user_keeps_suspended_comes_to_the_queue_when_it_may_run():
    cluster = Cluster(nodes=1, cores=4)
    cluster.job("old", cores=4, suspend=True)
    cluster.settle(100)
    for name in "ab":
        cluster.job(name, cores=4)
        cluster.settle(10)
    cluster.change("Job", "old", suspend=False)
    cluster.settle(5)
    assert [cluster.status(name)["position"] for name in ("b", "old")] == [1, 2]


def test_what_ran_before_its_namespace_had_a_queue_grows_behind_those_who_wait():
    cluster = Cluster(nodes=2, cores=1)
    space = cluster.one(NAMESPACES, "ns", "")
    cluster.put(NAMESPACES, {**space, "metadata": {**space["metadata"], "labels": {}}})
    cluster.replicas("Deployment", "web", 1)
    cluster.settle(50)
    cluster.put(NAMESPACES, space)
    for name in "ab":
        cluster.job(name)
        cluster.settle(10)
    cluster.change("Deployment", "web", replicas=2)
    cluster.settle(5)
    assert cluster.status("b")["position"] == 1
    cluster.end_all("a")
    cluster.settle(5)
    assert cluster.state("b") == "Running"


def test_each_change_of_a_reason_is_an_event():
    cluster = Cluster(nodes=1, cores=2)
    cluster.replicas("Deployment", "web", 2)
    cluster.settle(5)
    cluster.change("Deployment", "web", replicas=4)
    cluster.settle(5)
    assert [event for event in events(cluster, "web") if event.startswith("Running: 2 pods wait: insufficient")]
    cluster.job("bad", annotations={"fluxqueue/duration": "abc"})
    cluster.settle(2)
    job = cluster.one(JOBS, "bad")
    meta = {**job["metadata"], "annotations": {**job["metadata"]["annotations"], "fluxqueue/duration": "0"}}
    cluster.put(JOBS, {**job, "metadata": meta})
    cluster.settle(2)
    assert len([event for event in events(cluster, "bad") if event.startswith("Refused: ")]) == 2


def test_an_end_that_kubernetes_explains_is_an_event():
    cluster = Cluster(nodes=1, cores=2)
    cluster.pod("a")
    cluster.settle(2)
    cluster.put(PODS, {**cluster.one(PODS, "a"), "status": {"phase": "Failed", "reason": "Evicted"}})
    cluster.settle(2)
    assert [event for event in events(cluster, "a") if event.startswith("Failed: ")] == ["Failed: Evicted"]


def test_a_job_behind_a_deployment_of_many_pods_has_one_before_it():
    cluster = Cluster(nodes=1, cores=1)
    cluster.pod("a")
    cluster.settle(2)
    cluster.replicas("Deployment", "web", 40)
    cluster.settle(2)
    cluster.job("b")
    cluster.settle(1)
    assert [cluster.status(name)["position"] for name in ("web", "b")] == [1, 2]


@pytest.mark.parametrize("kept", [{"parallelism": 0}, None])
def test_a_job_that_is_out_of_the_order_has_no_position_and_no_estimate(kept):
    cluster = Cluster(nodes=1, cores=4, policy="easy")
    cluster.job("a", cores=4, annotations={"fluxqueue/duration": "1h"})
    cluster.settle(1)
    cluster.job("b", cores=4, annotations={"fluxqueue/duration": "1m"})
    cluster.settle(5)
    assert cluster.status("b")["position"] == 1
    if kept:
        cluster.change("Job", "b", **kept)
    else:
        queue = cluster.one(FLUXQUEUES, "default", "")
        cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "maxDuration": "1h", "defaultDuration": "2h"}})
    cluster.settle(60)
    told = cluster.status("b")
    assert told["state"] == "Held"
    assert "position" not in told
    assert "estimatedStart" not in told
    assert {one["type"]: one["status"] for one in told["conditions"]}["Reserved"] == "False"


def test_of_two_queues_of_one_second_the_later_is_invalid_also_after_a_restart():
    cluster = Cluster(nodes=0)
    cluster.node("n", labels={"pool": "p"})
    queue = cluster.one(FLUXQUEUES, "default", "")
    cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "nodeSelector": {"pool": "q"}}})
    cluster.settle(5)
    for name in ("zeta", "alpha"):
        cluster.put(FLUXQUEUES, {"metadata": {"name": name}, "spec": {"nodeSelector": {"pool": "p"}}})
    for _ in range(2):
        cluster.settle(5)
        told = {name: cluster.one(FLUXQUEUES, name, "")["status"]["state"] for name in ("zeta", "alpha")}
        assert told == {"zeta": "Active", "alpha": "Invalid"}
        cluster.restart()


def test_the_spec_follows_what_a_job_asks_for_and_the_policy_of_its_queue():
    cluster = Cluster(nodes=2, cores=2)
    cluster.pod("a", 2)
    cluster.job("b", pods=1, cores=2)
    cluster.settle(5)
    cluster.job("c")
    cluster.settle(5)
    told = cluster.one(FLUXJOBS, "c-job")["spec"]
    assert (told["reservation"], json.loads(told["jobspec"])["resources"][0]["with"][0]["count"]) == (False, 1000)
    cluster.change("Job", "c", cores=2)
    queue = cluster.one(FLUXQUEUES, "default", "")
    cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "policy": "easy"}})
    cluster.settle(5)
    told = cluster.one(FLUXJOBS, "c-job")["spec"]
    assert (told["reservation"], json.loads(told["jobspec"])["resources"][0]["with"][0]["count"]) == (True, 2000)
    cluster.change("Job", "b", parallelism=2, completions=2)
    cluster.settle(5)
    assert cluster.one(FLUXJOBS, "b-job")["spec"]["nodes"] == 2


def test_a_fluxjob_that_somebody_else_has_made_is_left_alone():
    cluster = Cluster()
    cluster.put(FLUXJOBS, {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"type": 1, "name": "a"}})
    cluster.settle(5)
    assert [one["metadata"]["name"] for one in cluster.all(FLUXJOBS)] == ["a"]
