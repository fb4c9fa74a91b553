"""Kubeflow Trainer 2.2 with its own Flux policy, on JobSet, runs our engine: FLUX_VIEW_IMAGE is our compatible view."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster import build
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from other_controllers import becomes_available, controller_image
from patience import TIMEOUT, until

from headrace.images import oci
from headrace.images.compat_image import compat_image

Object = dict[str, Any]

COMPAT = "local/headrace-view-compat:1"
_TRAINER = "kubeflow-system"
_JOBSET = "jobset-system"


def manifests(cluster: Cluster, source: Path, folder: Path, overlay: str, image: str) -> list[Object]:
    """What `kustomize` makes of manifests of others, with an image that is here, for a node of few cores."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        # The cache of Go modules is read-only.
        path.chmod(0o755 if path.is_dir() else 0o644)
    kustomization = folder / overlay / "kustomization.yaml"
    lines = kustomization.read_text().splitlines()
    kustomization.write_text("\n".join(line for line in lines if "third-party" not in line) + "\n")
    found = [one for one in yaml.safe_load_all(cluster.kubectl("kustomize", str(folder / overlay))) if one]
    for one in found:
        if one["kind"] == "Deployment":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container.update(image=image, imagePullPolicy="IfNotPresent")
            container.pop("resources", None)
    return found


@pytest.fixture(scope="module")
def trainer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """JobSet and Trainer run in the cluster, which knows our compatible view; the name of that."""
    folder = tmp_path_factory.mktemp("trainer")
    try:
        binaries = {
            "jobset": build.program("jobset", "jobset"),
            "trainer": build.program("trainer", "trainer-controller-manager"),
        }
        sources = {
            "jobset": build.source("jobset", "sigs.k8s.io/jobset") / "config",
            "trainer": build.source("trainer", "github.com/kubeflow/trainer/v2") / "manifests",
        }
    except KubeError as exc:
        pytest.skip(str(exc))
    for name, binary in binaries.items():
        (folder / f"{name}.tar").write_bytes(controller_image(name, binary))
        cluster.load(folder / f"{name}.tar")
    (folder / "compat.tar").write_bytes(oci.archive(f"docker.io/{COMPAT}", compat_image()))
    cluster.load(folder / "compat.tar")
    for name, overlay in (("jobset", "default"), ("trainer", "overlays/manager")):
        objects = manifests(cluster, sources[name], folder / name, overlay, f"local/{name}:1")
        apply(cluster, [one for one in objects if one["kind"] in ("Namespace", "CustomResourceDefinition")])
        apply(cluster, [one for one in objects if one["kind"] not in ("Namespace", "CustomResourceDefinition")])
    for namespace in (_JOBSET, _TRAINER):
        until(functools.partial(becomes_available, cluster, namespace))
    return COMPAT


def apply(cluster: Cluster, objects: list[Object]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=body)


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


def test_a_trainjob_with_the_flux_policy_runs_to_its_end(
    cluster: Cluster, trainer: str, namespace: str, image: Callable[[str], str]
) -> None:
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "flux", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "trainer": {"numNodes": 2, "command": ["flux", "getattr", "rank"]},
        },
    }

    def admitted() -> bool:
        # The webhooks' certificates come a while after their controllers run.
        try:
            apply(cluster, [runtime(namespace, trainer, image("debian")), train])
        except KubeError as exc:
            if "webhook" not in str(exc):
                raise
            return False
        return True

    until(admitted)
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Complete", "trainjob/train", TIMEOUT)
    pods = cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split()
    (lead,) = (pod for pod in pods if pod.startswith("pod/train-node-0-0-"))
    assert {"0", "1"} <= set(cluster.kubectl("-n", namespace, "logs", lead, "--all-containers").splitlines())
