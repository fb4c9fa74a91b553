"""`flux archive`: stores files in the KVS (RFC 37), for the nodes and jobs of an instance.

The key `archive.NAME` has the list of files. A small file is stored in the list. A larger file is stored as blobs of
the content service; the holes of a sparse file are left out.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec import archive, treeobj
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    from headrace.cli.common.getopts import Options
    from headrace.formats.spec.archive import File

PREFIX = "flux-archive: "

_NAME = ("n", "name", "NAME", "Name of the archive (default: main)")
_FORCE = ("", "no-force-primary", "", "Use the namespace in FLUX_KVS_NAMESPACE instead of the primary one")
_COMMON = (_NAME, _FORCE)
_FOLDER = ("C", "directory", "DIR", "Change to DIR first")
_VERBOSE = ("v", "verbose", "", "Print the name of each file")
_TABLE = {
    "create": ("Store files and directories in an archive", None),
    "remove": ("Remove an archive", None),
    "extract": ("Extract the files of an archive into the current directory", None),
    "list": ("List the files of an archive", None),
}
_CREATE = Command(
    "flux-archive create",
    "[OPTIONS] PATH ...",
    _TABLE["create"][0],
    (
        *_COMMON,
        _FOLDER,
        _VERBOSE,
        ("", "overwrite", "", "Replace an existing archive"),
        ("", "append", "", "Add to an existing archive"),
        ("", "preserve", "", "No effect: with a statedir, archives always survive restarts"),
        ("", "chunksize", "SIZE", "Maximum size of a blob (default: 1M)"),
        ("", "small-file-threshold", "SIZE", "Maximum size of a file in the archive itself (default: 4K)"),
    ),
)
_REMOVE = Command(
    "flux-archive remove",
    "[OPTIONS]",
    "Remove an archive",
    (*_COMMON, ("f", "force", "", "Succeed if the archive does not exist")),
)
_EXTRACT = Command(
    "flux-archive extract",
    "[OPTIONS] [PATTERN]",
    "Extract the files of an archive, or those that match a shell pattern, into the current directory",
    (
        *_COMMON,
        _FOLDER,
        _VERBOSE,
        ("t", "list-only", "", "Print the names and extract nothing"),
        ("", "overwrite", "", "Overwrite existing files"),
        ("", "waitcreate", "[FSD]", "If the archive does not exist yet, wait for it, at most FSD"),
    ),
)
_LIST = Command(
    "flux-archive list",
    "[OPTIONS] [PATTERN]",
    "List the files of an archive, or those that match a shell pattern",
    (
        *_COMMON,
        ("l", "long", "", "Also print type, permissions and size"),
        ("", "raw", "", "Print the objects of RFC 37"),
    ),
)


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-archive", argv, _TABLE)
    return int({"create": _create, "remove": _remove, "extract": _extract, "list": _list}[name](rest))


class _Place:
    """The key of an archive, and the requests to read and write it."""

    def __init__(self, options: Options) -> None:
        self.key = f"archive.{options.get('name', 'main')}"
        self.space = os.environ.get("FLUX_KVS_NAMESPACE", "primary") if options.has("no-force-primary") else "primary"
        self.handle = Handle()

    def load(self, wait: Optional[str] = None) -> List[Any]:
        """The archive's list. With `wait` (an FSD, "" for no limit) it waits for the archive. Raises OSError."""
        found = kvs.lookup(self.handle, self.key, self.space, 0) if wait is None else self._wait(wait)
        obj = json.loads(kvs.data_of(found))
        if not isinstance(obj, list):
            raise CommandError(f"{self.key} is not an archive: it must be an array of files (RFC 37)")
        return obj

    def _wait(self, wait: str) -> Dict[str, Any]:
        from headrace.formats.spec import duration
        from headrace.formats.spec.kvs_flags import WAITCREATE

        try:
            seconds = duration.parse(wait) if wait else None
        except ValueError as exc:
            raise CommandError(f"--waitcreate: {exc}") from None
        request = {"key": self.key, "namespace": self.space, "flags": WAITCREATE}
        call = self.handle.stream("kvs-watch.lookup", request)
        found: Dict[str, Any] = call.get(seconds)["val"]
        return found

    def load_or_fail(self, wait: Optional[str] = None) -> List[Any]:
        try:
            return self.load(wait)
        except OSError as exc:
            raise CommandError(f"KVS lookup {self.key}: {os.strerror(exc.errno or errno.ETIMEDOUT)}") from None

    def store(self, files: Optional[List[Any]]) -> None:
        """Write the list; None removes the key."""
        dirent = None
        if files is not None:
            dirent = treeobj.val(json.dumps(files, ensure_ascii=False, separators=(",", ":")).encode())
        try:
            kvs.commit(self.handle, self.space, [kvs.op(self.key, dirent)])
        except OSError as exc:
            raise CommandError(f"KVS commit {self.key}: {exc.strerror}") from None


def _chdir(options: Options) -> None:
    if options.has("directory"):
        try:
            os.chdir(options.get("directory"))
        except OSError as exc:
            raise CommandError(f"chdir {options.get('directory')}: {exc.strerror}") from None


def _create(argv: List[str]) -> int:
    options = _CREATE.parse(argv)
    paths = options.need(1)
    if options.has("overwrite") and options.has("append"):
        raise CommandError("--overwrite and --append cannot be used together")
    place = _Place(options)
    files: List[Any] = []
    if not options.has("overwrite"):
        try:
            files = place.load()
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise CommandError(f"KVS lookup {place.key}: {exc.strerror}") from None
        else:
            if not options.has("append"):
                raise CommandError(f"{place.key}: key exists")
    _chdir(options)
    for path in paths:
        for each in _below(os.path.normpath(path)):
            if options.has("verbose"):
                print(each, file=sys.stderr)
            try:
                files.append({"path": each, **_entry(each, place.handle, options)})
            except OSError as exc:
                raise CommandError(f"{each}: {exc.strerror}") from None
            except archive.ArchiveError as exc:
                raise CommandError(str(exc)) from None
    place.store(files)
    return 0


def _below(path: str) -> Iterator[str]:
    """A path and, for a directory, all paths below it.

    `.` gives only the content of the current directory.
    """
    if path != ".":
        try:
            archive.check_path(path, path)
        except archive.ArchiveError as exc:
            raise CommandError(str(exc)) from None
        yield path
    if os.path.isdir(path) and not os.path.islink(path):
        for name in sorted(os.listdir(path)):
            yield from _below(name if path == "." else f"{path}/{name}")


def _entry(path: str, handle: Handle, options: Options) -> Dict[str, Any]:
    """The object of a file. Raises OSError, ArchiveError."""
    status = os.lstat(path)
    small = options.get_size("small-file-threshold", 4096)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= small:
        return archive.entry_from_path(path)
    head = {"mode": status.st_mode, "mtime": int(status.st_mtime), "ctime": int(status.st_ctime)}
    chunk = max(1, options.get_size("chunksize", 1 << 20))
    hash_name = handle.attr_get("content.hash")
    blobs = []
    with open(path, "rb") as file:
        for offset, length in _extents(file.fileno(), status.st_size, chunk):
            digest = handle.rpc("content.store", payload=os.pread(file.fileno(), length, offset)).get_raw()
            blobs.append([offset, length, f"{hash_name}-{digest.hex()}"])
    return {**head, "size": status.st_size, "encoding": "blobvec", "data": blobs}


def _extents(fd: int, size: int, chunk: int) -> Iterator[Tuple[int, int]]:
    """(offset, length) of a file's data, no longer than `chunk`; holes are left out."""
    end = 0
    while end < size:
        try:
            offset = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:
            # The rest of the file is a hole.
            return
        end = os.lseek(fd, offset, os.SEEK_HOLE)
        while offset < end:
            length = min(chunk, end - offset)
            yield offset, length
            offset += length


def _remove(argv: List[str]) -> int:
    options = _REMOVE.parse(argv)
    options.need(0, 0)
    place = _Place(options)
    try:
        place.load()
    except OSError as exc:
        if exc.errno == errno.ENOENT and options.has("force"):
            return 0
        text = "does not exist" if exc.errno == errno.ENOENT else str(exc.strerror)
        raise CommandError(f"{place.key} {text}") from None
    place.store(None)
    return 0


def _chosen(options: Options, objects: List[Any]) -> Iterator[Tuple[Any, File]]:
    """The files that match the pattern, as the stored object and decoded. Raises CommandError."""
    from fnmatch import fnmatchcase

    patterns = options.need(0, 1)
    try:
        for obj, file in zip(objects, archive.read(objects)):
            if not patterns or fnmatchcase(file.path, patterns[0]):
                yield obj, file
    except archive.ArchiveError as exc:
        raise CommandError(str(exc)) from None


def _list(argv: List[str]) -> int:
    options = _LIST.parse(argv)
    for obj, file in _chosen(options, _Place(options).load_or_fail()):
        if options.has("raw"):
            print(json.dumps(obj, ensure_ascii=False, separators=(",", ":")))
        elif options.has("long"):
            kind = {"file": "f", "directory": "d", "symlink": "l"}[file.kind]
            print(f"{kind} 0{file.perms:o} {file.size:8d} {file.path}")
        else:
            print(file.path)
    return 0


def _extract(argv: List[str]) -> int:
    options = _EXTRACT.parse(argv)
    place = _Place(options)
    objects = place.load_or_fail(options.get("waitcreate") if options.has("waitcreate") else None)
    _chdir(options)
    top = os.path.realpath(".")
    for _obj, file in _chosen(options, objects):
        if options.has("list-only"):
            print(file.path)
            continue
        if options.has("verbose"):
            print(file.path, file=sys.stderr)
        try:
            _write(file, place.handle, top, options.has("overwrite"))
        except FileExistsError:
            raise CommandError(f"{file.path}: write: Attempt to overwrite existing file") from None
        except OSError as exc:
            raise CommandError(f"{file.path}: write: {exc.strerror}") from None
    return 0


def _write(file: File, handle: Handle, top: str, overwrite: bool) -> None:
    """Create a file, directory or link below `top`. Raises OSError, CommandError."""
    folder = os.path.dirname(file.path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    # The path of a file must not lead outside of `top` by a symbolic link that was extracted earlier.
    if os.path.commonpath([os.path.realpath(folder or "."), top]) != top:
        raise CommandError(f"{file.path}: {folder} leads out of {top} by a symbolic link")
    if file.kind == "directory":
        os.makedirs(file.path, exist_ok=True)
        os.chmod(file.path, file.perms)
        return
    if overwrite and (os.path.islink(file.path) or os.path.isfile(file.path)):
        os.unlink(file.path)
    if file.kind == "symlink":
        os.symlink(file.target, file.path)
        return
    fd = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as out:
        out.write(file.data)
        for offset, length, ref in file.blobs:
            blob = handle.rpc("content.load", payload=bytes.fromhex(ref.partition("-")[2])).get_raw()
            if len(blob) != length:
                raise CommandError(f"{file.path}: {ref} has {len(blob)} bytes, the archive says {length}")
            out.seek(offset)
            out.write(blob)
        out.truncate(file.size)
        os.fchmod(fd, file.perms)
    if file.mtime is not None:
        os.utime(file.path, (file.mtime, file.mtime))
