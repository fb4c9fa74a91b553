"""What a pod says of its end, and the exit code of its container."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.minicluster.api.pod_plan import make_pod_plan
from headrace.minicluster.api.validate import check
from headrace.minicluster.run.pod.ending import Ending, container_status, failure, message


@pytest.mark.parametrize(
    ("status", "killed", "replaces_killed", "code"),
    [
        (0, False, True, 0),
        (3, False, True, 3),
        (139, False, True, 139),
        (137, False, True, 247),
        (143, False, True, 241),
        # The pod itself was killed: it is to be replaced.
        (143, True, True, 143),
        (137, True, True, 137),
        # A policy of the user's own names the codes that it is about.
        (137, False, False, 137),
    ],
)
def test_a_job_that_ended_like_a_killed_pod_has_another_code_where_that_one_is_replaced(
    status: int, killed: bool, replaces_killed: bool, code: int
) -> None:
    end = Ending(status, "", {}, {}, killed=killed)
    assert container_status(end, replaces_killed) == code
    assert json.loads(message(end))["exit"] == status


@pytest.mark.parametrize(
    ("spec", "replaces"),
    [
        ({}, True),
        ({"pod": {"restartPolicy": "Never"}}, True),
        ({"pod": {"restartPolicy": "OnFailure"}}, False),
        (
            {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [9]}}]}},
            False,
        ),
    ],
)
def test_only_our_own_pod_failure_policy_replaces_killed_pods(spec: dict[str, Any], replaces: bool) -> None:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    container = {"image": "debian:12", "command": "true"}
    plan = make_pod_plan(check({**head, "spec": {"size": 1, "containers": [container], **spec}}))
    assert plan.replaces_killed is replaces


@pytest.mark.parametrize(
    ("job", "cause", "reason"),
    [
        ({}, "", ""),
        ({"exception_occurred": False}, "", ""),
        ({"exception_occurred": True, "exception_type": "note", "exception_severity": 3}, "", ""),
        ({"exception_type": "cancel", "exception_note": ""}, "cancel", "the job was cancelled"),
        ({"exception_type": "cancel", "exception_note": "by me"}, "cancel", "the job was cancelled: by me"),
        ({"exception_type": "timeout", "exception_note": "x"}, "timeout", "the job ran longer than its time limit"),
        ({"exception_type": "alloc", "exception_note": "no"}, "alloc", "the job has failed (alloc): no"),
    ],
)
def test_the_exception_that_ended_a_job_is_its_reason(job: dict[str, Any], cause: str, reason: str) -> None:
    fatal = {"exception_occurred": True, "exception_severity": 0} if job else {}
    assert failure({**fatal, **job}) == (cause, reason)
    assert json.loads(message(Ending(1, reason, {}, {}, cause=cause))).get("cause", "") == cause
