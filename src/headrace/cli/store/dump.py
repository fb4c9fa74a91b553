"""`flux dump`: writes the KVS, which holds all jobs, to a tar archive.

A key becomes a path (`a.b` is `a/b`), a value a file, and a link a symbolic link. Empty directories are left out. The
tree is read from one root reference, so the archive is a consistent snapshot of the KVS.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec import treeobj
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarfile import TarFile
    from typing import IO, Any, ContextManager, Dict, List, Optional, Tuple

    from headrace.cli.common.getopts import Options
    from headrace.wire.client.handle import Rpc

PREFIX = "flux-dump: "

_COMMAND = Command(
    "flux-dump",
    "[OPTIONS] OUTFILE",
    "Write the KVS to a tar archive, compressed by its suffix (.tgz, .tar.xz ...); - is standard output",
    (
        ("v", "verbose", "", "Print the name of each key"),
        ("q", "quiet", "", "Print no progress"),
        ("", "checkpoint", "", "Read the last checkpoint of the backing store instead of the current version"),
        ("", "no-cache", "", "No effect: --checkpoint always bypasses the broker's cache"),
        ("", "ignore-failed-read", "", "Report and skip keys that cannot be read"),
        ("", "maxreqs", "N", "Maximum number of concurrent requests (default: 1)"),
        ("", "sd-notify", "", "No effect: systemd is not notified"),
    ),
)
# Compression by the suffix of the file; with other suffixes the archive is not compressed.
_COMPRESSION = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "tbz2": "bz2", "tbz": "bz2", "xz": "xz", "txz": "xz"}
# Number of keys between two progress reports.
_STEP = 100


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (path,) = options.need(1, 1)
    handle = Handle()
    # For the current version, the KVS creates blobs on request: the backing store may not have them.
    service = "content-backing" if options.has("checkpoint") else "content"
    ref, when = _checkpoint(handle) if options.has("checkpoint") else (_root(handle), time.time())
    import tarfile

    try:
        with _opened(path) as file, tarfile.open(fileobj=file, mode=_mode(path), format=tarfile.PAX_FORMAT) as tar:
            dump = _Dump(handle, options, tar, service, when)
            dump.run(treeobj.dirref(ref))
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror or exc}") from None
    return 0


def _root(handle: Handle) -> str:
    try:
        ref: str = handle.rpc("kvs.getroot", {"namespace": "primary"}).get()["rootref"]
    except OSError as exc:
        raise CommandError(f"error fetching current KVS root: {exc.strerror}") from None
    return ref


def _checkpoint(handle: Handle) -> Tuple[str, float]:
    """The root reference of the last checkpoint, and its time."""
    try:
        newest = handle.rpc("content-backing.checkpoint-get", {}, nodeid=0).get()["value"][0]
    except OSError as exc:
        raise CommandError(f"error fetching checkpoint: {exc.strerror}") from None
    return newest["rootref"], float(newest.get("timestamp") or 0.0)


def _opened(path: str) -> ContextManager[IO[bytes]]:
    if path == "-":
        return contextlib.nullcontext(sys.stdout.buffer)
    try:
        return open(path, "wb")
    except OSError as exc:
        raise CommandError(f"Failed to open '{path}': {exc.strerror}") from None


def _mode(path: str) -> Any:
    return f"w|{_COMPRESSION.get(path.rpartition('.')[2], '')}"


class _Item:
    """A key to write; `calls` are the requests for the blobs of its object, None before they are sent."""

    __slots__ = ("calls", "names", "obj")

    def __init__(self, names: Tuple[str, ...], obj: Dict[str, Any]) -> None:
        self.names = names
        self.obj = obj
        self.calls: Optional[List[Rpc]] = None

    @property
    def key(self) -> str:
        return ".".join(self.names) or "."


class _Dump:
    """A walk through a tree, depth first with sorted keys; some blobs are requested in advance."""

    def __init__(self, handle: Handle, options: Options, tar: TarFile, service: str, when: float) -> None:
        self._handle = handle
        self._options = options
        self._tar = tar
        self._service = service
        self._when = when
        self._ahead = max(1, options.get_int("maxreqs", 1))
        self._count = 0

    def run(self, root: Dict[str, Any]) -> None:
        todo = [_Item((), root)]
        while todo:
            for item in todo[: -self._ahead - 1 : -1]:
                self._ask(item)
            todo += self._take(todo.pop())
        self._progress(end=True)

    def _ask(self, item: _Item) -> None:
        if item.calls is None:
            refs = item.obj["data"] if item.obj["type"] in ("dirref", "valref") else ()
            digests = (bytes.fromhex(ref.partition("-")[2]) for ref in refs)
            item.calls = [self._handle.rpc(f"{self._service}.load", payload=digest) for digest in digests]

    def _take(self, item: _Item) -> List[_Item]:
        """Write a value or link. For a directory, return its entries in reverse order."""
        kind, data = item.obj["type"], item.obj["data"]
        try:
            blob = b"".join([call.get_raw() for call in item.calls or ()])
        except OSError as exc:
            return self._failed(item, exc.strerror or "")
        if kind == "dirref":
            data = json.loads(blob)["data"]
        if kind in ("dir", "dirref"):
            # Sorted, because a JSON object has no order.
            return [_Item((*item.names, name), data[name]) for name in sorted(data, reverse=True)]
        if any("/" in name for name in item.names):
            return self._failed(item, "an archive cannot have a name with '/'")
        if kind == "symlink":
            target = data["target"]
            self._add(item, b"", f"{data['namespace']}::{target}" if "namespace" in data else target)
        else:
            self._add(item, treeobj.decode_val(item.obj) if kind == "val" else blob, "")
        return []

    def _failed(self, item: _Item, why: str) -> List[_Item]:
        if not self._options.has("ignore-failed-read"):
            raise CommandError(f"{item.key}: {why}")
        print(f"{PREFIX}{item.key}: {why}", file=sys.stderr)
        return []

    def _add(self, item: _Item, value: bytes, link: str) -> None:
        import tarfile

        info = tarfile.TarInfo("/".join(item.names))
        info.mode = 0o644
        if link:
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, link, 0o777
        else:
            info.size = len(value)
            info.mtime = self._when if _is_eventlog(value) else 0
        self._tar.addfile(info, io.BytesIO(value))
        self._count += 1
        if self._options.has("verbose"):
            print("/".join(item.names), file=sys.stderr)
        elif self._count % _STEP == 0:
            self._progress()

    def _progress(self, end: bool = False) -> None:
        if not (self._options.has("quiet") or self._options.has("verbose")):
            sys.stderr.write(f"\r{PREFIX}archived {self._count} keys" + ("\n" if end else ""))
            sys.stderr.flush()


def _is_eventlog(value: bytes) -> bool:
    """True if the first line of a value is an event of an eventlog (RFC 18)."""
    try:
        first = json.loads(value.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and "timestamp" in first and "name" in first
