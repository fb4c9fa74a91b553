"""The end of an object, by kind: conditions, phases, and a Job's interim conditions."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.k8s.objects.conditions import (
    Ended,
    condition,
    ended,
    ended_by,
    has_ended,
    holds,
    is_suspended,
    job_end,
)
from headrace.k8s.objects.kinds import JOBS, JOBSETS, MINICLUSTERS, MPIJOBS, PODS, TRAINJOBS, Kind

BEGAN, DONE = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def having(*types: str, status: str = "True", **fields: Any) -> dict[str, Any]:
    """An object with conditions of some types."""
    found = [{"type": one, "status": status, "lastTransitionTime": BEGAN, "reason": f"Is{one}"} for one in types]
    return {"status": {"conditions": found, **fields}}


@pytest.mark.parametrize(
    ("kind", "success"), [(JOBS, "Complete"), (JOBSETS, "Completed"), (TRAINJOBS, "Complete"), (MPIJOBS, "Succeeded")]
)
def test_a_kind_ends_by_the_conditions_of_its_api(kind: Kind, success: str) -> None:
    assert ended(kind, having(success)) == Ended(True, f"Is{success}", "", BEGAN)
    assert ended(kind, having("Failed")) == Ended(False, "IsFailed", "", BEGAN)
    assert ended(kind, having("Suspended", "Finished")) is None
    for item in (having(success, "Failed", status="False"), {}, {"status": {"conditions": None}}, None):
        assert not has_ended(kind, item)


@pytest.mark.parametrize(("kind", "success"), [(PODS, "Succeeded"), (MINICLUSTERS, "Finished")])
def test_a_kind_with_phases_ends_by_them(kind: Kind, success: str) -> None:
    assert ended(kind, {"status": {"phase": success}}) == Ended(True, "", "", "")
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "out of disk"}}
    end = ended(kind, failed)
    assert end == Ended(False, "Evicted", "out of disk", "")
    assert end.failed and end.text == "Evicted: out of disk"
    assert has_ended(kind, failed)
    for item in ({"status": {"phase": "Running"}}, {}, None):
        assert ended(kind, item) is None
        assert not has_ended(kind, item)


def test_failure_comes_before_success() -> None:
    assert job_end(having("SuccessCriteriaMet", "FailureTarget")) == Ended(False, "IsFailureTarget", "", BEGAN)
    assert ended_by(having("A", "B"), {"B": True, "A": False}) == Ended(True, "IsB", "", BEGAN)


def test_the_interim_conditions_of_a_job_tell_its_end_before_its_pods_have_terminated() -> None:
    for name, succeeded in (("SuccessCriteriaMet", True), ("FailureTarget", False)):
        job = having(name)
        assert job_end(job) == Ended(succeeded, f"Is{name}", "", BEGAN)
        assert not has_ended(JOBS, job)
    assert job_end(having("Complete", completionTime=DONE)) == Ended(True, "IsComplete", "", DONE)


def test_a_condition_is_found_by_its_type() -> None:
    status = having("Ready")["status"]
    assert condition(status, "Ready")["reason"] == "IsReady"
    assert holds(status, "Ready")
    assert not holds(having("Ready", status="Unknown")["status"], "Ready")
    assert condition(status, "Other") == condition(None, "Ready") == {}


def test_a_field_suspends_an_object() -> None:
    assert is_suspended({"spec": {"suspend": True}})
    assert not is_suspended({"spec": {"suspend": False}})
    assert not is_suspended({})
    assert is_suspended({"spec": {"runPolicy": {"suspend": True}}}, ("spec", "runPolicy", "suspend"))
    assert not is_suspended({"spec": {"suspend": True}}, ())
