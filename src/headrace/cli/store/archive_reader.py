"""Reads an archive of `flux dump` and stores its values and directories as content (RFC 10, RFC 11)."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque

from headrace.cli.common.errors import CommandError
from headrace.formats.spec import treeobj

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarfile import TarFile
    from typing import Any, Deque, Dict, Iterator, List, Union

    from headrace.cli.common.getopts import Options
    from headrace.wire.client.handle import Handle, Rpc

    Tree = Dict[str, Union["Tree", Dict[str, Any]]]

PREFIX = "flux-restore: "
# Maximum bytes of a value that is stored in its directory; a larger one is a separate blob.
_INLINE = 72
# Number of keys between two progress reports.
_STEP = 100


@contextlib.contextmanager
def opened(path: str) -> Iterator[TarFile]:
    """Open the archive. Raises CommandError, also for errors while it is read."""
    import tarfile

    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            try:
                with tarfile.open(fileobj=file, mode="r|*") as tar:
                    yield tar
            except (tarfile.TarError, EOFError) as exc:
                raise CommandError(f"{path} is not a complete tar archive: {exc}") from None
    except OSError as exc:
        raise CommandError(f"Failed to open '{path}': {exc.strerror or exc}") from None


class Restore:
    """Stores values and directories. References are computed here, so several requests may be in flight."""

    def __init__(self, handle: Handle, options: Options) -> None:
        self._handle = handle
        self._options = options
        self._service = "content-backing" if options.has("no-cache") else "content"
        self._hash = handle.attr_get("content.hash")
        self._most = max(1, options.get_int("maxreqs", 1))
        self._limit = options.get_size("size-limit", 0)
        self._calls: Deque[Rpc] = deque()
        self._keys = 0
        self._blobs = 0

    def take(self, tar: TarFile) -> str:
        """Store the whole archive; returns the reference of its root directory. Raises CommandError."""
        root: Tree = {}
        for member in tar:
            names = names_of(member.name)
            if member.isdir():
                _directory(root, names)
            elif member.issym() and names:
                self.put(root, names, link(member.linkname))
            elif member.isreg() and names:
                if self._limit and member.size > self._limit:
                    text = f"{'.'.join(names)} size {member.size} exceeds {self._limit} limit, skipping"
                    print(f"{PREFIX}{text}", file=sys.stderr)
                    continue
                file = tar.extractfile(member)
                self.put(root, names, self.value(file.read() if file is not None else b""))
        ref = self.directory(root)
        self.settle()
        return ref

    def put(self, root: Tree, names: List[str], obj: Dict[str, Any]) -> None:
        _directory(root, names[:-1])[names[-1]] = obj
        self._keys += 1
        if self._options.has("verbose"):
            print("/".join(names), file=sys.stderr)
        elif self._keys % _STEP == 0:
            self._progress()

    def value(self, data: bytes) -> Dict[str, Any]:
        """Store a value if it is large, and return its tree object."""
        return treeobj.val(data) if len(data) <= _INLINE else treeobj.valref([self._store(data)])

    def directory(self, tree: Tree) -> str:
        """Store a directory and its subdirectories; returns its reference."""
        entries = {}
        for name, entry in tree.items():
            # Tree objects have the member `ver`. In a directory, an entry of that name is a dict and not a number.
            is_object = "ver" in entry and not isinstance(entry["ver"], dict)
            entries[name] = entry if is_object else treeobj.dirref(self.directory(entry))
        obj = treeobj.dir_(entries)
        return self._store(json.dumps(obj, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode())

    def _store(self, blob: bytes) -> str:
        while len(self._calls) >= self._most:
            self._wait()
        self._calls.append(self._handle.rpc(f"{self._service}.store", payload=blob))
        self._blobs += 1
        return treeobj.blobref(blob, self._hash)

    def _wait(self) -> None:
        try:
            self._calls.popleft().get_raw()
        except OSError as exc:
            raise CommandError(f"error storing blob: {exc.strerror}") from None

    def settle(self) -> None:
        """Wait until everything is stored."""
        while self._calls:
            self._wait()
        self._progress(end=True)

    def _progress(self, end: bool = False) -> None:
        if not (self._options.has("quiet") or self._options.has("verbose")):
            text = f"\r{PREFIX}restored {self._keys} keys ({self._blobs} blobs)"
            sys.stderr.write(text + ("\n" if end else ""))
            sys.stderr.flush()


def names_of(path: str) -> List[str]:
    """Split the path of a file into the names of its key; dots are separators, too, as in keys."""
    return [name for name in path.replace("/", ".").split(".") if name]


def link(text: str) -> Dict[str, Any]:
    """The tree object of a link whose text is `TARGET` or `NAMESPACE::TARGET`."""
    namespace, mark, target = text.partition("::")
    return treeobj.symlink(target, namespace) if mark else treeobj.symlink(text)


def _directory(root: Tree, names: List[str]) -> Tree:
    """The directory of a path; it and its parents are created if they do not exist."""
    here = root
    for name in names:
        inner = here.setdefault(name, {})
        if not isinstance(inner, dict) or isinstance(inner.get("ver"), int):
            raise CommandError(f"{'/'.join(names)}: {name} is both a value and a directory")
        here = inner
    return here
