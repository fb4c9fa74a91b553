"""cert-manager's own controllers give the webhook of an installed operator its certificate, and replace it."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import diagnosis
import pytest
import yaml
from installed import IMAGE, apply, installed_in_pods
from kubecluster import build
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from other_controllers import controller_image, fill_volumes
from patience import PATIENCE, TIMEOUT, until
from running_operator import RunningOperator

from headrace.k8s.runtime.admission.certificates import certificates_in, decoded
from headrace.minicluster.operator.names import CONFIGURATION, JOBS_CONFIGURATION, WEBHOOK, WEBHOOK_PORT
from headrace.programs.operator.install import AUTHORITY, Install

Object = dict[str, Any]

MANAGER = "cert-manager"
PLACE = "headrace-certified"
_HOST = f"{WEBHOOK}.{PLACE}.svc"
_CERTIFICATES = f"/apis/cert-manager.io/v1/namespaces/{PLACE}/certificates"
_SECRETS = f"/api/v1/namespaces/{PLACE}/secrets"
_PODS = f"/api/v1/namespaces/{PLACE}/pods"
# The number of looks, .1 s and more apart, after which the kubelet is to look again: it may not know a new Secret yet.
_FILLED_EACH = 20

# The second breaks a rule that only the webhook knows.
_CONTAINER: Object = {"image": "local/busybox:1", "command": "echo hello"}
RIGHT: Object = {"containers": [_CONTAINER]}
WRONG: Object = {"containers": [{**_CONTAINER, "volumes": {"v": {"path": "/x"}}}]}


def manager_objects() -> list[Object]:
    """The namespace, account, rights and Deployments of both programs."""
    watch = ["get", "list", "watch"]
    write = [*watch, "create", "update", "patch", "delete"]
    rules = [
        {"apiGroups": ["cert-manager.io"], "resources": ["*"], "verbs": write},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": write},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            "verbs": [*watch, "patch"],
        },
    ]
    api = "rbac.authorization.k8s.io"
    name: Object = {"name": MANAGER}
    placed: Object = {**name, "namespace": MANAGER}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": name},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed},
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": name, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", **name},
            "subjects": [{"kind": "ServiceAccount", **placed}],
        },
        *(_deployment(part) for part in ("controller", "cainjector")),
    ]


def _deployment(part: str) -> Object:
    labels = {"app": part}
    pod = {
        "serviceAccountName": MANAGER,
        "containers": [{"name": part, "image": f"local/{MANAGER}:1", "args": [part]}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": part, "namespace": MANAGER},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


@pytest.fixture(scope="module")
def cert_manager(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """cert-manager runs in the cluster, without its own webhook."""
    try:
        program = build.program("certmanager", "certmanager")
        source = build.source("certmanager", "github.com/cert-manager/cert-manager")
    except KubeError as exc:
        pytest.skip(str(exc))
    archive = tmp_path_factory.mktemp("cert-manager") / "image.tar"
    archive.write_bytes(controller_image(MANAGER, program))
    cluster.load(archive)
    kinds = [yaml.safe_load(path.read_text()) for path in sorted(source.glob("deploy/crds/cert-manager.io_*.yaml"))]
    names = [f"crd/{one['metadata']['name']}" for one in kinds]
    try:
        apply(cluster, *kinds)
        cluster.kubectl("wait", "--for=condition=Established", *names, TIMEOUT)
        apply(cluster, *manager_objects())
        cluster.kubectl("-n", MANAGER, "wait", "--for=condition=Available", "deployment", "--all", TIMEOUT)
        yield
    finally:
        for kind in ("clusterrolebinding", "clusterrole", "namespace"):
            cluster.kubectl("delete", kind, MANAGER, "--ignore-not-found", "--wait=false")
        cluster.kubectl("delete", *names, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def namespace(
    cluster: Cluster,
    cert_manager: None,
    operator: RunningOperator,
    view: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The namespace of an installed operator of two replicas, whose webhook guards the MiniClusters in it."""
    chosen = Install(
        namespace=PLACE,
        image=IMAGE,
        view_image=view,
        watched=(PLACE,),
        replicas=2,
        cert_manager=True,
        flux_operator_namespace=PLACE,
    )
    with installed_in_pods(cluster, operator, chosen, tmp_path_factory.mktemp("operator")):
        yield PLACE
    cluster.api.request("DELETE", f"/api/v1/namespaces/{PLACE}")


def eventually(cluster: Cluster, met: Callable[[], object]) -> None:
    """Wait for what cert-manager does; its logs are in the error."""
    try:
        until(met)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{diagnosis.of_namespace(cluster, MANAGER)}") from None


def ready(cluster: Cluster, certificate: str) -> bool:
    conditions = (cluster.api.get(f"{_CERTIFICATES}/{certificate}").get("status") or {}).get("conditions") or ()
    return {one["type"]: one["status"] for one in conditions} == {"Ready": "True"}


def issued(cluster: Cluster, secret: str, file: str = "tls.crt") -> str:
    """The certificate that a Secret has."""
    (found,) = certificates_in(decoded(cluster.api.get(f"{_SECRETS}/{secret}")["data"][file]))
    return found


def bundles(cluster: Cluster) -> list[list[str]]:
    """The authorities that the API server trusts, for the webhook of MiniClusters and that of Jobs."""
    places = (
        f"validatingwebhookconfigurations/{CONFIGURATION}",
        f"mutatingwebhookconfigurations/{JOBS_CONFIGURATION}",
    )
    hooks = [cluster.api.get(f"/apis/admissionregistration.k8s.io/v1/{one}")["webhooks"][0] for one in places]
    return [certificates_in(decoded(hook["clientConfig"].get("caBundle"))) for hook in hooks]


def operators(cluster: Cluster) -> dict[str, Object]:
    """The status of each pod of the operator by its name."""
    return {one["metadata"]["name"]: one["status"] for one in cluster.api.get(_PODS)["items"]}


def served(cluster: Cluster, authority: str) -> set[str]:
    """The certificates that the operators serve. Raises ssl.SSLError for one that `authority` has not signed."""
    context = ssl.create_default_context(cadata=authority)
    found = set()
    for status in operators(cluster).values():
        connection = socket.create_connection((status["podIP"], WEBHOOK_PORT), PATIENCE)
        with context.wrap_socket(connection, server_hostname=_HOST) as secured:
            found.update(certificates_in(ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"")))
    return found


def refusal(cluster: Cluster, spec: Object) -> str:
    """Why the API server would not take a MiniCluster; "" where it would. A dry run is reviewed like any request."""
    body = {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "tried"},
        "spec": spec,
    }
    where = f"/apis/flux-framework.org/v1alpha2/namespaces/{PLACE}/miniclusters"
    try:
        cluster.api.request("POST", f"{where}?dryRun=All", body)
    except KubeError as exc:
        # A review may take five seconds (`timeoutSeconds`), and longer on a busy machine.
        return refusal(cluster, spec) if "deadline exceeded" in str(exc) else str(exc)
    return ""


def is_guarded(cluster: Cluster) -> bool:
    """Whether the webhook refuses what is wrong with the name of the field, and accepts what is right."""
    said = refusal(cluster, WRONG)
    return "spec.containers[0].volumes.v: has no source" in said and not refusal(cluster, RIGHT)


def renew(cluster: Cluster, certificate: str) -> None:
    """Ask cert-manager for a renewal as `cmctl renew` does: the condition Issuing has a certificate issued anew."""
    where = f"{_CERTIFICATES}/{certificate}"
    asked = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "asked by a test",
        "lastTransitionTime": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    conditions = [*cluster.api.get(where)["status"]["conditions"], asked]
    change = {"status": {"conditions": conditions}}
    cluster.api.request("PATCH", f"{where}/status", change, "application/merge-patch+json")


def test_the_certificate_that_cert_manager_signs_is_served_and_trusted(cluster: Cluster, namespace: str) -> None:
    for name in (AUTHORITY, WEBHOOK):
        eventually(cluster, lambda name=name: ready(cluster, name))
    authority = issued(cluster, AUTHORITY)
    eventually(cluster, lambda: bundles(cluster) == [[authority]] * 2)
    assert served(cluster, authority) == {issued(cluster, WEBHOOK)}
    # The Service leads to the operators a moment after they are ready.
    until(lambda: is_guarded(cluster))
    for part in ("controller", "cainjector"):
        log = cluster.kubectl("-n", MANAGER, "logs", f"deployment/{part}")
        assert "forbidden" not in log.lower() and "panic" not in log


def test_a_renewed_certificate_is_served_without_a_restart_and_admission_never_closes(
    cluster: Cluster, namespace: str
) -> None:
    until(lambda: is_guarded(cluster))
    pods = operators(cluster)
    former = {name: issued(cluster, name) for name in (AUTHORITY, WEBHOOK)}
    for name in (AUTHORITY, WEBHOOK):
        renew(cluster, name)
        eventually(cluster, lambda name=name: issued(cluster, name) != former[name] and ready(cluster, name))
    authority, certificate = issued(cluster, AUTHORITY), issued(cluster, WEBHOOK)
    assert issued(cluster, WEBHOOK, "ca.crt") == authority
    eventually(cluster, lambda: all(authority in one for one in bundles(cluster)))
    looks = itertools.count()

    def taken() -> bool:
        if next(looks) % _FILLED_EACH == 0:
            fill_volumes(cluster, PLACE)
        assert is_guarded(cluster)
        # Both ends of a handshake may be the first to know what is new.
        return [served(cluster, one) for one in (former[AUTHORITY], authority)] == [{certificate}, {certificate}]

    until(taken)
    assert is_guarded(cluster)
    now = operators(cluster)
    assert now.keys() == pods.keys()
    assert [one["restartCount"] for status in now.values() for one in status["containerStatuses"]] == [0, 0]
