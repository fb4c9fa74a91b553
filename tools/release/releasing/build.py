"""The files of a release, made in an exported tree: the same commit and the same machine give the same bytes."""

from __future__ import annotations

import filecmp
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from . import archives, bill
from .commands import environment, install_into, run
from .source import ReleaseError, Source

CHECKSUMS = "SHA256SUMS"
# The charts, which are also the names of the install files and their Deployments.
CHARTS = ("headrace-operator", "headrace-fluxqueue")
IMAGES = ("operator", "view")
_LOCKS = Path("tools", "release")


class Places:
    """The folders of a build: the exported `tree`, `work` for what is thrown away, and `out` for the files."""

    def __init__(self, tree: Path, work: Path, out: Path) -> None:
        self.tree, self.work, self.out = tree, work, out
        self.tools = work / "tools" / "bin"
        # An environment with the wheel and with what the images contain besides.
        self.contents = work / "contents" / "bin"


def build(source: Source, places: Places, progress: Callable[[str], None]) -> None:
    """Write all files of the release into `places.out`, which is empty. Raises ReleaseError."""
    fixed = {"SOURCE_DATE_EPOCH": str(source.time), "PYTHONHASHSEED": "0"}
    tree, out = places.tree, places.out
    progress("installing the programs that build, and the packages of the images, by their locked hashes")
    environment(places.tools.parent, "--require-hashes", "-r", tree / _LOCKS / "tools.txt")
    environment(places.contents.parent, "--require-hashes", "-r", tree / _LOCKS / "contents.txt")
    progress("building sdist and wheel")
    wheel = _python_packages(source, places, fixed)
    install_into(places.contents, "--no-deps", wheel)
    _install_files(source, places)
    progress("building the images")
    _images(source, places, fixed)
    progress("listing what is in them")
    bill.write(source, places.work, places.contents, places.tools, out)
    (out / "RELEASE-NOTES.md").write_text(source.notes)
    (out / CHECKSUMS).write_text(checksums(out))


def checksums(folder: Path) -> str:
    """Lines for `sha256sum --check`, of all files of a folder."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != CHECKSUMS
    )


def image_archive(which: str, version: str, architecture: str) -> str:
    """The file name of an image's OCI archive."""
    return f"headrace-{which}-{version}-linux-{architecture}.oci.tar"


def _python_packages(source: Source, places: Places, fixed: dict[str, str]) -> Path:
    """Write sdist and wheel, the wheel from the sdist; returns the wheel."""
    made = places.work / "packages"
    build = (places.tools / "python", "-m", "build", "--no-isolation", "--outdir", made)
    run(*build, "--sdist", places.tree, cwd=places.work, more=fixed)
    (sdist,) = made.glob("*.tar.gz")
    # setuptools writes the times of the build into the archive.
    unpacked = places.work / "sdist"
    final = places.out / sdist.name
    final.write_bytes(archives.repacked(sdist, unpacked, source.time))
    run(*build, "--wheel", unpacked / sdist.name.removesuffix(".tar.gz"), cwd=places.work, more=fixed)
    (wheel,) = made.glob("*.whl")
    return Path(shutil.copy(wheel, places.out))


def _install_files(source: Source, places: Places) -> None:
    """Write install files, kustomize bases and charts. Raises ReleaseError if `deploy/` is not what the wheel makes."""
    deploy = places.tree / "deploy"
    made = places.work / "deploy"
    run(places.contents / "python", "-m", "headrace.programs.install_files", made, cwd=places.work)
    if different := _differences(filecmp.dircmp(deploy, made)):
        raise ReleaseError(f"deploy/{different[0]} is not up to date: `make install-files`, commit, and tag anew")
    for chart in CHARTS:
        shutil.copy(deploy / f"{chart}.yaml", places.out)
        version = _chart_version(deploy / "helm" / chart / "Chart.yaml")
        (places.out / f"{chart}-{version}.tgz").write_bytes(
            archives.packed(deploy / "helm" / chart, chart, source.time)
        )
    kustomize = archives.packed(deploy / "kustomize", "kustomize", source.time)
    (places.out / f"headrace-kustomize-{source.version}.tar.gz").write_bytes(kustomize)


def _chart_version(chart: Path) -> str:
    (line,) = (line for line in chart.read_text().splitlines() if line.startswith("version:"))
    return line.partition(":")[2].strip().strip('"')


def _differences(compared: filecmp.dircmp[str]) -> list[str]:
    here = [*compared.left_only, *compared.right_only, *compared.diff_files]
    for name, inner in compared.subdirs.items():
        here += [f"{name}/{path}" for path in _differences(inner)]
    return here


def _images(source: Source, places: Places, fixed: dict[str, str]) -> None:
    made = places.work / "images"
    python = places.contents / "python"
    asked = "from headrace.k8s.packaging.images import REGISTRY; from headrace.images.oci import this_architecture;"
    registry, architecture = run(python, "-c", f"{asked} print(REGISTRY, this_architecture())", cwd=places.work).split()
    name = f"{registry}/{{image}}:{{version}}"
    words = ("-m", "headrace.images", "--into", made, "--name", name, *IMAGES)
    run(python, *words, cwd=places.work, more=fixed, path=places.tools)
    for which in IMAGES:
        target = places.out / image_archive(which, source.version, architecture)
        shutil.copy(made / f"headrace-{which}.tar", target)
