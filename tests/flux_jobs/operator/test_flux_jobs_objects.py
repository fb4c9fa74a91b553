"""Secret, Service and plan of a Job that is a cluster."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from labelled_world import ID, admitted

from headrace.flux_jobs.operator import objects
from headrace.minicluster.api.pod_plan import PodPlan
from headrace.minicluster.operator.keys import fresh_keys, keys_of

Object = dict[str, Any]


def there(body: Object) -> Object:
    """A Job that the API server has."""
    found = copy.deepcopy(body)
    found["metadata"].update(namespace="ns", uid="u1")
    return found


def planned(job: Object, most: int = 0) -> PodPlan:
    return objects.plan(objects.cluster_of(job, most), service=f"headrace-{ID}", domain="cluster.local")


def test_the_secret_belongs_to_the_job_and_has_plan_and_keys() -> None:
    job, keys = there(admitted()), fresh_keys()
    plan = planned(job)
    found = objects.secret(job, keys, plan)
    assert found["metadata"]["name"] == f"headrace-{ID}"
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "u1", True)
    assert sorted(found["data"]) == [
        "channel-client.cert",
        "channel-client.pub",
        "channel.cert",
        "curve.cert",
        "plan.json",
    ]
    assert keys_of(found) == keys
    assert objects.plan_in(found) == plan


def test_keys_are_not_in_the_plan() -> None:
    keys = fresh_keys()
    found = objects.secret(there(admitted()), keys, planned(there(admitted())))
    text = base64.b64decode(found["data"]["plan.json"]).decode()
    assert not any(line.strip() in text for one in keys for line in one.splitlines() if "key" in line)


@pytest.mark.parametrize("data", [{}, {"plan.json": "?"}, {"plan.json": base64.b64encode(b"{}").decode()}])
def test_a_secret_without_a_plan_is_told(data: Object) -> None:
    with pytest.raises(ValueError, match="Secret s has no plan"):
        objects.plan_in({"metadata": {"name": "s"}, "data": data})


def test_the_service_has_the_names_of_pods_that_are_not_ready() -> None:
    job = there(admitted())
    found = objects.service(job)
    assert objects.has_own_service(job)
    assert found["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    assert found["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": job["spec"]["template"]["metadata"]["labels"],
    }


def test_a_job_with_a_subdomain_has_a_service_of_its_own() -> None:
    pod = {"containers": [{"name": "hello", "image": "i", "command": ["c"]}], "subdomain": "own"}
    job = there(admitted(pod=pod))
    assert not objects.has_own_service(job)
    assert planned(job).service == "own"


@pytest.mark.parametrize(
    ("options", "size", "wanted", "most"),
    [("", 1, 1, 2), ("", 4, 2, 2), ("{maxSize: 4}", 4, 4, 4), ("{maxSize: 4}", 6, 4, 4), ("{maxSize: 4}", 1, 1, 4)],
)
def test_a_scaled_job_keeps_its_hosts(options: str, size: int, wanted: int, most: int) -> None:
    first = planned(there(admitted(options)))
    plan = objects.resized(first, size)
    assert plan.size == wanted
    assert plan.hosts == first.hosts == f"hello-[0-{most - 1}]"
    assert plan.quorum == plan.attrs.get("broker.quorum", "") == ("" if wanted == most else str(wanted))
    assert objects.resized(plan, first.size) == first


def test_only_our_own_failure_policy_replaces_pods_that_were_killed() -> None:
    job = there(admitted())
    assert planned(job).replaces_killed
    job["spec"]["podFailurePolicy"]["rules"].append({"action": "Ignore", "onPodConditions": [{"type": "Ready"}]})
    assert not planned(job).replaces_killed
