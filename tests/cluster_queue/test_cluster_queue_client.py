"""What a user sees of the queues: positions, how many jobs may not be read, names; and what a hold writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.cluster_queue import client
from headrace.cluster_queue.cycle import external
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.runtime.api import ApiError, Listing

Object = dict[str, Any]


def job(name: str, position: int = 0, state: str = "Held", namespace: str = "team", **more: Any) -> Object:
    number = int(name[1:]) if name[1:].isdigit() else 0
    status = {"state": state, "jobid": str(number), "queuedAt": "2026-01-01T00:00:00Z"}
    kind = more.pop("kind", "job")
    owner = {"kind": kind.capitalize(), "name": name, "uid": f"uid-{name}", "apiVersion": "v1"}
    return {
        "metadata": {"name": f"{name}-{kind}", "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"name": name, "queue": "default", "nodes": 1, **more},
        "status": {**status, **({"position": position} if position else {})},
    }


def shown(found: client.Listed) -> list[tuple[str, int, bool]]:
    return [(line.job["spec"]["name"], line.position, line.is_exact) for line in found.lines]


def test_who_reads_all_has_exact_positions_though_the_status_has_two_digits() -> None:
    jobs = [
        job(f"j{n}", n if n <= 50 else n // 10 * 10, namespace="team" if n % 50 == 7 else "x") for n in range(1, 90)
    ]
    found = client.lines_of(reversed(jobs), "team", True, False)
    assert shown(found) == [("j7", 7, True), ("j57", 57, True)]
    assert found.unread == {}
    # A higher priority goes before all who came earlier.
    first = client.lines_of([*jobs, job("j99", 1, priority=5)], "team", True, False)
    assert shown(first) == [("j99", 1, True), ("j7", 8, True), ("j57", 58, True)]


def test_who_reads_one_namespace_is_told_how_many_are_before_the_last() -> None:
    found = client.lines_of(
        [job("j7", 7), job("j53", 520), job("j9"), job("j1", state="Running")], "team", False, False
    )
    assert shown(found) == [("j1", 0, True), ("j9", 0, True), ("j7", 7, True), ("j53", 520, False)]
    assert found.unread == {"default": 518}


@pytest.mark.parametrize("reads_all", [True, False])
def test_growth_that_waits_has_a_place_in_the_order_which_is_not_shown(reads_all: bool) -> None:
    grows, first, last = job("j1", state="Running"), job("j2", 1), job("j3", 3)
    grows["status"]["waits"] = [{"pods": 2, "since": "2026-01-01T00:01:00Z"}]
    last["status"]["queuedAt"] = "2026-01-01T00:02:00Z"
    found = client.lines_of([last, grows, first], "team", reads_all, False)
    assert shown(found) == [("j1", 0, True), ("j2", 1, True), ("j3", 3, True)]
    assert not any(found.unread.values())
    # One that grows behind all that wait is before none of them, nor is one that is over its quota.
    last["status"]["position"] = 2
    for waits, quota in (("2026-01-01T00:03:00Z", "True"), ("2026-01-01T00:01:00Z", "False")):
        grows["status"]["waits"][0]["since"] = waits
        grows["status"]["conditions"] = [{"type": "Quota", "status": quota}]
        found = client.lines_of([last, grows, first], "team", reads_all, False)
        assert shown(found) == [("j1", 0, True), ("j2", 1, True), ("j3", 2, True)]
        assert not any(found.unread.values())


def test_what_has_ended_is_listed_if_it_is_asked_for() -> None:
    jobs = [job("j1", state="Finished"), job("j2", state="Failed"), job("j3", state="Refused")]
    assert [name for name, _, _ in shown(client.lines_of(jobs, "", True, False))] == ["j3"]
    assert [name for name, _, _ in shown(client.lines_of(jobs, "", True, True))] == ["j1", "j2", "j3"]


class Answers:
    """An API server with FluxJobs, which refuses to list those of all namespaces."""

    def __init__(self, *jobs: Object) -> None:
        self.jobs = list(jobs)
        self.objects: dict[tuple[str, str], Object] = {}
        self.merged: list[tuple[str, str, Object]] = []

    async def list_objects(self, kind: Kind, namespace: str = "") -> Listing:
        if not namespace:
            raise ApiError(403, "Forbidden", f"cannot list resource {kind.plural}")
        return Listing(self.jobs, "1")

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if (kind.plural, name) not in self.objects:
            raise ApiError(403 if kind.plural == "jobsets" else 404, "NotFound", name)
        return self.objects[kind.plural, name]

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object) -> None:
        self.merged.append((kind.plural, name, body["metadata"]))


def found(api: Any, name: str) -> client.Line:
    return asyncio.run(client.found(api, "team", name))


def test_a_job_is_found_by_the_name_of_its_object() -> None:
    api = Answers(job("both", 1), job("both", 2, kind="pod"), job("one", 3))
    assert found(api, "one").position == 3
    assert found(api, "job/one").job["metadata"]["name"] == "one-job"
    assert found(api, "pods/both").position == 2
    assert found(api, "both-pod").position == 2
    for name, why in (
        ("both", "both is the name of 2 jobs in namespace team: say job/both, pod/both"),
        ("nope", "no object nope waits or runs in namespace team; there are both, one"),
        ("pod/one", "no object pod/one waits"),
    ):
        with pytest.raises(client.NoSuchJob, match=why):
            found(api, name)


def test_kinds_are_those_of_kubectl_and_a_pod_of_a_group_is_found_by_its_own_name() -> None:
    grouped = job("g", 2, kind="group")
    grouped["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": name, "uid": name} for name in ("p1", "p2")]
    api = Answers(job("d1", 1, kind="deployment"), grouped)
    for name in ("deploy/d1", "Deployment/d1", "deployments.apps/d1", "deployment.apps/d1"):
        assert found(api, name).position == 1
    for name in ("p1", "po/p2", "pods/p1", "g", "group/g"):
        assert found(api, name).position == 2
    for name in ("sts/d1", "job/p1", "p3"):
        with pytest.raises(client.NoSuchJob, match=f"no object {name} waits"):
            found(api, name)


def test_a_pod_leads_to_the_job_of_what_has_made_it() -> None:
    def made(named: str, **owner: str) -> Object:
        """An object with a controller of a kind in apps/v1."""
        head = {"apiVersion": "apps/v1", "controller": True, **owner}
        return {"metadata": {"name": named, **({"ownerReferences": [head]} if owner else {})}, "spec": {}}

    grouped = job("g", 2, kind="group", type=9)
    api = Answers(job("d1", 1, kind="deployment"), grouped)
    api.objects["pods", "d1-x-y"] = made("d1-x-y", kind="ReplicaSet", name="d1-x", uid="rs")
    api.objects["replicasets", "d1-x"] = made("d1-x", kind="Deployment", name="d1", uid="uid-d1")
    late = api.objects["pods", "late"] = made("late")
    late["metadata"]["labels"] = {"fluxqueue/group": "g"}
    for name, position in (("d1-x-y", 1), ("pod/d1-x-y", 1), ("late", 2)):
        assert found(api, name).position == position
    left = api.objects["pods", "left"] = made("left")
    left["metadata"]["labels"] = {"fluxqueue/skip": "true"}
    api.objects["pods", "round"] = made("round", kind="ReplicaSet", name="ring", uid="ring")
    api.objects["replicasets", "ring"] = made("ring", kind="ReplicaSet", name="ring", uid="ring")
    for name, why in (("left", "pod/left has a label that excludes it"), ("round", "no object round waits")):
        with pytest.raises(client.NoSuchJob, match=why):
            found(api, name)


def test_an_object_that_its_user_has_suspended_waits_in_no_queue() -> None:
    api = Answers(job("one", 1))
    api.objects["jobs", "mine"] = {"metadata": {"name": "mine"}, "spec": {"suspend": True}}
    held = {"metadata": {"annotations": {"fluxqueue/held": "true"}}, "spec": {"suspend": True}}
    api.objects["jobs", "held"] = held
    for name in ("mine", "job/mine"):
        with pytest.raises(client.NoSuchJob, match="job/mine is suspended by its user, and waits in no queue until"):
            found(api, name)
    for name in ("held", "sts/mine"):
        with pytest.raises(client.NoSuchJob, match=f"no object {name} waits"):
            found(api, name)


def test_nodes_are_those_that_a_job_has_and_of_what_has_ended_those_it_had() -> None:
    one = job("one", state="Running")
    one["status"].update(nodes="n[0-3]", freed="1-2")
    assert client.nodes_of(one) == "n[0,3]"
    one["status"]["state"] = "Finished"
    assert client.nodes_of(one) == "n[0-3]"
    assert client.nodes_of(job("two", 1)) == ""


def test_a_hold_annotates_the_object_and_what_runs_is_not_held() -> None:
    api: Any = Answers(job("one", 1), job("two", state="Running"))
    asyncio.run(client.put_on_hold(api, found(api, "one").job, True))
    asyncio.run(client.put_on_hold(api, found(api, "one").job, False))
    (plural, name, held), (_, _, released) = api.merged
    assert (plural, name) == ("jobs", "one")
    assert held == {"uid": "uid-one", "annotations": {"fluxqueue/hold": "true"}}
    assert released["annotations"] == {"fluxqueue/hold": None}
    with pytest.raises(client.NoSuchJob, match="two is Running: only waiting jobs can be held and released"):
        asyncio.run(client.put_on_hold(api, found(api, "two").job, True))


def test_a_reservation_of_another_scheduler_is_not_held() -> None:
    reserved = external.made_of(7, "team", "default", {"n0": {"cpu": 1000}}, {}, 60, 1_800_000_000)
    reserved["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    reserved["status"] = external.status_of(reserved, 1_700_000_000)
    api: Any = Answers(reserved)
    with pytest.raises(
        client.NoSuchJob, match="match-7 is a reservation of another scheduler, and only that scheduler can end it"
    ):
        asyncio.run(client.put_on_hold(api, found(api, "match-7").job, True))
