"""Layers with reproducible bytes: the same files give the same layer, wherever and whenever it is built.

A layer is an uncompressed tar (OCI image specification, "Image Layer Filesystem Changeset"): entries are sorted by
path, parents before children, with times 0 and owner 0:0 without names.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A file (`data`), a symbolic link (`link`) or, with neither, a folder. `mode` has only permission bits."""

    mode: int = 0o755
    data: bytes | None = None
    link: str | None = None


def file(data: bytes, mode: int = 0o644) -> Entry:
    return Entry(mode, data)


def program(data: bytes) -> Entry:
    return Entry(0o755, data)


def link(target: str) -> Entry:
    return Entry(0o777, link=target)


FOLDER = Entry()

# Entries by relative path, without a leading or trailing slash.
Tree = Mapping[str, Entry]


def complete(tree: Tree) -> dict[str, Entry]:
    """`tree` with the parent folders of its paths, parents first. Raises ValueError for a path that leaves the tree."""
    out: dict[str, Entry] = {}
    for path in tree:
        parts = path.split("/")
        if not path or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path!r}: a path in a layer is relative, without '.', '..' and empty parts")
        for depth in range(1, len(parts)):
            out.setdefault("/".join(parts[:depth]), FOLDER)
    out.update(tree)
    for path, entry in out.items():
        parent = out.get(path.rpartition("/")[0], FOLDER)
        if parent.data is not None or parent.link is not None:
            raise ValueError(f"{path!r}: its parent is not a folder")
        if entry.data is not None and entry.link is not None:
            raise ValueError(f"{path!r}: a file is no link")
    return dict(sorted(out.items(), key=lambda item: item[0].split("/")))


def tar(tree: Tree) -> bytes:
    """The layer with the entries of `tree`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in complete(tree).items():
            info = tarfile.TarInfo(path)
            info.mode = entry.mode
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            archive.addfile(info, None if entry.data is None else io.BytesIO(entry.data))
    return out.getvalue()


def from_folder(folder: Path) -> dict[str, Entry]:
    """The tree below `folder`: files, links and folders with their permissions. Raises OSError."""
    out: dict[str, Entry] = {}
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            mode = path.lstat().st_mode
            relative = path.relative_to(folder).as_posix()
            if stat.S_ISLNK(mode):
                out[relative] = link(os.readlink(path))
            elif stat.S_ISDIR(mode):
                out[relative] = Entry(stat.S_IMODE(mode))
            elif stat.S_ISREG(mode):
                out[relative] = Entry(stat.S_IMODE(mode), path.read_bytes())
    return out


def write_folder(tree: Tree, folder: Path) -> None:
    """Write `tree` below `folder`, which is created. Raises OSError, also for an existing file."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, entry in complete(tree).items():
        target = folder / path
        if entry.link is not None:
            target.symlink_to(entry.link)
        elif entry.data is None:
            target.mkdir(exist_ok=True)
        else:
            with target.open("xb") as out:
                out.write(entry.data)
        if entry.link is None:
            target.chmod(entry.mode)
