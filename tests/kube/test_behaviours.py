"""What the recorded behaviour cases show of the Flux Operator, and how it is here: nothing foreign is used or touched,
deletion finishes, what is deleted by hand comes back, and the Flux Operator is not disturbed.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from patience import TIMEOUT, until
from running_operator import MiniClusters, RunningOperator

from waiting import stays

Object = dict[str, Any]

POD = {"containers": [{"name": "main", "image": "local/busybox:1", "command": ["true"]}], "restartPolicy": "Never"}


def make(miniclusters: MiniClusters, body: Object) -> None:
    miniclusters.kubectl("apply", "-f", "-", input=json.dumps(body))


def own_part(miniclusters: MiniClusters, kind: str, name: str) -> Object:
    """An object without what its own controller writes, such as the status of a Job."""
    one = miniclusters.get(kind.lower(), name)
    metadata = {key: one["metadata"].get(key) for key in ("uid", "generation", "labels", "annotations", "finalizers")}
    owners = one["metadata"].get("ownerReferences")
    return {**{key: one.get(key) for key in ("spec", "data", "type")}, **metadata, "ownerReferences": owners}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "spec": {"suspend": True, "completions": 5, "parallelism": 5, "template": {"spec": POD}},
            },
            "Job/taken",
        ),
        ({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}, "Service/taken"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}, "ConfigMap/taken-entrypoint"),
        ({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}}, "Secret/taken-curve"),
    ],
    ids=["job", "service", "configmap", "secret"],
)
def test_an_object_of_somebody_else_is_not_used(miniclusters: MiniClusters, body: Object, what: str) -> None:
    kind, _, name = what.partition("/")
    make(miniclusters, {**body, "metadata": {"name": name}})
    before = own_part(miniclusters, kind, name)
    miniclusters.apply("taken", size=2)
    miniclusters.reason("taken", lambda text: text == f"{what} exists but does not belong to this MiniCluster")
    status = miniclusters.status("taken")
    assert status["phase"] == "Pending"
    assert {one["type"]: one["status"] for one in status["conditions"]}["Foreign"] == "True"
    assert "NameTaken" in miniclusters.events("taken")
    assert own_part(miniclusters, kind, name) == before
    assert not miniclusters.pods("taken")


def test_foreign_pods_are_neither_labelled_nor_mistaken_for_ours(miniclusters: MiniClusters) -> None:
    """One without labels, and one that has ended and whose name begins like a lead's."""
    for name in ("stranger", "tidy-0-stranger"):
        make(miniclusters, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": POD})
    until(lambda: miniclusters.get("pod", "tidy-0-stranger")["status"]["phase"] == "Succeeded")
    before = miniclusters.get("pod", "stranger")
    miniclusters.apply("tidy", size=1, cleanup=True, interactive=True, command="")
    miniclusters.phase("tidy", "Running")
    stays(lambda: miniclusters.status("tidy")["phase"] == "Running", 1.0)
    after = miniclusters.get("pod", "stranger")
    assert after["metadata"].get("labels") == before["metadata"].get("labels")
    miniclusters.kubectl("delete", "mc", "tidy")


def test_cleanup_deletes_a_minicluster_that_has_ended(miniclusters: MiniClusters) -> None:
    miniclusters.apply("brief", size=1, cleanup=True)
    miniclusters.kubectl("wait", "--for=delete", "mc/brief", TIMEOUT)
    until(lambda: not miniclusters.pods("brief"))


def test_foreground_deletion_of_a_running_one_finishes(miniclusters: MiniClusters) -> None:
    miniclusters.apply("ends", size=2, interactive=True, command="")
    miniclusters.phase("ends", "Running")
    miniclusters.kubectl("delete", "mc", "ends", "--cascade=foreground", TIMEOUT)
    left = miniclusters.kubectl("get", "job,pod,svc,secret,configmap", "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt"]


def test_children_that_are_orphaned_are_left_and_not_adopted_by_a_namesake(miniclusters: MiniClusters) -> None:
    miniclusters.apply("orphans", size=1)
    miniclusters.phase("orphans", "Finished")
    job = miniclusters.get("job", "orphans")
    miniclusters.kubectl("delete", "mc", "orphans", "--cascade=orphan")
    miniclusters.apply("orphans", size=2)
    assert "exists but does not belong to this MiniCluster" in miniclusters.reason("orphans", bool)
    assert miniclusters.get("job", "orphans")["metadata"]["uid"] == job["metadata"]["uid"]


def test_children_that_are_deleted_come_back(miniclusters: MiniClusters) -> None:
    miniclusters.apply("heals", size=1, interactive=True, command="")
    miniclusters.phase("heals", "Running")
    old = {kind: miniclusters.get(kind, name)["metadata"]["uid"] for kind, name in
           (("job", "heals"), ("service", "heals"), ("configmap", "heals-entrypoint"))}  # fmt: skip
    miniclusters.kubectl("delete", "job/heals", "service/heals", "configmap/heals-entrypoint")
    until(lambda: len(miniclusters.get("job")["items"]) == 1)
    until(lambda: len(miniclusters.get("service")["items"]) == 1)
    until(lambda: len(miniclusters.get("configmap")["items"]) == 2)
    new = {kind: miniclusters.get(kind, name)["metadata"]["uid"] for kind, name in
           (("job", "heals"), ("service", "heals"), ("configmap", "heals-entrypoint"))}  # fmt: skip
    assert all(new[kind] != old[kind] for kind in old)
    miniclusters.phase("heals", "Running")


def test_a_spec_that_is_corrected_is_carried_out(miniclusters: MiniClusters) -> None:
    """Without the webhook the rules are told by the status."""
    miniclusters.apply("wrong", size=1, containers=[{"image": "local/busybox 1", "command": "true"}])
    status = miniclusters.phase("wrong", "Invalid")
    assert "spec.containers[0].image" in status["reason"]
    miniclusters.apply("wrong", size=1, containers=[{"image": "local/busybox:1", "command": "true"}])
    status = miniclusters.phase("wrong", "Finished")
    assert {one["type"]: one["status"] for one in status["conditions"]}["Invalid"] == "False"


def test_the_scale_subresource_tells_the_true_size(miniclusters: MiniClusters) -> None:
    miniclusters.apply("scaled", size=1, maxSize=3, interactive=True, command="")
    miniclusters.phase("scaled", "Running")
    path = f"/apis/flux-framework.org/v1alpha2/namespaces/{miniclusters.namespace}/miniclusters/scaled/scale"
    scale = miniclusters.cluster.api.get(path)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
    assert scale["status"]["selector"] == "hpa-selector=scaled"
    miniclusters.kubectl("scale", "mc", "scaled", "--replicas=3")
    miniclusters.wait("scaled", "ready", "3/3")
    until(lambda: miniclusters.cluster.api.get(path)["status"]["replicas"] == 3)
    assert miniclusters.status("scaled")["maximumSize"] == 3


def test_it_stands_back_while_the_go_operator_holds_its_lease(
    miniclusters: MiniClusters, operator: RunningOperator
) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "go", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    meta = {"name": "14dde902.flux-framework.org"}
    make(miniclusters, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    miniclusters.apply("waits", size=1)
    miniclusters.reason("waits", lambda text: "the Flux Operator is active" in text)
    assert not miniclusters.get("job")["items"]
    assert "StandingBack" in miniclusters.events("waits")
    # As an operator does that is told to stop.
    given_back = '{"spec": {"holderIdentity": ""}}'
    miniclusters.kubectl("patch", "lease", meta["name"], "--type=merge", "-p", given_back)
    miniclusters.phase("waits", "Finished")
    miniclusters.kubectl("delete", "lease", meta["name"])


def test_a_job_suspended_by_hand_is_shown_so_and_let_be(miniclusters: MiniClusters) -> None:
    miniclusters.apply("byhand", size=1, interactive=True, command="")
    miniclusters.phase("byhand", "Running")
    miniclusters.kubectl("patch", "job", "byhand", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    miniclusters.phase("byhand", "Suspended")
    miniclusters.reason("byhand", lambda text: text == "its Job was suspended by another user or controller")
    miniclusters.kubectl("patch", "job", "byhand", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    miniclusters.phase("byhand", "Running")


def test_it_is_deleted_when_its_time_to_live_is_over(miniclusters: MiniClusters) -> None:
    miniclusters.apply("mortal", size=1, ttlSecondsAfterFinished=2)
    miniclusters.kubectl("wait", "--for=delete", "mc/mortal", TIMEOUT)
    assert miniclusters.events("mortal")[-1] == "Finished"


def test_one_that_another_manages_is_left_alone(miniclusters: MiniClusters, operator: RunningOperator) -> None:
    miniclusters.apply("theirs", size=1, managedBy="example.com/other")
    miniclusters.apply("ours", size=1)
    miniclusters.phase("ours", "Finished")
    assert "status" not in miniclusters.get("minicluster", "theirs")
    assert [one["metadata"]["name"] for one in miniclusters.get("job")["items"]] == ["ours"]
