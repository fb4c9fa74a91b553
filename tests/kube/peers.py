"""JobSet and Kubeflow Trainer in the cluster of the tests: their programs as pods, with the manifests of their modules.

Definitions, webhooks (whose certificates they make themselves), roles and Deployments are theirs; only the image is one
that has the program which `tools/kube/kube build` made of the same module.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubecluster import build
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from other_controllers import becomes_available, controller_image
from patience import TIMEOUT, until

Object = dict[str, Any]

_TRAINER_MODULE = "github.com/kubeflow/trainer/v2"
_TRAINER_PROGRAM = "trainer-controller-manager"
_JOBSET_MODULE = "sigs.k8s.io/jobset"
_NAMESPACES = ("jobset-system", "kubeflow-system")
_FIRST = ("Namespace", "CustomResourceDefinition")
# The JobSet that each version of Trainer runs on, the newest Trainer first.
JOBSETS = {"2.3.0": "0.12.0", "2.2.1": "0.11.1", "2.1.0": "0.11.1", "2.0.0": "0.11.1"}


class Trainer(NamedTuple):
    """A version of Kubeflow Trainer that runs in the cluster, on JobSet."""

    cluster: Cluster
    version: str
    source: Path
    """The folder of its module."""

    @property
    def has_flux(self) -> bool:
        """Whether it has a Flux policy of its own, and patches of runtimes."""
        return (self.source / "pkg/runtime/framework/plugins/flux").is_dir()

    def apply(self, *objects: Object) -> None:
        """Apply objects; waits for the webhooks, whose certificates come a while after their controllers run."""
        until(lambda: self._admitted(*objects))

    def _admitted(self, *objects: Object) -> bool:
        try:
            apply(self.cluster, list(objects))
        except KubeError as exc:
            # Of a refusal by a webhook the API server says who denied it.
            if "failed calling webhook" not in str(exc):
                raise
            return False
        return True


def apply(cluster: Cluster, objects: list[Object]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=body)


def built(version: str) -> tuple[dict[str, str], dict[str, Path]]:
    """The programs and the sources of a Trainer and its JobSet, by project. Raises KubeError where one is not built."""
    modules = {"jobset": f"jobset-{JOBSETS[version]}", "trainer": f"trainer-{version}"}
    programs = {
        "jobset": build.program(modules["jobset"], "jobset"),
        "trainer": build.program(modules["trainer"], _TRAINER_PROGRAM),
    }
    sources = {
        "jobset": build.source(modules["jobset"], _JOBSET_MODULE),
        "trainer": build.source(modules["trainer"], _TRAINER_MODULE),
    }
    return programs, sources


def objects(cluster: Cluster, version: str, folder: Path) -> list[Object]:
    """The objects of a Trainer and its JobSet, whose images the nodes get; `folder` is for copies of manifests."""
    programs, sources = built(version)
    places = {"jobset": ("config", "default"), "trainer": ("manifests", "overlays/manager")}
    found: list[Object] = []
    for name, (manifests, overlay) in places.items():
        image = f"{name}-{version}"
        archive = folder / f"{image}.tar"
        archive.write_bytes(controller_image(image, programs[name]))
        cluster.load(archive)
        found += _made(cluster, sources[name] / manifests, folder / name, overlay, f"local/{image}:1")
    return found


def _made(cluster: Cluster, source: Path, folder: Path, overlay: str, image: str) -> list[Object]:
    """What `kustomize` makes of manifests of others, with an image that is here, for a node of few cores."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        # The cache of Go modules is read-only.
        path.chmod(0o755 if path.is_dir() else 0o644)
    kustomization = folder / overlay / "kustomization.yaml"
    # Trainer's manifests take those of JobSet from its repository.
    lines = kustomization.read_text().splitlines()
    kustomization.write_text("\n".join(line for line in lines if "third-party" not in line) + "\n")
    found = [one for one in yaml.safe_load_all(cluster.kubectl("kustomize", str(folder / overlay))) if one]
    for one in found:
        if one["kind"] == "Deployment":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container.update(image=image, imagePullPolicy="IfNotPresent")
            container.pop("resources", None)
    return found


def start(cluster: Cluster, version: str, found: list[Object]) -> Trainer:
    """Apply the `objects` of a version and wait for its controllers."""
    apply(cluster, [one for one in found if one["kind"] in _FIRST])
    apply(cluster, [one for one in found if one["kind"] not in _FIRST])
    for namespace in _NAMESPACES:
        until(functools.partial(becomes_available, cluster, namespace))
    return Trainer(cluster, version, built(version)[1]["trainer"])


def remove(cluster: Cluster, found: list[Object]) -> None:
    """Remove all of a version, first what its controllers look after: other versions have other definitions."""
    kinds = [one["metadata"]["name"] for one in found if one["kind"] == "CustomResourceDefinition"]
    for kind in sorted(kinds, key=lambda kind: not kind.startswith("trainjobs")):
        cluster.kubectl("delete", kind, "--all", "--all-namespaces", TIMEOUT)
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    cluster.kubectl("delete", "--ignore-not-found", "--wait", TIMEOUT, "-f", "-", input=body)


def stock_runtimes(trainer: Trainer) -> dict[str, Object]:
    """The ClusterTrainingRuntimes that come with a Trainer, by name, with that of its examples for Flux."""
    folders = [trainer.source / "manifests/base/runtimes", trainer.source / "examples/flux"]
    found = {}
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.yaml"))):
        for one in yaml.safe_load_all(path.read_text()):
            if one and one["kind"] == "ClusterTrainingRuntime":
                found[one["metadata"]["name"]] = one
    return found
