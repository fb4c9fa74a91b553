"""Compressed archives with reproducible bytes: the entries of `headrace.images.layer`, with one time for all."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def packed(folder: Path, name: str, time: int) -> bytes:
    """The .tar.gz of the files below `folder` under the folder `name`, sorted, each of owner 0 and of `time`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                info = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
                info.size, info.mtime = path.stat().st_size, time
                info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                archive.addfile(info, io.BytesIO(path.read_bytes()))
    return gzip.compress(out.getvalue(), mtime=time)


def repacked(archive: Path, into: Path, time: int) -> bytes:
    """The .tar.gz at `archive`, which has one folder at its top, packed again; `into` is where it is unpacked."""
    with tarfile.open(archive) as files:
        files.extractall(into, filter="data")
    (top,) = into.iterdir()
    return packed(top, top.name, time)
