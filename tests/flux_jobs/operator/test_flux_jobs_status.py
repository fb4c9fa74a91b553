"""The end of a Job that is a cluster, and what is told of its start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.flux_jobs.operator.status import end_of, progress
from headrace.minicluster.operator.core.observed import Lead

Object = dict[str, Any]

TIME, LATER = "2023-11-14T22:13:20Z", "2023-11-14T22:14:00Z"
CREATED = 1_700_000_000.0
INDEX = "batch.kubernetes.io/job-completion-index"


def job(kind: str = "", reason: str = "") -> Object:
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": LATER}]
    meta = {"name": "hello", "uid": "u1", "creationTimestamp": TIME}
    return {"metadata": meta, "status": {"conditions": conditions if kind else []}}


def pod(index: int, phase: str = "Running", code: int = 0, message: Object | None = None, **status: Any) -> Object:
    state: Object = {"running": {"startedAt": TIME}}
    if phase in ("Succeeded", "Failed"):
        state = {"terminated": {"exitCode": code, "finishedAt": LATER, "message": json.dumps(message or {})}}
    owner = {"kind": "Job", "name": "hello", "uid": "u1", "controller": True}
    meta = {"name": f"hello-{index}-x", "labels": {INDEX: str(index)}, "creationTimestamp": TIME}
    found = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}], **status}
    return {"metadata": {**meta, "ownerReferences": [owner]}, "spec": {"nodeName": "n"}, "status": found}


def said(code: int, reason: str = "", **more: Any) -> Object:
    return {"exit": code, "reason": reason, "times": {"run": CREATED + 5}, **more}


def ended(job: Object, *pods: Object) -> Object:
    end = end_of(job, list(pods), "main")
    assert end is not None
    return {**json.loads(end.annotation()), "event": end.report().reason}


def test_a_success() -> None:
    found = ended(job("Complete"), pod(0, "Succeeded", 0, said(0)), pod(1, "Succeeded"))
    assert found == {
        "exit": 0,
        "reason": "",
        "times": {"created": TIME, "started": "2023-11-14T22:13:25Z", "finished": LATER},
        "event": "Finished",
    }


def test_a_failure_has_the_code_that_the_lead_told() -> None:
    found = ended(job("Failed", "PodFailurePolicy"), pod(0, "Failed", 247, said(137, "the job was ended by signal 9")))
    assert (found["exit"], found["reason"], found["event"]) == (137, "the job was ended by signal 9", "Failed")


def test_an_end_is_not_told_before_that_of_the_lead() -> None:
    assert end_of(job("FailureTarget"), [pod(0)], "main") is None
    assert end_of(job(), [pod(0, "Succeeded", 0, said(0))], "main") is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("DeadlineExceeded", "it ran longer than spec.activeDeadlineSeconds"),
        ("BackoffLimitExceeded", "pods have failed more often than spec.backoffLimit allows: SIGTERM"),
        ("PodFailurePolicy", "SIGTERM"),
    ],
)
def test_a_lead_that_was_killed_has_no_exit_code_of_its_command(reason: str, text: str) -> None:
    found = ended(job("Failed", reason), pod(0, "Failed", 143, said(143, "SIGTERM", killed=True)))
    assert ("exit" in found, found["reason"]) == (False, text)


def test_a_lead_that_ended_for_another_pod_has_its_end() -> None:
    lead = pod(0, "Failed", 143, said(143, "SIGTERM", killed=True))
    found = ended(job("Failed", "PodFailurePolicy"), lead, pod(1, "Failed", 1, said(1, "no keys")))
    assert (found["exit"], found["reason"]) == (1, "pod hello-1: no keys")


def test_an_end_without_its_pods_says_what_the_job_does() -> None:
    assert ended(job("Failed", "DeadlineExceeded"))["reason"] == "it ran longer than spec.activeDeadlineSeconds"
    assert ended(job("Failed", "Other"))["reason"] == "m"
    assert ended(job("Complete")) == {"reason": "", "times": {"created": TIME, "finished": LATER}, "event": "Finished"}


def test_brokers_are_up_when_the_lead_says_so() -> None:
    its = [pod(0), pod(1)]
    up = Lead(state="running", brokers_up=2)
    assert [one.message for one in progress(2, its, up, CREATED)] == ["2 of 2 brokers are up"]
    assert list(progress(2, its, Lead(state="running", brokers_up=1), CREATED)) == []


def test_what_is_short_is_told_when_pods_are_late() -> None:
    message = "0/2 nodes are available: 2 Insufficient cpu."
    waits = pod(1, "Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": message}])
    assert list(progress(2, [pod(0), waits], None, CREATED + 9)) == []
    (found,) = progress(2, [pod(0), waits], None, CREATED + 11)
    assert (found.reason, found.message) == ("PodsNotRunning", "1 of 2 pods run: short of cpu on 2 nodes")
