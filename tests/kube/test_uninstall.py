"""Nothing of an install stays in a cluster, however it was installed and in whichever order it is removed."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helm import program as helm
from installed import account_kubeconfig, apply
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until
from running_fluxqueue import QUEUES, Held, RunningFluxqueue, nodes_of_queues
from running_operator import MiniClusters, RunningOperator, free_port

from headrace.cli.main import headrace
from headrace.cluster_queue.crd import first_queue
from headrace.cluster_queue.names import CONFIGURATION, FLUXQUEUE, HOLD_PATH
from headrace.minicluster.operator.names import OPERATOR
from headrace.programs.cluster_queue import install as fluxqueue
from headrace.programs.cluster_queue.install import configuration
from headrace.programs.cluster_queue.package import PACKAGE as FLUXQUEUE_PACKAGE
from headrace.programs.operator import install as operator
from headrace.programs.operator.package import PACKAGE

DEPLOY = Path(__file__).parents[2] / "deploy"
# The kinds of cert-manager and Kubeflow Trainer of which an install has objects.
_FOREIGN = (
    ("cert-manager.io", "v1", "Certificate", "Namespaced"),
    ("cert-manager.io", "v1", "Issuer", "Namespaced"),
    ("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "Cluster"),
)
_APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"

Object = dict[str, Any]


class Way(NamedTuple):
    """A way to install a program, and the way back without our commands."""

    apply: Callable[[Cluster], object]
    delete: Callable[[Cluster], object]


def by_text(text: str) -> Way:
    """`headrace ... manifests | kubectl apply --server-side -f -`."""
    return Way(
        lambda cluster: cluster.kubectl("apply", "--server-side", "-f", "-", input=text),
        lambda cluster: cluster.kubectl("delete", "-f", "-", input=text),
    )


def by_file(name: str) -> Way:
    path = str(DEPLOY / name)
    return Way(
        lambda cluster: cluster.kubectl("apply", "--server-side", "-f", path),
        lambda cluster: cluster.kubectl("delete", "-f", path),
    )


def by_kustomize(text: str) -> Way:
    """A kustomization with this text, which names bases as DEPLOY/BASE."""

    def built(cluster: Cluster) -> str:
        folder = Path(__file__).parents[2] / "build" / "kustomization"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kustomization.yaml").write_text(text.replace("DEPLOY", "../../deploy"))
        return cluster.kubectl("kustomize", str(folder))

    return Way(
        lambda cluster: cluster.kubectl("apply", "--server-side", "-f", "-", input=built(cluster)),
        lambda cluster: cluster.kubectl("delete", "-f", "-", input=built(cluster)),
    )


def by_helm(chart: str, namespace: str, **values: Any) -> Way:
    def run(cluster: Cluster, *words: str) -> None:
        line = [helm(), *words, "--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    chosen = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    return Way(
        lambda cluster: run(cluster, "install", "tried", str(DEPLOY / "helm" / chart), "--create-namespace", *chosen),
        lambda cluster: run(cluster, "uninstall", "tried"),
    )


EVERYTHING = operator.Install(
    watched=("default",), network_policies=("default",), flux_operator_namespace="kube-public", replicas=2,
    metrics_api=True, trainer=True,
)  # fmt: skip
OPERATOR_WAYS = {
    "all options": by_text(PACKAGE.install_file(EVERYTHING)),
    "cert-manager": by_text(PACKAGE.install_file(operator.Install(cert_manager=True, namespace="elsewhere"))),
    "kustomize": by_kustomize("resources: [DEPLOY/kustomize]\ncomponents: [DEPLOY/kustomize/metrics-api]\n"),
    "helm": by_helm(OPERATOR, "headrace-system", **{"metricsApi.enabled": True, "trainer.enabled": True}),
}  # fmt: skip
METRICS = by_text(PACKAGE.install_file(operator.Install(metrics_api=True)))
QUEUE_WAYS = {
    "kustomize": by_kustomize("resources: [DEPLOY/kustomize/fluxqueue]\n"),
    "helm": by_helm(FLUXQUEUE, "fluxqueue-system", strict=True, **{"grpc.enabled": True}),
}


def everything(cluster: Cluster) -> set[str]:
    """All objects of a cluster, as PLURAL.GROUP NAMESPACE/NAME, without Events and what is in namespaces of tests."""
    apis = ["/api/v1", *(f"/apis/{one['groupVersion']}" for one in _group_versions(cluster))]
    found = set()
    for api in apis:
        with contextlib.suppress(KubeError):
            for kind in cluster.api.get(api)["resources"]:
                if "list" in kind["verbs"] and kind["kind"] != "Event":
                    for one in cluster.api.get(f"{api}/{kind['name']}").get("items") or ():
                        meta = one["metadata"]
                        place = meta.get("namespace", meta["name"])
                        if not place.startswith("test-"):
                            group = api.split("/")[2] if api.startswith("/apis") else ""
                            found.add(f"{kind['name']}.{group} {meta.get('namespace', '')}/{meta['name']}")
    return found


def _group_versions(cluster: Cluster) -> Iterator[Object]:
    for group in cluster.api.get("/apis")["groups"]:
        yield from group["versions"]


@pytest.fixture(scope="module")
def plane(control_plane: Cluster) -> Iterator[Cluster]:
    """The control plane with the kinds of others, and without what other tests have installed."""
    made = [_definition(*one) for one in _FOREIGN]
    control_plane.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    for command in ("operator", "fluxqueue"):
        assert uninstall(control_plane, command) == 0
    yield control_plane
    names = [one["metadata"]["name"] for one in made]
    control_plane.kubectl("delete", "customresourcedefinition", *names)


def _definition(group: str, version: str, kind: str, scope: str) -> Object:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {"group": group, "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": versions}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def uninstall(cluster: Cluster, program: str, *options: str) -> int:
    return headrace([program, "uninstall", "--kubeconfig", str(cluster.kubeconfig), *options])


@contextlib.contextmanager
def installed_operator(cluster: Cluster, way: Way, folder: Path) -> Iterator[None]:
    """An install whose operator, with its rights and no more, is a process of this machine. In place of cert-manager,
    the Secrets are made that it would make.
    """
    way.apply(cluster)
    found = json.loads(
        cluster.kubectl("get", "deployment", "-A", "-l", f"app.kubernetes.io/name={OPERATOR}", "-o=json")
    )
    (deployment,) = found["items"]
    namespace = deployment["metadata"]["namespace"]
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    if any(word.startswith("--webhook-certificate") for word in command):
        for certificate in json.loads(cluster.kubectl("get", "certificates", "-n", namespace, "-o", "json"))["items"]:
            name, labels = certificate["spec"]["secretName"], certificate["spec"]["secretTemplate"]["labels"]
            secret = {"metadata": {"name": name, "labels": labels}}
            cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        yield
        return
    kept = [word for word in command if word.startswith(("--metrics-api", "--namespace"))]
    running, machine = RunningOperator(cluster, folder), cluster.addresses.machine
    webhook = ("--webhook-bind", f"{machine}:{free_port()}", "--webhook-address", machine)
    kubeconfig = account_kubeconfig(cluster, namespace, folder)
    running.start("--kubeconfig", str(kubeconfig), "--lease-namespace", namespace, *webhook, *kept)
    try:
        until(lambda: _is_made(cluster, f"/api/v1/namespaces/{namespace}/secrets/headrace-webhook"))
        until(lambda: _is_made(cluster, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR}"))
        if "--metrics-api" in kept:
            until(lambda: _is_made(cluster, f"{_APISERVICES}/v1beta1.external.metrics.k8s.io"))
        yield
    finally:
        running.stop()


def _is_made(cluster: Cluster, path: str) -> bool:
    try:
        return bool(cluster.api.get(path))
    except KubeError:
        return False


@pytest.mark.parametrize("way", OPERATOR_WAYS)
def test_nothing_of_an_operator_stays(
    plane: Cluster, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(plane)
    with installed_operator(plane, OPERATOR_WAYS[way], tmp_path):
        assert everything(plane) > before
        assert uninstall(plane, "operator") == 0
    if way == "helm":
        assert "helm uninstall tried -n headrace-system" in capsys.readouterr().out
        OPERATOR_WAYS[way].delete(plane)
        assert uninstall(plane, "operator") == 0
    until(lambda: everything(plane) == before)


def test_nothing_of_an_operator_stays_that_kubectl_has_removed(plane: Cluster, tmp_path: Path) -> None:
    before = everything(plane)
    with installed_operator(plane, METRICS, tmp_path):
        METRICS.delete(plane)
        # An API that is registered and that nobody serves would keep each namespace from being deleted.
        until(lambda: everything(plane) == before)
        assert uninstall(plane, "operator") == 0
    assert everything(plane) == before


def test_what_helm_leaves_of_an_operator_is_removed(plane: Cluster, tmp_path: Path) -> None:
    before = everything(plane)
    with installed_operator(plane, OPERATOR_WAYS["helm"], tmp_path):
        OPERATOR_WAYS["helm"].delete(plane)
        until(lambda: not [one for one in everything(plane) if "metrics.k8s.io" in one])
    assert uninstall(plane, "operator") == 0
    until(lambda: everything(plane) == before)


def test_miniclusters_stay_with_their_definition_unless_they_are_to_go(
    plane: Cluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(plane)
    way = by_text(PACKAGE.install_file(operator.Install(webhook=False)))
    way.apply(plane)
    clusters = MiniClusters(plane, namespace)
    until(lambda: _is_made(plane, f"/apis/flux-framework.org/v1alpha2/namespaces/{namespace}/miniclusters"))
    clusters.apply("saves", size=2)
    finalizer = '{"metadata": {"finalizers": ["flux-framework.org/headrace-save"]}}'
    clusters.kubectl("patch", "mc", "saves", "--type=merge", "-p", finalizer)
    assert uninstall(plane, "operator", "--dry-run") == 0
    told = capsys.readouterr().out
    assert "deployment/headrace-operator (namespace headrace-system) deleted (dry run)" in told
    assert plane.kubectl("get", "deployment", OPERATOR, "-n", "headrace-system")
    assert uninstall(plane, "operator", "--json", "--timeout=4m") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["objects"] for one in told["left"]] == [[f"minicluster/saves (namespace {namespace})"]]
    assert "--delete-miniclusters" in told["left"][0]["why"] and told["waitedFor"] is None
    # Nobody is there who would save its queue.
    assert not clusters.get("mc", "saves")["metadata"].get("finalizers")
    assert plane.kubectl("get", "clusterrole", "headrace-edit")
    clusters.kubectl("patch", "mc", "saves", "--type=merge", "-p", finalizer)
    assert uninstall(plane, "operator", "--delete-miniclusters") == 0
    assert f"minicluster/saves (namespace {namespace}) deleted" in capsys.readouterr().out
    until(lambda: everything(plane) == before)


def test_a_namespace_with_objects_of_others_stays(
    plane: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_file("headrace-operator.yaml").apply(plane)
    place = ("-n", "headrace-system")
    plane.kubectl(*place, "create", "configmap", "theirs")
    kept = '{"metadata": {"finalizers": ["example.com/kept"]}}'
    plane.kubectl(*place, "patch", "service", "headrace-webhook", "--type=merge", "-p", kept)
    assert uninstall(plane, "operator", "--timeout=3s") == 1
    said = capsys.readouterr().err
    assert "not removed after 3s: service/headrace-webhook (namespace headrace-system)" in said
    assert "finalizer example.com/kept" in said and "headrace operator uninstall` again" in said
    plane.kubectl(
        *place, "patch", "service", "headrace-webhook", "--type=merge", "-p", kept.replace('"example.com/kept"', "")
    )
    assert uninstall(plane, "operator") == 0
    assert "left: namespace/headrace-system: it has configmap/theirs; kubectl delete" in capsys.readouterr().out
    plane.kubectl(*place, "delete", "configmap", "theirs")
    assert uninstall(plane, "operator") == 0
    assert not _is_made(plane, "/api/v1/namespaces/headrace-system")


@contextlib.contextmanager
def installed_queue(cluster: Cluster, way: Way, folder: Path) -> Iterator[RunningFluxqueue]:
    """An install whose queue is a process of this machine, as that of `installed_operator`."""
    way.apply(cluster)
    queue = RunningFluxqueue(cluster, folder)
    # The address of the process takes the place of that of the Service.
    cluster.kubectl("delete", "mutatingwebhookconfiguration", CONFIGURATION)
    hook = configuration({"url": f"https://{queue.webhook}{HOLD_PATH}"}, fluxqueue.Install())
    apply(cluster, hook)
    queue.start()
    try:
        until(lambda: nodes_of_queues(cluster))
        yield queue
    finally:
        queue.stop()


@pytest.mark.parametrize("way", QUEUE_WAYS)
def test_nothing_of_a_queue_stays(plane: Cluster, way: str, tmp_path: Path) -> None:
    before = everything(plane)
    with installed_queue(plane, QUEUE_WAYS[way], tmp_path):
        if way == "helm":
            QUEUE_WAYS[way].delete(plane)
        assert uninstall(plane, "fluxqueue") == 0
        until(lambda: everything(plane) == before)


@pytest.mark.parametrize("first", ["kubectl", "headrace"])
def test_what_waits_is_released(
    plane: Cluster, namespace: str, first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(plane)
    options = fluxqueue.Install(strict=True, grpc=True, grpc_secret="own", store_claim="disk")
    way = by_text(FLUXQUEUE_PACKAGE.install_file(options))
    with installed_queue(plane, way, tmp_path):
        held = Held(plane, namespace)
        held.pod("alone")
        held.pod("stays", annotations={"fluxqueue/hold": "true"})
        held.pod("ours", labels={"app": "ours"})
        held.job("queued", pods=2)
        held.job("on-hold", annotations={"fluxqueue/hold": "true"})
        held.replicated("Deployment", "several", 2, "1")
        until(lambda: len(held.get("fluxjobs")["items"]) == 6)
        until(lambda: len(held.get("pods")["items"]) == 5)
    if first == "kubectl":
        way.delete(plane)
    else:
        assert uninstall(plane, "fluxqueue", "--dry-run") == 0
        assert f"job/queued (namespace {namespace}) released (dry run)" in capsys.readouterr().out
        assert held.get("jobs", "queued")["spec"]["suspend"]
    assert uninstall(plane, "fluxqueue", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    pods = held.get("pods")["items"]
    gated = {one["metadata"]["name"] for one in pods if one["spec"].get("schedulingGates")}
    assert gated == {"stays"}
    queued, on_hold = held.get("jobs", "queued"), held.get("jobs", "on-hold")
    assert not queued["spec"]["suspend"] and "fluxqueue/held" not in (queued["metadata"].get("annotations") or {})
    assert on_hold["spec"]["suspend"]
    left = [name for one in told["left"] for name in one["objects"] if namespace in name]
    where = f"(namespace {namespace})"
    assert left == [f"pod/stays {where}", f"job/on-hold {where}", f"namespace/{namespace}"]
    assert {one["name"] for one in told["released"]} > {"alone", "ours", "queued"}
    until(lambda: everything(plane) == before)
    # What comes later runs at once.
    held.pod("later")
    assert not held.get("pods", "later")["spec"].get("schedulingGates")


def test_queues_that_people_have_written_stay_unless_they_are_to_go(
    plane: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(plane)
    with installed_queue(plane, by_file("headrace-fluxqueue.yaml"), tmp_path):
        large = {**first_queue(), "metadata": {"name": "large"}, "spec": {"nodeSelector": {"pool": "large"}}}
        apply(plane, large)
    assert uninstall(plane, "fluxqueue") == 0
    assert "left: fluxqueue/large: its settings and its definition are kept" in capsys.readouterr().out
    assert _is_made(plane, f"{QUEUES}/large")
    assert uninstall(plane, "fluxqueue", "--delete-queues") == 0
    until(lambda: everything(plane) == before)
