"""Kubeflow Trainer with its own Flux policy, on JobSet, runs our engine: FLUX_VIEW_IMAGE is our compatible view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT
from peers import Trainer

from headrace.images import oci
from headrace.images.release_images import compat_image

Object = dict[str, Any]

COMPAT = "local/headrace-view-compat:1"

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def compat(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of our compatible view, which the nodes have."""
    archive = tmp_path_factory.mktemp("compat") / "compat.tar"
    archive.write_bytes(oci.archive(f"docker.io/{COMPAT}", compat_image()))
    cluster.load(archive)
    return COMPAT


def runtime(namespace: str, view: str, user: str) -> Object:
    """A runtime whose one job is the nodes that Flux spans."""
    container = {
        "name": "node",
        "image": user,
        "env": [{"name": "FLUX_VIEW_IMAGE", "value": view}],
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "flux", "namespace": namespace},
        "spec": {
            "mlPolicy": {"numNodes": 2, "flux": {"numProcPerNode": 1}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }


def train(namespace: str, name: str, command: list[str]) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "flux", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "trainer": {"numNodes": 2, "command": command},
        },
    }


def test_a_trainjob_with_the_flux_policy_runs_to_its_end(
    cluster: Cluster, trainer: Trainer, compat: str, namespace: str, image: Callable[[str], str]
) -> None:
    """Of a command that fails, this policy says Complete, too."""
    flux = runtime(namespace, compat, image("debian"))
    if not trainer.has_flux:
        with pytest.raises(KubeError, match=r"unknown field \"flux\""):
            trainer.apply(flux)
        return
    trainer.apply(flux, train(namespace, "train", ["flux", "getattr", "rank"]), train(namespace, "fails", ["false"]))
    for name in ("train", "fails"):
        cluster.kubectl("-n", namespace, "wait", "--for=condition=Complete", f"trainjob/{name}", TIMEOUT)
    pods = cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split()
    (lead,) = (pod for pod in pods if pod.startswith("pod/train-node-0-0-"))
    assert {"0", "1"} <= set(cluster.kubectl("-n", namespace, "logs", lead, "--all-containers").splitlines())
