"""The Kubernetes of the tests: one real cluster and one control plane, started when a test first asks.

They end after the last test of this folder, so that other tests have the machine for themselves, and with the process
that runs the tests, however that ends. `docs/dev/kube-for-tests.md` has what they offer.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import base_images
import diagnosis
import front_proxy
import peers
import pytest
from foreign_sets import Sets, our_runtimes
from installed import guarded, install, uninstall
from kubecluster.cluster import Cluster, unmet
from kubecluster.errors import KubeError
from patience import until
from running_fluxqueue import Held, RunningFluxqueue, running
from running_operator import VIEW, MiniClusters, RunningOperator, define_kind

from headrace.images import oci
from headrace.images.release_images import view_image
from headrace.programs.operator.install import Install
from sizes import size

# The tests of this folder, which is a package for that: a fixture of this scope ends after the last of them.
_FOLDER = "package"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has failed shows what the cluster knows of its namespace, which is deleted right afterwards."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        used = item.funcargs
        its, name = used.get("cluster", used.get("control_plane")), used.get("namespace")
        if isinstance(its, Cluster) and isinstance(name, str):
            report.sections.append((f"namespace {name}", diagnosis.of_namespace(its, name)))
        operator = used.get("admitting", used.get("operator"))
        if isinstance(operator, RunningOperator):
            report.sections.append(("the operator's log", operator.last_words()))
    return report


@contextlib.contextmanager
def _started(kind: str, nodes: int) -> Iterator[Cluster]:
    reason = unmet(nodes)
    if reason:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="headrace-front-proxy-") as folder:
        reading, writing = os.pipe()
        options = {"kube-apiserver": front_proxy.options(Path(folder))}
        started = Cluster.up(f"{kind}-{os.getpid()}", nodes, lifeline=reading, options=options)
        try:
            os.close(reading)
            yield started
        finally:
            started.down()
            os.close(writing)


@pytest.fixture(scope=_FOLDER)
def cluster() -> Iterator[Cluster]:
    """A Kubernetes with two nodes whose pods are real containers."""
    with _started("tests", 2) as started:
        yield started


@pytest.fixture(scope=_FOLDER)
def control_plane() -> Iterator[Cluster]:
    """A Kubernetes without a node: objects, admission, status, garbage collection; its pods stay pending."""
    with _started("plane", 0) as started:
        yield started


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace of the cluster that the test uses, where pods can be made; deleted after."""
    plane_alone = "control_plane" in request.fixturenames and "cluster" not in request.fixturenames
    its: Cluster = request.getfixturevalue("control_plane" if plane_alone else "cluster")
    name = f"test-{uuid.uuid4().hex[:8]}"
    its.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    # Pods are refused until the controller has made the namespace's service account.
    until(lambda: its.api.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
    yield name
    its.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope=_FOLDER)
def view(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the view image of this tree, which the nodes have."""
    archive = tmp_path_factory.mktemp("images") / "view.tar"
    archive.write_bytes(oci.archive(f"docker.io/{VIEW}", view_image("")))
    cluster.load(archive)
    return VIEW


@pytest.fixture(scope=_FOLDER)
def operator(cluster: Cluster, view: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOperator]:
    """The operator of this tree, as a process of this machine, and the kind MiniCluster."""
    define_kind(cluster)
    running = RunningOperator(cluster, tmp_path_factory.mktemp("operator"))
    running.start()
    yield running
    if running.runs:
        running.stop()


@pytest.fixture
def miniclusters(cluster: Cluster, operator: RunningOperator, namespace: str) -> MiniClusters:
    """MiniClusters in a fresh namespace, looked after by the operator."""
    return MiniClusters(cluster, namespace)


@pytest.fixture(scope=_FOLDER)
def image(cluster: Cluster) -> Callable[[str], str]:
    """Have the nodes know an image of users, by its name in `base_images`; returns what containers call it. Skips with
    the reason where it cannot be made."""
    loaded = {"busybox"}

    def load(name: str) -> str:
        if name not in loaded:
            try:
                cluster.load(base_images.IMAGES[name]())
            except base_images.Unavailable as exc:
                pytest.skip(str(exc))
            loaded.add(name)
        return f"local/{name}:1"

    return load


@pytest.fixture(scope=_FOLDER, params=list(peers.JOBSETS)[: size("trainers")])
def trainer(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.Trainer]:
    """Kubeflow Trainer and JobSet in the cluster, of each version that is tested."""
    version = request.param
    try:
        found = peers.objects(cluster, version, tmp_path_factory.mktemp("peers"))
    except KubeError as exc:
        pytest.skip(str(exc))
    yield peers.start(cluster, version, found)
    peers.remove(cluster, found)


@pytest.fixture(scope="module")
def admitting(
    cluster: Cluster, operator: RunningOperator, trainer: peers.Trainer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOperator]:
    """The operator as it is installed for Kubeflow Trainer, with the rights of that and no more; its webhooks stand
    before the Jobs of the cluster. The operator of other tests rests meanwhile."""
    chosen = Install(namespace="headrace-trainer", trainer=True)
    operator.stop()
    try:
        trainer.apply(*our_runtimes())
        install(cluster, chosen)
        with guarded(cluster, chosen, tmp_path_factory.mktemp("admitting")) as found:
            yield found
        uninstall(cluster, chosen)
    finally:
        operator.start()


@pytest.fixture
def sets(trainer: peers.Trainer, admitting: RunningOperator, namespace: str) -> Sets:
    """JobSets and TrainJobs in a fresh namespace, whose labelled Jobs become clusters."""
    found = Sets(trainer, namespace)
    # The API server learns of a webhook moments later.
    until(found.are_admitted)
    return found


@pytest.fixture(scope="module")
def fluxqueue(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFluxqueue]:
    """The cluster queue of this tree, as a process of this machine."""
    with running(cluster, tmp_path_factory.mktemp("fluxqueue")) as started:
        yield started


@pytest.fixture
def held(cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str) -> Held:
    """A fresh namespace that waits in the queue `default`."""
    return Held(cluster, namespace)
