"""OCI image archives: a tar of an image layout (OCI image specification 1.0, "Image Layout").

`ctr images import`, `skopeo`, `podman load` and similar tools read them. An archive has one named image, for one
platform or more: the layout's index names an image index, which names a manifest for each platform. So archives from
machines of different architectures can be merged.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .layer import Tree, tar

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# The time of layers and images is constant, so that the same content has the same digest.
_CREATED = "1970-01-01T00:00:00Z"
# The kernel's names of machines, and the names in images (GOARCH).
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}


class ArchiveError(ValueError):
    """An archive that does not follow the specification; the message has the reason."""


@dataclass(frozen=True)
class Image:
    """One platform of an image: layers from the lowest up, and its configuration (names of the specification)."""

    layers: Sequence[Tree]
    config: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = ""


def this_architecture() -> str:
    """The architecture of this machine in images (`amd64`, `arm64`)."""
    return architecture(platform.machine())


def architecture(machine: str) -> str:
    """The name in images for uname(2)'s `machine`; a name in images is returned as it is."""
    return _ARCHITECTURES.get(machine, machine)


def archive(name: str, image: Image) -> bytes:
    """The archive of `image` under its full `name`, such as `docker.io/local/headrace-view:1`.

    Raises ValueError for a name without registry and tag.
    """
    blobs: dict[str, bytes] = {}
    layers = [_add(blobs, tar(tree), LAYER) for tree in image.layers]
    architecture = image.architecture or this_architecture()
    config = {
        "created": _CREATED,
        "architecture": architecture,
        "os": "linux",
        "config": dict(image.config),
        # The diff of an uncompressed layer is the layer itself.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        "history": [{"created": _CREATED, "created_by": "headrace"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _add(blobs, _json(config), CONFIG),
        "layers": layers,
    }
    described = _add(blobs, _json(manifest), MANIFEST)
    described["platform"] = {"architecture": architecture, "os": "linux"}
    return _layout(name, [described], blobs)


def merge(archives: Sequence[bytes]) -> bytes:
    """One archive with the platforms of all; the last archive with a platform takes precedence.

    Raises ArchiveError for archives of different images, and for invalid archives.
    """
    names = set()
    platforms: dict[tuple[str, str], dict[str, Any]] = {}
    blobs: dict[str, bytes] = {}
    for one in archives:
        name, manifests, its = read(one)
        names.add(name)
        blobs.update(its)
        for manifest in manifests:
            its_platform = manifest["platform"]
            platforms[its_platform["os"], its_platform["architecture"]] = manifest
    if len(names) != 1:
        raise ArchiveError(f"archives of one image are merged, these are of {', '.join(sorted(names)) or 'none'}")
    kept = [platforms[key] for key in sorted(platforms)]
    wanted = {digest for manifest in kept for digest in _reachable(manifest, blobs)}
    return _layout(names.pop(), kept, {digest: data for digest, data in blobs.items() if digest in wanted})


def read(archive_bytes: bytes) -> tuple[str, list[dict[str, Any]], dict[str, bytes]]:
    """(name, descriptors of the manifests, blobs by digest) of an archive that `archive` or `merge` made.

    Raises ArchiveError.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive_bytes)) as archive_file:
            files = {
                member.name: content.read()
                for member in archive_file
                if (content := archive_file.extractfile(member)) is not None
            }
    except tarfile.TarError as exc:
        raise ArchiveError(f"no tar: {exc}") from None
    try:
        (top,) = json.loads(files["index.json"])["manifests"]
        name: str = top["annotations"]["io.containerd.image.name"]
        blobs = {
            "sha256:" + path.rpartition("/")[2]: data
            for path, data in files.items()
            if path.startswith("blobs/sha256/")
        }
        for digest, data in blobs.items():
            if digest != _digest(data):
                raise ArchiveError(f"blob {digest} has the digest {_digest(data)}")
        manifests: list[dict[str, Any]] = json.loads(blobs[top["digest"]])["manifests"]
    except (KeyError, TypeError, ValueError) as exc:
        if isinstance(exc, ArchiveError):
            raise
        raise ArchiveError(f"no layout of one named image: {exc!r}") from None
    return name, manifests, blobs


def _reachable(manifest: Mapping[str, Any], blobs: Mapping[str, bytes]) -> list[str]:
    body = json.loads(blobs[manifest["digest"]])
    return [manifest["digest"], body["config"]["digest"], *(layer["digest"] for layer in body["layers"])]


def _layout(name: str, manifests: list[dict[str, Any]], blobs: Mapping[str, bytes]) -> bytes:
    registry, slash, _rest = name.partition("/")
    _path, colon, tag = name.rpartition(":")
    if not (slash and colon and tag and "/" not in tag and "." in registry):
        raise ValueError(f"{name!r}: an image's full name has a registry and a tag, as docker.io/local/NAME:1")
    files = dict(blobs)
    top = _add(files, _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}), INDEX)
    # containerd reads the full name from its own annotation, other tools read the specification's.
    top["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive_file:

        def put(path: str, content: bytes) -> None:
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o644
            archive_file.addfile(info, io.BytesIO(content))

        put("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        put("index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]}))
        for digest, content in sorted(files.items()):
            put(f"blobs/{digest.replace(':', '/')}", content)
    return out.getvalue()


def _add(blobs: dict[str, bytes], data: bytes, media_type: str) -> dict[str, Any]:
    """Add a blob; returns its descriptor."""
    digest = _digest(data)
    blobs[digest] = data
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
