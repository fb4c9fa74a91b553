"""The cluster queue on a real Kubernetes: pods and Jobs wait their turn, run where it was planned, and end."""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Iterator

import pytest
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from kubecluster.faults import drained
from patience import until
from running_fluxqueue import QUEUES, Held, RunningFluxqueue, nodes_of_queues, pod_spec

from headrace.cluster_queue.crd import first_queue
from headrace.formats.spec.hostlist import Hostlist
from sizes import size


def whole(cluster: Cluster) -> str:
    """The cores of one node, all of which are the same."""
    found = cluster.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["cpu"]
    return str(found)


def test_pods_and_jobs_wait_their_turn_and_run_where_it_was_planned(cluster: Cluster, held: Held) -> None:
    cpu = whole(cluster)
    held.job("first", "while [ ! -e /tmp/go ]; do sleep .1; done; echo $JOB_COMPLETION_INDEX", cpu, pods=2)
    status = held.wait("first-job", "Running")
    assert sorted(Hostlist.parse(status["nodes"])) == ["node-0", "node-1"]
    held.pod("second", "echo second", cpu)
    assert held.wait("second-pod", "Held")["position"] == 1
    held.job("third", "echo third", cpu)
    assert held.wait("third-job", "Held")["reason"]
    # Neither has been started: the pod has the gate, the Job has no pods.
    assert held.get("pods", "second")["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    assert held.get("jobs", "third")["spec"]["suspend"] is True
    assert held.pods_of("third") == []
    places = list(Hostlist.parse(status["nodes"]))
    for pod in held.pods_of("first"):
        index = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
        assert pod["spec"]["nodeName"] == places[index]
        assert pod["metadata"]["labels"]["fluxqueue/jobid"] == status["jobid"]
        cluster.kubectl("-n", held.namespace, "exec", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    for name in ("first-job", "second-pod", "third-job"):
        held.wait(name, "Finished")
    assert cluster.kubectl("-n", held.namespace, "logs", "second") == "second\n"
    assert cluster.kubectl("-n", held.namespace, "logs", "job/third") == "third\n"
    assert held.get("jobs", "first")["status"]["succeeded"] == 2
    assert held.events("second") == ["Queued", "Released"]
    columns = cluster.kubectl("-n", held.namespace, "get", "fj").splitlines()[0].split()
    assert columns == ["NAME", "STATE", "QUEUE", "POSITION", "PODS", "ESTIMATE", "AGE"]
    # With the objects, their FluxJobs go.
    held.delete("pods", "second")
    held.delete("jobs", "third")
    until(lambda: [one["metadata"]["name"] for one in held.get("fluxjobs")["items"]] == ["first-job"])


def test_what_has_failed_says_why(cluster: Cluster, held: Held) -> None:
    held.pod("one", "exit 3")
    assert held.wait("one-pod", "Failed")["reason"].endswith("ended with exit code 3")
    held.job("two", "exit 3")
    assert held.wait("two-job", "Failed")["reason"].startswith("BackoffLimitExceeded: ")


def test_who_waits_and_who_runs_may_be_deleted(cluster: Cluster, held: Held) -> None:
    cpu = whole(cluster)
    held.job("runs", "sleep 3600", cpu, pods=2)
    held.wait("runs-job", "Running")
    held.pod("waits", "echo", cpu)
    held.job("follows", "echo", cpu)
    held.wait("follows-job", "Held")
    held.delete("pods", "waits")
    until(lambda: not held.status("waits-pod"))
    assert held.status("follows-job")["state"] == "Held"
    held.delete("jobs", "runs")
    held.wait("follows-job", "Finished")


def test_a_queue_that_is_killed_loses_nothing_and_starts_nothing_twice(
    cluster: Cluster, held: Held, fluxqueue: RunningFluxqueue
) -> None:
    cpu = whole(cluster)
    held.job("runs", "while [ ! -e /tmp/go ]; do sleep .1; done", cpu, pods=2)
    running = held.wait("runs-job", "Running")
    for name in ("a", "b", "c"):
        held.pod(name, f"echo {name}", cpu)
    waiting = {name: held.wait(f"{name}-pod", "Held")["jobid"] for name in "abc"}
    fluxqueue.stop(signal.SIGKILL)
    # What ends meanwhile is seen later.
    for pod in held.pods_of("runs"):
        cluster.kubectl("-n", held.namespace, "exec", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    until(lambda: held.get("jobs", "runs")["status"].get("succeeded") == 2)
    assert held.get("pods", "a")["spec"]["schedulingGates"]
    fluxqueue.start()
    ended = held.wait("runs-job", "Finished")
    assert (ended["jobid"], ended["startedAt"]) == (running["jobid"], running["startedAt"])
    assert len(held.pods_of("runs")) == 2
    for name in "abc":
        assert held.wait(f"{name}-pod", "Finished")["jobid"] == waiting[name]
        assert held.events(name).count("Released") == 1


def test_a_queue_that_is_away_lets_nothing_of_its_namespaces_be_created(
    cluster: Cluster, held: Held, fluxqueue: RunningFluxqueue
) -> None:
    fluxqueue.stop()
    try:
        assert not held.is_reviewed()
    finally:
        fluxqueue.start()
    held.pod("later", "echo")
    held.wait("later-pod", "Finished")


def test_a_group_of_pods_starts_together(cluster: Cluster, held: Held) -> None:
    cpu = whole(cluster)
    held.pod("full", "while [ ! -e /tmp/go ]; do sleep .1; done", cpu)
    held.wait("full-pod", "Running")
    for name in "ab":
        group = {"labels": {"fluxqueue/group": "both"}, "annotations": {"fluxqueue/group-size": "2"}}
        held.pod(name, f"echo {name}", cpu, **group)
        until(lambda: "both-group" in [one["metadata"]["name"] for one in held.get("fluxjobs")["items"]])
    until(lambda: "short" in held.status("both-group").get("reason", ""))
    cluster.kubectl("-n", held.namespace, "exec", "full", "--", "touch", "/tmp/go")
    status = held.wait("both-group", "Finished")
    assert sorted(Hostlist.parse(status["nodes"])) == ["node-0", "node-1"]
    for name in "ab":
        held.delete("pods", name)
    until(lambda: not held.status("both-group"))


def test_a_node_that_is_drained_takes_no_pods_until_it_is_back(cluster: Cluster, held: Held) -> None:
    cpu = whole(cluster)
    with drained(cluster, "node-0"):
        held.job("one", "echo one", cpu)
        held.job("two", "echo two", cpu, pods=2)
        assert held.wait("one-job", "Finished")["nodes"] == "node-1"
        until(lambda: "drained or cordoned (node-0)" in held.status("two-job").get("reason", ""))
        assert held.status("two-job")["state"] == "Held"
    held.wait("two-job", "Finished")


@pytest.mark.soak
def test_collisions_with_pods_of_others_cost_no_pod(cluster: Cluster, held: Held) -> None:
    """Two schedulers on one node would race, and the kubelet would fail the loser's pod for good (OutOfcpu)."""
    cpu = f"{int(whole(cluster)) * 600}m"
    with another_namespace(cluster) as other:
        where = f"/api/v1/namespaces/{other}/pods"
        for turn in range(size("collisions")):
            held.pod(f"held-{turn}", "true", cpu)
            body = {"metadata": {"name": f"foreign-{turn}"}, "spec": pod_spec("true", cpu)}
            cluster.api.request("POST", where, body)

        def unfinished() -> list[str]:
            pods = [*held.get("pods")["items"], *cluster.api.get(where)["items"]]
            failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
            assert not failed, failed[0]["status"]
            return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] != "Succeeded"]

        left = unfinished()
        while left:
            # The patience is for the next of them.
            until(lambda before=left: unfinished() != before)
            left = unfinished()


def test_nobody_waits_for_a_pod_of_others_that_never_ends(cluster: Cluster, held: Held) -> None:
    with another_namespace(cluster) as other:
        where = f"/api/v1/namespaces/{other}/pods"
        spec = {**pod_spec("sleep 3600", "100m"), "restartPolicy": "Always"}
        cluster.api.request("POST", where, {"metadata": {"name": "daemon"}, "spec": spec})
        until(lambda: cluster.api.get(f"{where}/daemon")["spec"].get("nodeName"))
        held.job("all", "echo all", whole(cluster), pods=2)
        until(lambda: "no node could ever serve it" in held.status("all-job").get("reason", ""))
        held.job("next", "echo next", "100m")
        held.wait("next-job", "Finished")
        assert held.status("all-job")["state"] == "Held"
    held.wait("all-job", "Finished")


@contextlib.contextmanager
def another_namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace without a queue."""
    name = f"other-{uuid.uuid4().hex[:8]}"
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    until(lambda: cluster.api.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
    try:
        yield name
    finally:
        cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


@contextlib.contextmanager
def binding(cluster: Cluster, held: Held) -> Iterator[None]:
    """The queue binds pods itself."""
    place = f"{QUEUES}/default"

    def patch(placement: str) -> None:
        body = {"spec": {"placement": placement}}
        cluster.api.request("PATCH", place, body, kind="application/merge-patch+json")

    def gives_names() -> bool:
        body = {"metadata": {"name": "probe"}, "spec": pod_spec("true", "0")}
        made = cluster.api.request("POST", f"/api/v1/namespaces/{held.namespace}/pods?dryRun=All", body)
        return bool(made["spec"]["schedulerName"] == "FluxionScheduler")

    patch("bind")
    try:
        # The webhook learns of it a moment later.
        until(gives_names)
        yield
    finally:
        patch("pin")
        until(lambda: not gives_names())


def running_under(held: Held, app: str) -> list[str]:
    """The names of the schedulers of the pods with a label that run."""
    found = held.cluster.api.get(f"/api/v1/namespaces/{held.namespace}/pods?labelSelector=app={app}")["items"]
    return [pod["spec"]["schedulerName"] for pod in found if pod["status"]["phase"] == "Running"]


def test_a_queue_that_binds_runs_what_fluence_and_fluxqueue_show_of_themselves(cluster: Cluster, held: Held) -> None:
    namespace = held.namespace
    with binding(cluster, held):
        # Fluence: a Job that names it as its scheduler, and one that names none.
        template = {"spec": {**pod_spec("echo potato", "0"), "schedulerName": "fluence"}}
        held.job("fluence", template=template)
        held.job("plain", "echo not potato")
        for name, scheduler, log in (("fluence", "fluence", "potato"), ("plain", "FluxionScheduler", "not potato")):
            held.wait(f"{name}-job", "Finished")
            assert cluster.kubectl("-n", namespace, "logs", f"job/{name}") == f"{log}\n"
            (pod,) = held.pods_of(name)
            assert pod["spec"]["schedulerName"] == scheduler
            events = [
                one for one in held.get("events")["items"] if one["involvedObject"]["name"] == pod["metadata"]["name"]
            ]
            assert [one["reportingComponent"] for one in events if one["reason"] == "Scheduled"] == [scheduler]
            held.delete("jobs", name)
        # fluxqueue: an object of each of five kinds.
        made = {}
        for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            app = {"app": kind.lower()}
            template = {"metadata": {"labels": app}, "spec": {**pod_spec("sleep 3600", "0"), "restartPolicy": "Always"}}
            path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"
            spec = {"replicas": 1, "selector": {"matchLabels": app}, "template": template}
            cluster.api.request("POST", path, {"metadata": {"name": kind.lower()}, "spec": spec})
            made[kind.lower()] = f"{path}/{kind.lower()}"
        held.pod("pod", labels={"app": "pod"})
        made["pod"] = f"/api/v1/namespaces/{namespace}/pods/pod"
        template = {"metadata": {"labels": {"app": "job"}}, "spec": pod_spec("sleep 3600", "0")}
        held.job("job", template=template)
        made["job"] = f"/apis/batch/v1/namespaces/{namespace}/jobs/job"
        for app in made:
            until(lambda app=app: running_under(held, app) == ["FluxionScheduler"])
        for path in made.values():
            cluster.api.request("DELETE", path, {"propagationPolicy": "Background"})
        until(lambda: not held.get("pods")["items"] and not held.get("fluxjobs")["items"])
        # Volumes are to be there before, and devices by claim are not planned.
        body = {"metadata": {"name": "device"}, "spec": pod_spec("true", "0")}
        body["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": "none"}]
        cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        assert held.wait("device-pod", "Refused")["reason"].startswith("resourceClaims")
        body = {"metadata": {"name": "volume"}, "spec": pod_spec("true", "0")}
        body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        assert "the PersistentVolumeClaim data is not bound" in held.wait("volume-pod", "Refused")["reason"]
        with volume(cluster, namespace, "data"):
            held.wait("volume-pod", "Finished")
            held.delete("pods", "volume")
    # By now the queue pins.
    body = {"metadata": {"name": "named"}, "spec": {**pod_spec("true", "0"), "schedulerName": "fluence"}}
    cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert "fluence is for queues with placement bind" in held.wait("named-pod", "Refused")["reason"]


@contextlib.contextmanager
def volume(cluster: Cluster, namespace: str, name: str) -> Iterator[None]:
    """A claim with its volume."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    path, full = "/api/v1/persistentvolumes", f"{namespace}-{name}"
    spec = {**common, "capacity": {"storage": "1Mi"}, "hostPath": {"path": "/tmp"}}
    cluster.api.request("POST", path, {"metadata": {"name": full}, "spec": spec})
    claim = {**common, "volumeName": full, "resources": {"requests": {"storage": "1Mi"}}}
    where = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    cluster.api.request("POST", where, {"metadata": {"name": name}, "spec": claim})
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{where}/{name}")
        cluster.api.request("DELETE", f"{path}/{full}")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"placement": "push"}, "spec.placement: Unsupported value"),
        ({"policy": "lifo"}, "spec.policy: Unsupported value"),
        ({"queueDepth": 0}, "spec.queueDepth"),
        ({"reservationDepth": -1}, "spec.reservationDepth"),
        ({"defaultDuration": "soon"}, "spec.defaultDuration"),
        ({"maxDuration": "0s"}, "must be more than zero"),
        ({"readyTimeout": "-1m"}, "spec.readyTimeout"),
        ({"topology": ["rack", "rack"]}, "spec.topology.1.: Duplicate value"),
        ({"quotas": [{"cpu": 1}]}, "spec.quotas.0..namespace: Required value"),
        ({"quotas": [{"namespace": "a"}]}, "spec.quotas.0."),
        ({"quotas": [{"namespace": "a", "cpu": -1}]}, "spec.quotas.0..cpu"),
        ({"quotas": [{"namespace": "a", "cpu": "-1"}]}, "spec.quotas.0..cpu"),
        ({"quotas": [{"namespace": "a", "memory": "1GB"}]}, "spec.quotas.0..memory"),
        ({"quotas": [{"namespace": "a", "jobs": -1}]}, "spec.quotas.0..jobs"),
        ({"quotas": [{"namespace": "a", "jobs": 1}, {"namespace": "a", "pods": 1}]}, "spec.quotas.1.: Duplicate value"),
    ],
)
def test_a_wrong_fluxqueue_is_refused_by_its_field(
    cluster: Cluster, fluxqueue: RunningFluxqueue, spec: dict[str, object], why: str
) -> None:
    body = {**first_queue(), "metadata": {"name": "wrong"}, "spec": spec}
    with pytest.raises(KubeError, match=why):
        cluster.api.request("POST", f"{QUEUES}?dryRun=All", body)


def test_the_first_queue_is_made_and_shows_its_nodes(cluster: Cluster, fluxqueue: RunningFluxqueue) -> None:
    until(lambda: nodes_of_queues(cluster) == {"default": 2})
    lines = cluster.kubectl("get", "fq").splitlines()
    assert lines[0].split() == ["NAME", "POLICY", "STATE", "NODES"]
    assert lines[1].split() == ["default", "easy", "Active", "2"]
