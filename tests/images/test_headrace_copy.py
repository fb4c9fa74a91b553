"""The program of the view's init container, in a root file system that holds nothing but it and the view."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from built_view import skip_without_tools
from headrace.images import release_images
from headrace.images.layer import Entry, file, from_folder, link, program, write_folder

TREE = {"bin/flux": program(b"#!there\n"), "lib/large": file(bytes(3_000_000)), "lib/link": link("large"), "e": Entry()}


@pytest.fixture(scope="module")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without_tools()
    if os.geteuid():
        pytest.skip("needs root, to change the root of a process")
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    write_folder(release_images.image_of(TREE).layers[0], root)
    return root


def copy(root: Path, *argv: str, user: int = 1234, umask: int = 0o077) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["chroot", f"--userspec={user}:{user}", "--groups=", str(root), "/headrace-copy", *argv],
        umask=umask,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def volume(image_root: Path) -> Path:
    """An empty folder below the image's root that anybody may write to, as an emptyDir."""
    folder = image_root / os.urandom(4).hex()
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def content(folder: Path) -> Mapping[str, Entry]:
    return from_folder(folder)


def test_any_user_copies_the_whole_view_with_its_modes_and_links(image_root: Path, volume: Path) -> None:
    done = copy(image_root, f"/{volume.name}/view")
    assert (done.returncode, done.stderr) == (0, "")
    assert content(volume / "view") == content(image_root / "view")
    assert (volume / "view").stat().st_mode & 0o777 == 0o755
    assert os.listdir(volume) == ["view"]


def test_a_run_again_leaves_a_complete_view_as_it_is(image_root: Path, volume: Path) -> None:
    copy(image_root, f"/{volume.name}/view")
    before = (volume / "view" / "lib" / "large").stat().st_ino
    assert copy(image_root, f"/{volume.name}/view").returncode == 0
    assert (volume / "view" / "lib" / "large").stat().st_ino == before


@pytest.mark.parametrize("left", ["view", "view.part"])
def test_what_an_interrupted_run_or_another_version_left_is_replaced(image_root: Path, volume: Path, left: str) -> None:
    write_folder({"lib/old": file(b""), "lib/deep/er": file(b""), "version": file(b"another")}, volume / left)
    for path in (volume / left, *(volume / left).rglob("*")):
        os.chown(path, 1234, 1234)
    assert copy(image_root, f"/{volume.name}/view").stderr == ""
    assert content(volume / "view") == content(image_root / "view")
    assert os.listdir(volume) == ["view"]


def test_a_volume_that_is_not_writable_is_named(image_root: Path, volume: Path) -> None:
    volume.chmod(0o755)
    done = copy(image_root, f"/{volume.name}/view")
    assert done.returncode == 1
    assert done.stderr == f"headrace-copy: make folder /{volume.name}/view.part: Permission denied\n"


@pytest.mark.parametrize("argv", [(), ("view",), ("/a", "/b")])
def test_other_arguments_are_refused(image_root: Path, argv: tuple[str, ...]) -> None:
    done = copy(image_root, *argv)
    assert done.returncode == 2 and "absolute" in done.stderr


def test_another_view_has_another_version() -> None:
    other = {**TREE, "e": Entry(0o700)}
    assert release_images.digest(TREE) == release_images.digest(dict(reversed(TREE.items())))
    assert release_images.digest(TREE) != release_images.digest(other)
