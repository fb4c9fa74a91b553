"""`flux.kvs`: keys and values of the instance. A value is JSON; a missing key raises FileNotFoundError."""

from __future__ import annotations

import base64
import collections.abc
import errno
import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from flux.future import Future
from flux.rpc import RPC
from headrace.spec import kvs_flags

if TYPE_CHECKING:
    from flux.core.handle import Flux


def _lookup(handle: Flux, key: str, flags: int, namespace: Optional[str]) -> Any:
    body = {"key": key, "flags": flags, "namespace": namespace or "primary"}
    return handle.rpc("kvs.lookup", body).get()["val"]


def get(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> Any:
    """The value of `key`."""
    return json.loads(get_key_direct_bytes(flux_handle, key, namespace) or b"null")


def get_key_direct_bytes(handle: Flux, key: str, namespace: Optional[str] = None) -> bytes:
    """The bytes of `key`."""
    return base64.b64decode(_lookup(handle, key, 0, namespace)["data"] or "")


get_key_direct = get_key_direct_bytes


def exists(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> bool:
    try:
        _lookup(flux_handle, key, 0, namespace)
    except FileNotFoundError:
        return False
    except IsADirectoryError:
        return True
    return True


def isdir(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> bool:
    try:
        _lookup(flux_handle, key, kvs_flags.READDIR, namespace)
    except OSError:
        return False
    return True


class KVSTxn:
    """Changes that are made together."""

    def __init__(self, flux_handle: Flux, namespace: Optional[str] = None) -> None:
        self._handle = flux_handle
        self._namespace = namespace or "primary"
        self.ops: List[Dict[str, Any]] = []

    def _add(self, key: str, dirent: Any, flags: int = 0) -> None:
        self.ops.append({"key": key, "flags": flags, "dirent": dirent})

    def put(self, key: str, value: Any) -> None:
        data = base64.b64encode(json.dumps(value, ensure_ascii=False).encode()).decode()
        self._add(key, {"ver": 1, "type": "val", "data": data})

    def mkdir(self, key: str) -> None:
        self._add(key, {"ver": 1, "type": "dir", "data": {}})

    def unlink(self, key: str) -> None:
        self._add(key, None)

    def symlink(self, key: str, target: str) -> None:
        self._add(key, {"ver": 1, "type": "symlink", "data": {"target": target}})

    def commit(self, flags: int = 0) -> int:
        """Make the changes; returns the sequence number of the new root."""
        ops, self.ops = self.ops, []
        body = {"namespace": self._namespace, "flags": flags, "ops": ops}
        answer = self._handle.rpc("kvs.commit", body).get() or {}
        return int(answer.get("rootseq", 0))


_open: Dict[int, KVSTxn] = {}


def _transaction(handle: Flux) -> KVSTxn:
    return _open.setdefault(id(handle), KVSTxn(handle))


def put(flux_handle: Flux, key: str, value: Any) -> None:
    """Set `key` when `commit` is called next."""
    _transaction(flux_handle).put(key, value)


def put_mkdir(flux_handle: Flux, key: str) -> None:
    _transaction(flux_handle).mkdir(key)


def put_unlink(flux_handle: Flux, key: str) -> None:
    _transaction(flux_handle).unlink(key)


def put_symlink(flux_handle: Flux, key: str, target: str) -> None:
    _transaction(flux_handle).symlink(key, target)


def commit(flux_handle: Flux, flags: int = 0, namespace: Optional[str] = None) -> int:
    """Make what was put since the last commit."""
    txn = _open.pop(id(flux_handle), None) or KVSTxn(flux_handle)
    if namespace:
        txn._namespace = namespace
    return txn.commit(flags)


class KVSDir(collections.abc.MutableMapping):  # type: ignore[type-arg]
    """A directory as a mapping from names to values (or to further directories); changes wait for `commit`."""

    def __init__(self, flux_handle: Flux, path: str = ".", namespace: Optional[str] = None) -> None:
        self.fhdl = flux_handle
        self.path = "" if path == "." else path.rstrip(".")
        self._namespace = namespace
        _lookup(flux_handle, path, kvs_flags.READDIR, namespace)

    def key_at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _entries(self) -> Dict[str, Any]:
        data: Dict[str, Any] = _lookup(self.fhdl, self.path or ".", kvs_flags.READDIR, self._namespace)["data"]
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.exists(name)

    def exists(self, name: str) -> bool:
        return exists(self.fhdl, self.key_at(name), self._namespace)

    def __getitem__(self, name: str) -> Any:
        try:
            return get(self.fhdl, self.key_at(name), self._namespace)
        except IsADirectoryError:
            return KVSDir(self.fhdl, self.key_at(name), self._namespace)
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        put(self.fhdl, self.key_at(name), value)

    def __delitem__(self, name: str) -> None:
        put_unlink(self.fhdl, self.key_at(name))

    def commit(self, flags: int = 0) -> int:
        return commit(self.fhdl, flags, self._namespace)

    def mkdir(self, name: str, contents: Optional[Dict[str, Any]] = None) -> None:
        """Make a directory; with `contents` all of it, nested dictionaries as directories."""
        put_mkdir(self.fhdl, self.key_at(name))
        for key, value in (contents or {}).items():
            if isinstance(value, dict):
                self.mkdir(join(name, key), value)
            else:
                self[join(name, key)] = value

    def fill(self, contents: Dict[str, Any]) -> None:
        """Set all of these and commit."""
        for key, value in contents.items():
            if isinstance(value, dict):
                self.mkdir(key, value)
            else:
                self[key] = value
        self.commit()

    def list_all(self, topdown: bool = False) -> Any:
        """(names of values, names of directories) of this directory."""
        return list(self.files()), list(self.directories())

    def files(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("val", "valref"))

    def directories(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("dir", "dirref"))


def get_dir(flux_handle: Flux, key: str = ".", namespace: Optional[str] = None) -> KVSDir:
    return KVSDir(flux_handle, key, namespace)


def join(*parts: str) -> str:
    """A key from its parts."""
    return ".".join(part for part in parts if part)


def walk(
    directory: Any, topdown: bool = False, flux_handle: Any = None, namespace: Optional[str] = None
) -> Iterator[Any]:
    """(path, names of directories, names of values) of a directory and all below it, as os.walk has it.

    `directory` is a KVSDir, or a key with `flux_handle`; the path of the first is "".
    """
    if not isinstance(directory, KVSDir):
        if flux_handle is None:
            raise ValueError("walk: a key needs flux_handle")
        directory = KVSDir(flux_handle, directory, namespace)
    yield from _walk(directory, "", topdown)


def _walk(directory: KVSDir, path: str, topdown: bool) -> Iterator[Any]:
    below, values = list(directory.directories()), list(directory.files())
    if topdown:
        yield path, below, values
    for name in below:
        inner = KVSDir(directory.fhdl, directory.key_at(name), directory._namespace)
        yield from _walk(inner, join(path, name), topdown)
    if not topdown:
        yield path, below, values


def commit_async(flux_handle: Flux, flags: int = 0, namespace: Optional[str] = None) -> RPC:
    """What `commit` does; `.get()` of the result waits for it."""
    txn = _open.pop(id(flux_handle), None) or KVSTxn(flux_handle)
    return flux_handle.rpc("kvs.commit", {"namespace": namespace or txn._namespace, "flags": flags, "ops": txn.ops})


def namespace_create(flux_handle: Flux, name: str, owner: int = 0xFFFFFFFF, flags: int = 0) -> None:
    """Raises FileExistsError when there is one of this name."""
    flux_handle.rpc("kvs.namespace-create", {"namespace": name, "owner": owner, "flags": flags}).get()


def namespace_remove(flux_handle: Flux, name: str) -> None:
    flux_handle.rpc("kvs.namespace-remove", {"namespace": name}).get()


def namespace_list(flux_handle: Flux) -> List[str]:
    spaces = flux_handle.rpc("kvs.namespace-list").get()["namespaces"]
    return [space["namespace"] for space in spaces]


class KVSWatchFuture(Future):
    """The values of a key, one after another."""

    def get(self, autoreset: bool = True) -> Any:
        """The next value, None after the last. Raises FileNotFoundError when the key is not there."""
        try:
            data = super().get()["val"]["data"]
        except OSError as exc:
            if exc.errno in (errno.ENODATA, errno.ECANCELED):
                return None
            raise
        if autoreset:
            self.reset()
        return json.loads(base64.b64decode(data or "") or b"null")

    def cancel(self, stop: bool = False) -> None:
        self._call.cancel("kvs-watch.cancel")


def kvs_watch_async(
    flux_handle: Flux,
    key: str,
    namespace: Optional[str] = None,
    waitcreate: bool = False,
    uniq: bool = False,
    full: bool = False,
) -> KVSWatchFuture:
    """The value of a key now and whenever it changes.

    `waitcreate` waits for the key, `uniq` leaves out values that are the same, `full` sees changes by other names.
    """
    flags = (
        kvs_flags.WATCH | kvs_flags.WAITCREATE * waitcreate | kvs_flags.WATCH_UNIQ * uniq | kvs_flags.WATCH_FULL * full
    )
    body = {"key": key, "flags": flags, "namespace": namespace or "primary"}
    return KVSWatchFuture(flux_handle, flux_handle.handle.stream("kvs-watch.lookup", body))
