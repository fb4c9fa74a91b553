"""What pods tell: readiness, the lead's end, and why they do not run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.minicluster.operator.core import pods

Object = dict[str, Any]


def pod(index: int = 0, created: str = "2026-01-01T00:00:00Z", **status: Any) -> Object:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    meta = {"name": f"hello-{index}-{created[-3:]}", "labels": labels, "creationTimestamp": created}
    return {"metadata": meta, "spec": {}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "hello", "image": "busybox:9", "state": state, **more}])


def unscheduled(message: str, reason: str = "Unschedulable") -> Object:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("0/2 nodes are available: 2 Insufficient cpu.", "short of cpu on 2 nodes"),
        (
            "0/3 nodes are available: 1 Insufficient memory, 2 Insufficient nvidia.com/gpu. no new claims to "
            "deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            "short of memory on 1 node, short of nvidia.com/gpu on 2 nodes",
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, 1 node(s) were unschedulable.",
            "1 node unfit: had untolerated taint {a: b}, 1 node unfit: were unschedulable",
        ),
        ('persistentvolumeclaim "data" not found', 'persistentvolumeclaim "data" not found'),
        ("", "not scheduled"),
    ],
)
def test_the_schedulers_message_in_short(message: str, text: str) -> None:
    assert pods.trouble(unscheduled(message)) == text


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (pod(phase="Pending"), ""),
        (waiting("ContainerCreating"), ""),
        (unscheduled("", "SchedulingGated"), "held back by a scheduling gate"),
        (
            waiting("ImagePullBackOff", "Back-off pulling image"),
            "image busybox:9 of container hello cannot be pulled (ImagePullBackOff): Back-off pulling image",
        ),
        (
            waiting(
                "ErrImagePull",
                "read udp 10.0.0.7:45678->10.0.0.10:53, dial [fd00::7%eth0]:1: [fd00::7]:2->[fd00::1]:53",
            ),
            "image busybox:9 of container hello cannot be pulled (ErrImagePull): read udp 10.0.0.10:53, dial "
            "[fd00::7%eth0]:1: [fd00::1]:53",
        ),
        (
            waiting("CreateContainerConfigError", 'secret "no" not found'),
            'container hello cannot be started (CreateContainerConfigError): secret "no" not found',
        ),
        (
            waiting("CrashLoopBackOff", restartCount=2, lastState={"terminated": {"exitCode": 3}}),
            "container hello ended with status 3 2 times and waits for a restart",
        ),
        (
            pod(initContainerStatuses=[{"name": "view", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]),
            "container view ended with status 1",
        ),
        (pod(phase="Failed", reason="Evicted", message="low on disk"), "Evicted: low on disk"),
    ],
)
def test_why_a_pod_does_not_run(one: Object, text: str) -> None:
    assert pods.trouble(one) == text


def test_pods_with_the_same_trouble_are_told_together() -> None:
    short = unscheduled("0/1 nodes are available: 1 Insufficient cpu.")
    assert pods.troubles([short, short]) == ["short of cpu on 1 node"]
    assert pods.troubles([short, waiting("InvalidImageName"), short]) == [
        "short of cpu on 1 node (2 pods)",
        "image busybox:9 of container hello cannot be pulled (InvalidImageName) (1 pod)",
    ]


def test_the_newest_pod_of_an_index_counts() -> None:
    old, new = pod(1, "2026-01-01T00:00:01Z", phase="Failed"), pod(1, "2026-01-01T00:00:02Z", phase="Running")
    assert pods.current([new, pod(0), old]) == [pod(0), new]
    assert pods.current([{"metadata": {"name": "services"}}]) == []


def ended(code: int, message: str = "", phase: str = "Failed", reason: str = "Error") -> Object:
    state = {"exitCode": code, "message": message, "reason": reason, "finishedAt": "2026-01-01T00:00:09Z"}
    return pod(phase=phase, containerStatuses=[{"name": "hello", "state": {"terminated": state}}])


def test_the_leads_end_is_what_its_runner_tells() -> None:
    told = {"exit": 137, "reason": "in words", "times": {"run": 1.0}, "jobs": {"inactive": 1}, "cause": "cancel"}
    end = pods.lead_end(ended(247, json.dumps(told)), "hello")
    assert end == pods.LeadEnd(137, "in words", "2026-01-01T00:00:09Z", {"run": 1.0}, {"inactive": 1}, "cancel")


def test_a_container_that_was_killed_tells_it_by_itself() -> None:
    end = pods.lead_end(ended(137, reason="OOMKilled"), "hello")
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "the lead's container ended with exit code 137 (OOMKilled)")


@pytest.mark.parametrize("message", ["plain text", "[1]", '{"exit": true}', '{"exit": "9"}', "{"])
def test_a_message_that_is_not_our_runners_leaves_the_containers_code(message: str) -> None:
    end = pods.lead_end(ended(6, message), "hello")
    assert end is not None and end.exit_code == 6


def test_a_container_that_is_started_again_has_not_ended() -> None:
    assert pods.lead_end(ended(1, phase="Running"), "hello") is None
    assert pods.lead_end(pod(phase="Failed"), "hello") is None


def test_a_pod_that_is_being_deleted_is_neither_ready_nor_running() -> None:
    one = pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert pods.is_ready(one) and pods.is_running(one)
    one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not pods.is_ready(one) and not pods.is_running(one)


def test_a_pod_whose_node_does_not_answer_is_not_ready_whatever_its_kubelet_said_last() -> None:
    ready = [{"name": "hello", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    kinds = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    one = pod(phase="Running", containerStatuses=ready, conditions=kinds)
    one["spec"]["nodeName"] = "node-1"
    one["metadata"]["labels"]["flux-framework.org/minicluster"] = "hello"
    assert not pods.is_ready(one)
    assert pods.troubles([one]) == ["node node-1 does not answer"]
    one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (text,) = pods.troubles([one])
    assert "is being deleted on a node that does not answer: it is recreated once" in text
    # A readiness gate of somebody else says nothing of the node.
    del one["metadata"]["deletionTimestamp"]
    kinds[0]["reason"] = "ReadinessGatesNotReady"
    assert pods.is_ready(one) and not pods.troubles([one])
