"""The operator's install on a real API server: all of it is taken, its role suffices, and fails where it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from installed import guarded, install, running, uninstall
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until
from running_operator import MiniClusters, RunningOperator

from headrace.minicluster.operator.names import OPERATOR, OTHER_LEASE
from headrace.programs.cluster_queue import install as fluxqueue
from headrace.programs.cluster_queue.package import PACKAGE as FLUXQUEUE_PACKAGE
from headrace.programs.operator.install import Install
from headrace.programs.operator.package import PACKAGE

DEPLOY = Path(__file__).parents[2] / "deploy"
PLACE = "headrace-install"


def chosen(namespace: str) -> Install:
    """An operator of one namespace."""
    return Install(namespace=PLACE, watched=(namespace,), flux_operator_namespace="kube-system")


@pytest.mark.parametrize(
    "variant",
    [
        Install(namespace="headrace-whole", view_as_volume=True),
        Install(namespace="headrace-part", watched=("default", "kube-public"), webhook=False),
        Install(namespace="headrace-guarded", network_policies=("default", "kube-public")),
    ],
)
def test_the_api_server_takes_the_whole_install_file(control_plane: Cluster, variant: Install) -> None:
    try:
        made = control_plane.kubectl(
            "apply", "--server-side", "-f", "-", input=PACKAGE.install_file(variant)
        ).splitlines()
        assert len(made) == len(PACKAGE.objects(variant))
        again = control_plane.kubectl("apply", "--server-side", "-f", "-", input=PACKAGE.install_file(variant))
        assert len(again.splitlines()) == len(made)
    finally:
        uninstall(control_plane, variant)


def test_the_api_server_takes_the_install_file_of_the_cluster_queue(control_plane: Cluster) -> None:
    choices = {"grpc": True, "grpc_secret": "own", "grpc_client_secret": "theirs", "store_claim": "disk"}
    variant = fluxqueue.Install(namespace="fluxqueue-whole", **choices)
    text = FLUXQUEUE_PACKAGE.install_file(variant)
    try:
        made = control_plane.kubectl("apply", "--server-side", "-f", "-", input=text).splitlines()
        assert len(made) == len(FLUXQUEUE_PACKAGE.objects(variant))
        again = control_plane.kubectl("apply", "--server-side", "-f", "-", input=text)
        assert len(again.splitlines()) == len(made)
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=text)


@pytest.mark.parametrize(
    ("base", "wanted"),
    [
        ("kustomize", PACKAGE.objects(Install())),
        ("kustomize/fluxqueue", FLUXQUEUE_PACKAGE.objects(fluxqueue.Install())),
    ],
    ids=["operator", "fluxqueue"],
)
def test_kustomize_makes_the_same_objects(control_plane: Cluster, base: str, wanted: list[dict[str, Any]]) -> None:
    built = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(DEPLOY / base))))

    def key(one: dict[str, dict[str, str]]) -> tuple[str, str]:
        return str(one["kind"]), one["metadata"]["name"]

    assert sorted(built, key=key) == sorted(wanted, key=key)


def can(cluster: Cluster, verb: str, what: str, namespace: str = "") -> bool:
    """Whether the operator's account may: `what` is GROUP:RESOURCE[/SUBRESOURCE][ NAME]; "" is all namespaces."""
    group, _, rest = what.rpartition(":")
    resource, _, name = rest.partition(" ")
    resource, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    spec = {
        "user": f"system:serviceaccount:{PLACE}:{OPERATOR}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{PLACE}", "system:authenticated"],
        "resourceAttributes": {**asked, "namespace": namespace},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = cluster.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


FORBIDDEN = [
    ("create", "pods/exec"),
    ("get", "pods/log"),
    ("create", "pods/attach"),
    ("create", "pods/portforward"),
    ("list", "secrets"),
    ("watch", "secrets"),
    ("update", "secrets"),
    ("delete", "secrets"),
    ("get", "nodes"),
    ("create", "namespaces"),
    ("create", "flux-framework.org:miniclusters"),
    ("create", "rbac.authorization.k8s.io:roles"),
    ("create", "apps:deployments"),
    ("create", "serviceaccounts/token"),
    ("impersonate", "users"),
    ("patch", "admissionregistration.k8s.io:validatingwebhookconfigurations other"),
    ("patch", "admissionregistration.k8s.io:mutatingwebhookconfigurations other"),
    ("get", "coordination.k8s.io:leases other"),
]


@pytest.mark.parametrize("watched", [True, False], ids=["one namespace", "all namespaces"])
def test_the_role_fails_where_it_should(control_plane: Cluster, namespace: str, watched: bool) -> None:
    variant = chosen(namespace) if watched else Install(namespace=PLACE)
    install(control_plane, variant)
    try:
        assert [f"{verb} {what}" for verb, what in FORBIDDEN if can(control_plane, verb, what, namespace)] == []
        elsewhere = can(control_plane, "list", "flux-framework.org:miniclusters", "default")
        assert elsewhere is not watched
    finally:
        uninstall(control_plane, variant)


def test_an_operator_of_one_namespace_has_no_rights_in_another(control_plane: Cluster, namespace: str) -> None:
    install(control_plane, chosen(namespace))
    assert can(control_plane, "watch", f"coordination.k8s.io:leases {OTHER_LEASE}", "kube-system")
    assert not can(control_plane, "list", "coordination.k8s.io:leases", "kube-system")
    for verb, what in (("list", "flux-framework.org:miniclusters"), ("create", "batch:jobs"), ("create", "secrets")):
        assert can(control_plane, verb, what, namespace)
        assert not can(control_plane, verb, what, "default")
    assert not can(control_plane, "get", "secrets other", PLACE)
    assert can(control_plane, "get", "secrets headrace-webhook", PLACE)


@pytest.fixture
def limited(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[RunningOperator]:
    """The operator of one namespace with no rights but its role's, and without its webhook."""
    install(control_plane, chosen(namespace))
    with running(control_plane, chosen(namespace), tmp_path, "--namespace", namespace) as operator:
        yield operator


def test_the_role_suffices(control_plane: Cluster, namespace: str, limited: RunningOperator) -> None:
    miniclusters = MiniClusters(control_plane, namespace)
    miniclusters.apply("sample", size=2, services=[{"name": "db", "image": "local/busybox:1"}], groups=[{"name": "g"}])
    until(lambda: miniclusters.status("sample").get("size") == 2)
    assert {one["metadata"]["name"] for one in miniclusters.get("jobs")["items"]} == {"sample", "sample-g"}
    miniclusters.kubectl("patch", "mc", "sample", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    until(lambda: miniclusters.get("job", "sample")["spec"].get("suspend"))
    miniclusters.kubectl("delete", "mc", "sample", "--wait=false")
    until(lambda: not miniclusters.get("mc")["items"])
    assert "forbidden" not in limited.log.read_text().lower()


def test_an_operator_of_several_namespaces_looks_after_each(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    variant = Install(namespace=PLACE, watched=(namespace, "kube-public"))
    install(control_plane, variant)
    try:
        with running(control_plane, variant, tmp_path, "--namespace", ",".join(variant.watched)) as operator:
            for where in variant.watched:
                miniclusters = MiniClusters(control_plane, where)
                miniclusters.apply("sample", size=2)
                until(lambda found=miniclusters: found.status("sample").get("size") == 2)
                miniclusters.kubectl("delete", "mc", "sample", "--wait=false")
                until(lambda found=miniclusters: not found.get("jobs")["items"])
            assert "forbidden" not in operator.log.read_text().lower()
    finally:
        uninstall(control_plane, variant)


def test_with_the_webhook_off_a_wrong_minicluster_is_shown_as_invalid(
    control_plane: Cluster, namespace: str, limited: RunningOperator
) -> None:
    miniclusters = MiniClusters(control_plane, namespace)
    container = {"image": "local/busybox:1", "command": "x", "volumes": {"v": {"path": "/x"}}}
    miniclusters.apply("wrong", containers=[container], size=2)
    status = miniclusters.phase("wrong", "Invalid")
    assert "spec.containers[0].volumes.v: has no source" in status["reason"]
    (condition,) = [one for one in status["conditions"] if one["type"] == "Invalid"]
    assert condition["status"] == "True" and "has no source" in condition["message"]
    assert miniclusters.get("jobs")["items"] == []
    miniclusters.apply("wrong", containers=[{"image": "local/busybox:1", "command": "x"}], size=2)
    until(lambda: miniclusters.status("wrong").get("phase") == "Pending")
    assert miniclusters.get("job", "wrong")["spec"]["parallelism"] == 2


def test_the_webhook_needs_no_more_than_the_role(control_plane: Cluster, namespace: str, tmp_path: Path) -> None:
    variant = chosen(namespace)
    install(control_plane, variant)
    with guarded(control_plane, variant, tmp_path, "--namespace", namespace) as operator:
        miniclusters = MiniClusters(control_plane, namespace)
        miniclusters.apply("sample", size=2, maxSize=4)
        with pytest.raises(KubeError, match="maxSize"):
            miniclusters.kubectl("scale", "mc/sample", "--replicas=5")
        miniclusters.kubectl("scale", "mc/sample", "--replicas=4")
        assert "forbidden" not in operator.log.read_text().lower()
