from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from headrace.images.layer import FOLDER, Entry, complete, file, from_folder, link, program, tar, write_folder

TREE = {"b/c": file(b"two"), "a": program(b"one"), "b/l": link("c"), "b-": file(b"")}


def test_the_same_files_give_the_same_bytes_in_whatever_order_they_are_named() -> None:
    assert tar(TREE) == tar(dict(reversed(TREE.items())))


def test_entries_have_no_owner_and_no_time_and_parents_come_first() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar(TREE))) as archive:
        members = archive.getmembers()
    assert [(one.name, one.mode, one.mtime, one.uid, one.uname) for one in members] == [
        ("a", 0o755, 0, 0, ""),
        ("b", 0o755, 0, 0, ""),
        ("b/c", 0o644, 0, 0, ""),
        ("b/l", 0o777, 0, 0, ""),
        ("b-", 0o644, 0, 0, ""),
    ]
    assert members[1].isdir() and members[3].issym() and members[3].linkname == "c"


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/./b"])
def test_a_path_that_leaves_the_layer_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="relative"):
        complete({path: FOLDER})


def test_a_file_below_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="parent is not a folder"):
        complete({"a": file(b""), "a/b": file(b"")})


def test_a_tree_that_is_written_is_read_back(tmp_path: Path) -> None:
    tree = {**TREE, "e": Entry(0o700)}
    write_folder(tree, tmp_path / "root")
    assert from_folder(tmp_path / "root") == complete(tree)
