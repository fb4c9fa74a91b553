"""The cluster queue on many nodes that kwok plays: gangs, and a wide job in a stream of small ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from kubecluster import build, kwok
from kubecluster.cluster import Cluster, unmet
from kubecluster.faults import stopped
from patience import PATIENCE, until
from running_fluxqueue import QUEUES, Held, RunningFluxqueue, nodes_of_queues, pod_spec, running

from headrace.k8s.objects.timestamps import seconds_of
from sizes import size

NODES = 8


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, RunningFluxqueue]]:
    """A cluster of NODES nodes with four cores each, and its queue."""
    if unmet(0):
        pytest.skip(unmet(0))
    if not build.is_built("kwok"):
        pytest.skip("needs kwok: `make kube-tools` builds it")
    cluster = Cluster.up(f"queued-{os.getpid()}", nodes=0)
    try:
        kwok.play(cluster, NODES, capacity={"cpu": "4", "memory": "64Gi", "pods": "1000"})
        with running(cluster, tmp_path_factory.mktemp("fluxqueue")) as queue:
            until(lambda: nodes_of_queues(cluster) == {"default": NODES})
            yield cluster, queue
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def queued(played: tuple[Cluster, RunningFluxqueue]) -> Held:
    """A namespace of that cluster."""
    cluster = played[0]
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    until(lambda: cluster.api.get("/api/v1/namespaces/team/serviceaccounts")["items"])
    return Held(cluster, "team")


def end(held: Held, job: str) -> None:
    """All pods of a job end with success."""
    change = {"metadata": {"annotations": {"headrace/exit": "0"}}}
    for pod in held.pods_of(job):
        path = f"/api/v1/namespaces/{held.namespace}/pods/{pod['metadata']['name']}"
        held.cluster.api.request("PATCH", path, change, kind="application/merge-patch+json")


def placed(held: Held, job: str) -> int:
    return sum(1 for pod in held.pods_of(job) if pod["spec"].get("nodeName"))


def test_of_two_gangs_that_do_not_fit_together_never_both_hold_nodes(queued: Held) -> None:
    for turn in range(size("gangs")):
        first, second = f"first-{turn}", f"second-{turn}"
        for name in (first, second):
            queued.job(name, cpu="4", pods=5)
        queued.wait(f"{first}-job", "Running")
        assert queued.wait(f"{second}-job", "Held")["position"] == 1
        assert placed(queued, second) == 0
        end(queued, first)
        queued.wait(f"{second}-job", "Running")
        assert placed(queued, first) == placed(queued, second) == 5
        end(queued, second)
        queued.wait(f"{second}-job", "Finished")


def test_a_wide_job_starts_at_its_first_estimate_in_a_stream_of_small_ones(queued: Held) -> None:
    """Under EASY the first job's start is reserved, so that nothing that comes later delays it."""
    # Longer than the test takes: a job that runs beyond its duration moves the reserved start.
    duration = {"fluxqueue/duration": "4h"}
    small = [f"small-{index}" for index in range(NODES)]
    for name in small:
        queued.job(name, cpu="4", annotations=duration)
    for name in small:
        queued.wait(f"{name}-job", "Running")
    queued.job("wide", cpu="4", pods=NODES, annotations={"fluxqueue/duration": "1h"})
    until(lambda: "estimatedStart" in queued.status("wide-job"))
    estimate = seconds_of(queued.status("wide-job")["estimatedStart"])
    late = [f"late-{index}" for index in range(2 * NODES)]
    for name in late:
        queued.job(name, cpu="4", annotations=duration)
    for name in small:
        end(queued, name)
    status = queued.wait("wide-job", "Running")
    # The small ones ended before their time.
    assert seconds_of(status["startedAt"]) <= estimate + 3
    assert not any(placed(queued, name) for name in late)
    end(queued, "wide")
    for name in late:
        until(lambda name=name: placed(queued, name) == 1)
        end(queued, name)
        queued.wait(f"{name}-job", "Finished")


@pytest.mark.soak
def test_a_deployment_grows_to_many_pods_and_shrinks_back(
    played: tuple[Cluster, RunningFluxqueue], queued: Held
) -> None:
    many = size("replicas")
    # kube-controller-manager makes and deletes 20 a second.
    patience = PATIENCE + many / 10
    spent = played[1].cpu_seconds()
    queued.replicated("Deployment", "web", 1, "1m")
    queued.wait("web-deployment", "Running")

    def has(pods: int) -> bool:
        told = queued.status("web-deployment")
        counts = dict.fromkeys(("wanted", "placed", "running"), pods)
        return told.get("state") == "Running" and told["pods"] == counts

    began = time.monotonic()
    queued.scale("Deployment", "web", many)
    until(lambda: has(many), patience)
    grown = time.monotonic()
    queued.scale("Deployment", "web", 1)
    until(lambda: has(1), patience)
    print(
        f"to {many} pods in {grown - began:.0f} s, back in {time.monotonic() - grown:.0f} s; the queue took"
        f" {played[1].cpu_seconds() - spent:.1f} s of CPU"
    )
    queued.cluster.kubectl("-n", "team", "delete", "deployment/web", "--wait=false")
    until(lambda: not queued.status("web-deployment"))


def test_limits_of_a_queue_and_an_outage_of_the_api_server(
    played: tuple[Cluster, RunningFluxqueue], queued: Held
) -> None:
    """Quotas, durations that are enforced, pods that are not bound: what Kubernetes must accept of each."""
    cluster, queue = played

    def change(**spec: object) -> None:
        cluster.api.request("PATCH", f"{QUEUES}/default", {"spec": spec}, kind="application/merge-patch+json")

    duration = {"fluxqueue/duration": "4h"}
    change(quotas=[{"namespace": "team", "jobs": 1, "cpu": "6500m"}], enforceDuration=True)
    queued.job("one", cpu="4", annotations=duration)
    queued.wait("one-job", "Running")
    assert queued.get("jobs", "one")["spec"]["activeDeadlineSeconds"] == 4 * 3600
    queued.pod("two", cpu="3", annotations=duration)
    until(lambda: "over the quota of namespace team: " in queued.status("two-pod").get("reason", ""))
    told = queued.status("two-pod")["reason"]
    assert "cpu 7 of 6500m (500m over, 4 taken)" in told
    assert "jobs 2 of 1 (1 over, 1 taken)" in told
    with stopped(cluster, "kube-apiserver"):
        pass
    change(quotas=[])

    def goes_on() -> bool:
        # An outage that is longer than a lease ends the queue, which its Deployment starts again.
        queue.start_where_ended()
        return queued.status("two-pod").get("state") == "Running"

    until(goes_on)
    assert queued.get("pods", "two")["spec"]["activeDeadlineSeconds"] == 4 * 3600
    end(queued, "one")
    queued.wait("one-job", "Finished")
    # A claim that is not there keeps kube-scheduler from binding.
    change(readyTimeout="1s")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    bare = {**pod_spec("true", "1"), "volumes": volumes}
    cluster.api.request("POST", "/api/v1/namespaces/team/pods", {"metadata": {"name": "bare"}, "spec": bare})
    queued.job("unbound", cpu="1", template={"spec": bare})
    until(lambda: "not bound by kube-scheduler in 1.000s: " in queued.status("bare-pod").get("reason", ""))
    assert "missing" in queued.status("bare-pod")["reason"]
    until(lambda: queued.events("unbound").count("NotBound") > 1)
    change(readyTimeout="10m")
    queued.wait("unbound-job", "Released")
    queued.delete("jobs", "unbound")
    until(lambda: not queued.status("unbound-job"))
