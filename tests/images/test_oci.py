"""Archives against the rules of the OCI image specification 1.0."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.images import oci
from headrace.images.__main__ import main as images
from headrace.images.layer import file, tar

NAME = "docker.io/local/thing:1"
LAYERS = [{"a": file(b"one")}, {"b": file(b"two")}]


def files_of(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive.getmembers()}  # type: ignore[union-attr]


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """What a descriptor names, after the checks that a reader makes."""
    algorithm, _colon, digest = descriptor["digest"].partition(":")
    data = files[f"blobs/{algorithm}/{digest}"]
    assert algorithm == "sha256" and hashlib.sha256(data).hexdigest() == digest
    assert len(data) == descriptor["size"]
    return data


def test_a_reader_finds_its_platform_its_configuration_and_its_layers() -> None:
    files = files_of(oci.archive(NAME, oci.Image(LAYERS, {"Entrypoint": ["/a"]}, "arm64")))
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files["index.json"])
    assert index["schemaVersion"] == 2
    (top,) = index["manifests"]
    assert top["annotations"] == {
        "io.containerd.image.name": NAME,
        "org.opencontainers.image.ref.name": "1",
    }
    (descriptor,) = json.loads(blob(files, top))["manifests"]
    assert descriptor["platform"] == {"architecture": "arm64", "os": "linux"}
    manifest = json.loads(blob(files, descriptor))
    assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, descriptor["mediaType"])
    config = json.loads(blob(files, manifest["config"]))
    assert (config["architecture"], config["os"], config["config"]) == ("arm64", "linux", {"Entrypoint": ["/a"]})
    layers = [blob(files, layer) for layer in manifest["layers"]]
    assert layers == [tar(tree) for tree in LAYERS]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert len(config["history"]) == len(layers)
    reachable = {top["digest"], descriptor["digest"], manifest["config"]["digest"]}
    reachable |= {layer["digest"] for layer in manifest["layers"]}
    assert {path.replace("/", ":")[len("blobs:") :] for path in files if path.startswith("blobs/")} == reachable


def test_the_same_image_has_the_same_archive() -> None:
    image = oci.Image(LAYERS, {"Env": ["A=b"], "Cmd": ["x"]}, "amd64")
    again = oci.Image([dict(tree) for tree in LAYERS], {"Cmd": ["x"], "Env": ["A=b"]}, "amd64")
    assert oci.archive(NAME, image) == oci.archive(NAME, again)


def test_this_machine_is_the_platform_where_none_is_told() -> None:
    _name, (descriptor,), _blobs = oci.read(oci.archive(NAME, oci.Image(LAYERS)))
    assert descriptor["platform"]["architecture"] == oci.this_architecture()


def test_archives_of_two_architectures_are_merged_and_a_later_one_replaces_an_earlier() -> None:
    arm = oci.archive(NAME, oci.Image(LAYERS, {}, "arm64"))
    old = oci.archive(NAME, oci.Image([{"old": file(b"")}], {}, "amd64"))
    new = oci.archive(NAME, oci.Image(LAYERS, {}, "amd64"))
    merged = oci.merge([old, arm, new])
    assert merged == oci.merge([new, arm])
    name, manifests, blobs = oci.read(merged)
    assert name == NAME
    assert [one["platform"]["architecture"] for one in manifests] == ["amd64", "arm64"]
    assert tar({"old": file(b"")}) not in blobs.values()


def test_archives_of_different_images_are_not_merged() -> None:
    image = oci.Image(LAYERS)
    with pytest.raises(oci.ArchiveError, match="other:1"):
        oci.merge([oci.archive(NAME, image), oci.archive("docker.io/local/other:1", image)])


@pytest.mark.parametrize("name", ["thing", "local/thing:1", "docker.io/local/thing", "docker.io/x:5/thing", ""])
def test_a_name_without_registry_or_tag_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="registry and a tag"):
        oci.archive(name, oci.Image(LAYERS))


def test_a_blob_that_was_changed_is_noticed() -> None:
    data = oci.archive(NAME, oci.Image(LAYERS))
    with pytest.raises(oci.ArchiveError, match="digest"):
        oci.read(data.replace(b"two", b"owt"))


@pytest.mark.parametrize("data", [b"", b"no tar at all" * 100, tar({"index.json": file(b"[]")})])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(oci.ArchiveError):
        oci.read(data)


def test_images_for_another_machine_are_refused_with_the_way_to_make_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "s390x" if oci.this_architecture() != "s390x" else "riscv64"
    assert images(["--arch", wanted, "--into", str(tmp_path), "view"]) == 1
    told = capsys.readouterr().err
    assert f"images for {wanted} are built on such a machine" in told and "--merge ONE.tar OTHER.tar" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm64", "arm64")])
def test_an_architecture_may_be_called_as_the_kernel_or_as_images_call_it(machine: str, name: str) -> None:
    assert oci.architecture(machine) == name
