"""A real API server takes the objects of every recorded MiniCluster, and keeps each field of them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
import test_recorded_objects as recorded_objects
from arbitrary import miniclusters
from clusters import built, minicluster
from differences import without
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until

import sizes
from headrace.minicluster.api.fields import MiniCluster
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.builders import Images
from headrace.minicluster.operator.keys import fresh_keys

Object = dict[str, Any]

FOLDERS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
}
# Filled in as well, but told from ours in recordings: the policy of Jobs without a pod failure policy.
DEFAULTS = {*recorded_objects.DEFAULTS, ("Job.spec.podReplacementPolicy", '"TerminatingOrFailed"')}
SERVER_OWN = ("uid", "creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink")

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
# Beyond the recorded cases: what they have not.
MORE: dict[str, dict[str, Any]] = {
    "groups": {
        "groups": [
            {"name": "gpu", "size": 3, "resources": {"limits": {"nvidia.com/gpu": "1"}}, "pod": {"labels": {"a": "b"}}},
            {"name": "fat", "image": "rockylinux:9", "volumes": {"scratch": {"emptyDir": True, "path": "/scratch"}}},
        ],
        "services": [{"name": "db", "image": "postgres:16", "volumes": {"data": {"claimName": "data", "path": "/d"}}}],
    },
    "two-ports": {
        "containers": [
            {"image": "debian:12", "command": "hostname", "runFlux": True},
            {"name": "web", "image": "nginx", "ports": [80, 443], "lifeCycle": {"preStopExec": "nginx -s quit"}},
        ]
    },
    "on-failure": {"pod": {"restartPolicy": "OnFailure"}},
    "pod": {
        "pod": {
            "nodeAffinity": {"pool": ["a", "b"]},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "resources": {"cpu": "2", "memory": "1Gi"},
            "securityContext": {
                "fsGroup": 7,
                "runAsUser": 8,
                "sysctls": [{"name": "net.core.somaxconn", "value": "9"}],
            },
        }
    },
    "failure-policy": {
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}]}
    },
    "suspended": {"suspend": True},
}


def clusters(namespace: str) -> dict[str, MiniCluster]:
    """The MiniClusters by a name for each: those of the recorded cases, and MORE."""
    found = {name: minicluster(**spec) for name, spec in MORE.items()}
    for case in recorded_objects.TAKEN:
        found[case["name"]] = check(recorded_objects.DOCUMENTS[case["name"]])
    return {name: msgspec.structs.replace(one, namespace=namespace) for name, one in found.items()}


def dry_run(its: Cluster, namespace: str, one: Object) -> Object:
    """What the API server would store; unknown fields are errors."""
    path = FOLDERS[one["kind"]].format(namespace)
    answer: Object = its.api.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)
    return answer


def stored(answer: Object) -> Object:
    """An answer without what the API server fills in."""
    text = json.dumps(answer)
    uid = answer["metadata"].get("uid", "")
    one = json.loads(text.replace(uid, "UID")) if uid else answer
    metadata = {key: value for key, value in one["metadata"].items() if key not in SERVER_OWN}
    one = {key: value for key, value in one.items() if key != "status"}
    if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None":
        one["spec"]["clusterIP"], one["spec"]["clusterIPs"] = "ASSIGNED", ["ASSIGNED"]
    if one["kind"] == "Pod":
        # Beside those of the file the API server puts its own.
        given = [each for each in one["spec"].pop("tolerations", ()) if each not in recorded_objects.NOT_READY]
        one["spec"].update({"tolerations": given} if given else {})
    if one["kind"] == "Job":
        recorded_objects.drop_what_the_job_controller_copies(one)
    found: Object = without({**one, "metadata": metadata}, DEFAULTS, one["kind"])
    return found


@pytest.mark.parametrize("as_volume", [False, True], ids=["copied", "mounted"])
def test_the_api_server_takes_all_objects_and_drops_nothing(
    control_plane: Cluster, namespace: str, as_volume: bool
) -> None:
    account = {"metadata": {"name": "nobody-here"}}
    control_plane.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    wrong = []
    for name, cluster in clusters(namespace).items():
        for one in built(cluster, keys=fresh_keys(), images=Images(view="view:1", as_volume=as_volume)).values():
            try:
                answer = stored(dry_run(control_plane, namespace, one))
            except KubeError as exc:
                wrong.append(f"{name}: {one['kind']}: {exc}")
                continue
            if answer != one:
                both = recorded_objects.differences(one, answer, one["kind"], lambda _: False)
                wrong += [f"{name}: {difference}" for difference in both]
    assert not wrong, "\n".join(sorted({one.split(": ", 1)[1] for one in wrong}))


@pytest.mark.soak
def test_the_api_server_takes_what_validation_takes(control_plane: Cluster, namespace: str) -> None:
    """Also of arbitrary MiniClusters: what the API server would refuse is refused with the MiniCluster."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    shown = 0
    for document, cluster in miniclusters(sizes.size("shown_objects"), most=6):
        cluster = msgspec.structs.replace(cluster, namespace=namespace)
        pod = cluster.spec.pod
        if pod and pod.service_account_name:
            with contextlib.suppress(KubeError):
                control_plane.api.request("POST", account, {"metadata": {"name": pod.service_account_name}})
        for one in built(cluster, keys=fresh_keys()).values():
            if one["kind"] == "Pod" and pod and pod.runtime_class_name:
                continue  # refused unless that class is there
            try:
                dry_run(control_plane, namespace, one)
            except KubeError as exc:
                pytest.fail(f"{exc}\n{json.dumps(document)}")
        shown += 1
    assert shown > sizes.size("shown_objects") // 8


def test_pods_have_the_hosts_names_and_those_of_groups_follow(control_plane: Cluster, namespace: str) -> None:
    cluster = msgspec.structs.replace(
        minicluster(flux={"container": {"image": "view:1"}}, groups=[{"name": "gpu", "size": 1}]), namespace=namespace
    )
    api = control_plane.api
    for one in built(cluster, keys=fresh_keys(), uid="").values():
        api.request("POST", FOLDERS[one["kind"]].format(namespace), one)

    def pods() -> dict[str, Object]:
        found = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=flux-framework.org/minicluster=sample")
        return {one["spec"]["hostname"]: one for one in found["items"]}

    until(lambda: len(pods()) == 3)
    made = pods()
    assert made.keys() == {"sample-0", "sample-1", "sample-gpu-0"}
    assert {one["spec"]["subdomain"] for one in made.values()} == {"sample"}
    assert made["sample-1"]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    sized = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=hpa-selector=sample")["items"]
    assert {one["spec"]["hostname"] for one in sized} == {"sample-0", "sample-1"}


@pytest.fixture
def restricted(control_plane: Cluster, namespace: str) -> str:
    """The namespace, where the `restricted` Pod Security Standard holds."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    path, kind = f"/api/v1/namespaces/{namespace}", "application/merge-patch+json"
    control_plane.api.request("PATCH", path, label, kind)
    return namespace


def pod_of(cluster: MiniCluster, namespace: str, as_volume: bool) -> Object:
    """A Pod as the Job controller would make it."""
    cluster = msgspec.structs.replace(cluster, namespace=namespace)
    job = built(cluster, uid="", images=Images(view="view:1", as_volume=as_volume))["Job/sample"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": job["spec"]["template"]["spec"]}


@pytest.mark.parametrize("as_volume", [False, True], ids=["copied", "mounted"])
def test_a_pod_is_as_restricted_as_its_containers_ask(control_plane: Cluster, restricted: str, as_volume: bool) -> None:
    asked = minicluster({"securityContext": RESTRICTED})
    dry_run(control_plane, restricted, pod_of(asked, restricted, as_volume))
    with pytest.raises(KubeError, match="violates PodSecurity"):
        dry_run(control_plane, restricted, pod_of(minicluster(), restricted, as_volume))
