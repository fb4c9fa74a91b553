"""File archives (RFC 37): files as JSON, in jobspecs (``attributes.system.files``) and for stage-in.

An archive maps paths to objects, or is a list of objects with a ``path``. Only entry_from_path() accesses the disk;
callers read and write all other files. read() checks an archive from another program, so that an invalid one is
rejected before any file is written.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

Entry = Dict[str, Any]

_CONTROLS = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\f\r")


class ArchiveError(ValueError):
    """An archive or one of its objects is not well formed; the message contains the path of the field."""


class File(NamedTuple):
    """One object of an archive, decoded.

    ``kind`` is ``file``, ``directory`` or ``symlink``. ``perms`` are the permission bits. A regular file of ``size``
    bytes has either ``data`` or ``blobs``, a list of (offset, size, blobref). A symlink has a ``target``.
    """

    path: str
    kind: str
    perms: int
    mtime: Optional[float]
    size: int
    data: bytes
    blobs: List[Tuple[int, int, str]]
    target: str


def entry(content: Any, perms: int = 0o600) -> Entry:
    """Make the object of a regular file from text, from bytes, or from any other value as JSON."""
    mode = stat.S_IFREG | perms
    if isinstance(content, str):
        return {"mode": mode, "data": content, "encoding": "utf-8"}
    if isinstance(content, (bytes, bytearray)):
        return _encoded(bytes(content), {"mode": mode})
    try:
        json.dumps(content)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ArchiveError(f"file content cannot be JSON: {exc}") from None
    return {"mode": mode, "data": content}


def entry_from_path(path: str) -> Entry:
    """Make the object of a file, directory or symbolic link on disk.

    Raises OSError, and ArchiveError for other kinds of files.
    """
    status = os.lstat(path)
    head: Entry = {"mode": status.st_mode, "mtime": int(status.st_mtime), "ctime": int(status.st_ctime)}
    if stat.S_ISLNK(status.st_mode):
        return {**head, "data": os.readlink(path)}
    if stat.S_ISDIR(status.st_mode):
        return head
    if not stat.S_ISREG(status.st_mode):
        raise ArchiveError(f"{path}: is neither a regular file, a directory nor a symbolic link")
    with open(path, "rb") as file:
        data = file.read()
    return _encoded(data, {**head, "size": len(data)})


def read(obj: Any) -> Iterator[File]:
    """Yield the files of an archive, checking each; raises ArchiveError."""
    if isinstance(obj, dict):
        for path, item in obj.items():
            yield _read_entry(item, path, f"files[{path!r}]")
    elif isinstance(obj, list):
        for index, item in enumerate(obj):
            if not isinstance(item, dict) or not isinstance(item.get("path"), str):
                raise ArchiveError(
                    f"archive[{index}].path: must be a string; an archive list holds objects with a path"
                )
            yield _read_entry(item, item["path"], f"archive[{index}]")
    else:
        raise ArchiveError("archive: must be an object of path to file, or an array of files")


def _encoded(data: bytes, head: Entry) -> Entry:
    if not data:
        return {**head, "size": 0}
    # JSON escapes add five bytes for each control character, base64 adds a third of the size. Newlines and quotes are
    # not counted, so that text is stored readably.
    controls = len(data) - len(data.translate(None, _CONTROLS))
    if 5 * controls <= len(data) / 3:
        try:
            return {**head, "encoding": "utf-8", "data": data.decode("utf-8")}
        except UnicodeDecodeError:
            pass
    return {**head, "encoding": "base64", "data": base64.b64encode(data).decode("ascii"), "size": len(data)}


def _read_entry(item: Any, path: str, where: str) -> File:
    if not isinstance(item, dict):
        raise ArchiveError(f"{where}: must be an object with mode and data")
    check_path(path, where)
    mode = item.get("mode")
    if isinstance(mode, bool) or not isinstance(mode, int) or mode < 0:
        raise ArchiveError(f"{where}.mode: must be an integer as st_mode has it, not {mode!r}")
    mtime = item.get("mtime")
    if mtime is not None and (isinstance(mtime, bool) or not isinstance(mtime, (int, float))):
        raise ArchiveError(f"{where}.mtime: must be seconds since the epoch, not {mtime!r}")
    perms = stat.S_IMODE(mode)
    if stat.S_ISDIR(mode):
        for key in ("size", "data", "encoding"):
            if key in item:
                raise ArchiveError(f"{where}.{key}: a directory has none")
        return File(path, "directory", perms, mtime, 0, b"", [], "")
    if stat.S_ISLNK(mode):
        target = item.get("data")
        if not isinstance(target, str) or not target or "\0" in target:
            raise ArchiveError(f"{where}.data: must be the target of the symbolic link, not {target!r}")
        return File(path, "symlink", perms, mtime, 0, b"", [], target)
    if not stat.S_ISREG(mode):
        raise ArchiveError(f"{where}.mode: {oct(mode)} is neither a regular file, a directory nor a symbolic link")
    size = item.get("size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise ArchiveError(f"{where}.size: must be an integer of 0 or more, not {size!r}")
    encoding = item.get("encoding")
    if encoding == "blobvec":
        blobs = _read_blobs(item.get("data"), size, where)
        total = size if size is not None else max((offset + length for offset, length, _ in blobs), default=0)
        return File(path, "file", perms, mtime, total, b"", blobs, "")
    if "data" not in item:
        # A file without data is empty, or sparse without any data block.
        return File(path, "file", perms, mtime, size or 0, b"", [], "")
    data = _decode(item["data"], encoding, where)
    if size is not None and encoding is not None and size != len(data):
        raise ArchiveError(f"{where}.size: is {size}, but data has {len(data)} bytes")
    return File(path, "file", perms, mtime, len(data), data, [], "")


def check_path(path: str, where: str) -> None:
    """Raise ArchiveError, beginning with `where`, for a path that is not allowed in an archive."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or not {".", "..", ""}.isdisjoint(parts):
        raise ArchiveError(f"{where}: path {path!r} must be relative, without '.', '..' or empty parts")


def _decode(data: Any, encoding: Any, where: str) -> bytes:
    if encoding is None:
        try:
            return json.dumps(data, ensure_ascii=False).encode("utf-8")
        except (UnicodeEncodeError, RecursionError) as exc:
            raise ArchiveError(f"{where}.data: {exc}") from None
    if not isinstance(data, str):
        raise ArchiveError(f"{where}.data: must be a string with encoding {encoding!r}")
    try:
        if encoding == "utf-8":
            return data.encode("utf-8")
        if encoding == "base64":
            return base64.b64decode(data.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as exc:
        raise ArchiveError(f"{where}.data: is not {encoding}: {exc}") from None
    raise ArchiveError(f"{where}.encoding: must be utf-8, base64 or blobvec, not {encoding!r}")


def _read_blobs(data: Any, size: Union[int, None], where: str) -> List[Tuple[int, int, str]]:
    if not isinstance(data, list):
        raise ArchiveError(f"{where}.data: must be an array of [offset, size, blobref] with encoding 'blobvec'")
    blobs = []
    for index, item in enumerate(data):
        good = isinstance(item, list) and len(item) == 3 and isinstance(item[2], str)
        if not good or any(type(number) is not int or number < 0 for number in item[:2]):
            raise ArchiveError(f"{where}.data[{index}]: must be [offset, size, blobref], not {item!r}")
        if size is not None and item[0] + item[1] > size:
            raise ArchiveError(f"{where}.data[{index}]: ends at {item[0] + item[1]}, after the file's size {size}")
        blobs.append((item[0], item[1], item[2]))
    return blobs
