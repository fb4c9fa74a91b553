"""`flux.kvs`: keys and values of the instance.

A value is JSON; a missing key raises FileNotFoundError.
"""

from __future__ import annotations

import base64
import collections.abc
import errno
import json
import os
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from flux.future import Future
from flux.rpc import RPC
from headrace.formats.spec import kvs_flags
from headrace.formats.spec.message import USERID_UNKNOWN

if TYPE_CHECKING:
    from flux.core.handle import Flux


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key of the KVS is a string, not {type(key).__name__}")
    if not key:
        raise OSError(errno.EINVAL, "a key of the KVS must not be empty")


def _namespace(name: Optional[str]) -> str:
    return name or os.environ.get("FLUX_KVS_NAMESPACE") or "primary"


def _lookup(handle: Flux, key: str, flags: int, namespace: Optional[str]) -> Any:
    _check_key(key)
    body = {"key": key, "flags": flags, "namespace": _namespace(namespace)}
    return handle.rpc("kvs.lookup", body).get()["val"]


def _decode(data: bytes) -> Any:
    """A stored value: decoded JSON, otherwise its text, otherwise its bytes; None for an empty value."""
    if not data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    try:
        return json.loads(text)
    except ValueError:
        return text


def get(flux_handle: Flux, key: str, namespace: Optional[str] = None, _kvstxn: Optional[KVSTxn] = None) -> Any:
    """The value of `key`, or its KVSDir if it is a directory. Raises FileNotFoundError."""
    try:
        return get_key_direct(flux_handle, key, namespace)
    except IsADirectoryError:
        return KVSDir(flux_handle, key, namespace=namespace, _kvstxn=_kvstxn)


def get_key_direct(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> Any:
    """The value of `key`. Raises FileNotFoundError, IsADirectoryError."""
    return _decode(get_key_direct_bytes(flux_handle, key, namespace))


def get_key_direct_bytes(handle: Flux, key: str, namespace: Optional[str] = None) -> bytes:
    """The bytes of `key`."""
    return base64.b64decode(_lookup(handle, key, 0, namespace)["data"] or "")


def exists(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> bool:
    try:
        _lookup(flux_handle, key, 0, namespace)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except IsADirectoryError:
        return True
    return True


def isdir(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> bool:
    try:
        _lookup(flux_handle, key, kvs_flags.READDIR, namespace)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _prefix(path: str) -> str:
    """The prefix of keys below a directory; the root is "." or ""."""
    return path.strip(".")


class KVSTxn:
    """Changes that are committed together, to keys below `path`; a `with` block commits them at its end."""

    def __init__(self, flux_handle: Flux, path: str = ".", namespace: Optional[str] = None) -> None:
        self._handle = flux_handle
        self._path = _prefix(path)
        self.namespace = namespace
        self.ops: List[Dict[str, Any]] = []

    def __enter__(self) -> KVSTxn:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.commit()

    def _add(self, key: str, dirent: Any, flags: int = 0) -> None:
        _check_key(key)
        self.ops.append({"key": join(self._path, key), "flags": flags, "dirent": dirent})

    def put(self, key: str, value: Any, raw: bool = False) -> None:
        """Set `key` to a value as JSON; bytes, and with `raw` a string, are stored unchanged."""
        if raw and not isinstance(value, bytes):
            value = value.encode("utf-8")
        data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        self._add(key, {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()})

    def mkdir(self, key: str) -> None:
        self._add(key, {"ver": 1, "type": "dir", "data": {}})

    def unlink(self, key: str) -> None:
        self._add(key, None)

    def symlink(self, key: str, target: str) -> None:
        self._add(key, {"ver": 1, "type": "symlink", "data": {"target": target}})

    def clear(self) -> None:
        """Drop the changes."""
        self.ops = []

    def commit_async(self, flags: int = 0, namespace: Optional[str] = None) -> RPC:
        """Like `commit`, but returns at once; `.get()` of the result waits."""
        ops, self.ops = self.ops, []
        body = {"namespace": _namespace(namespace or self.namespace), "flags": flags, "ops": ops}
        return self._handle.rpc("kvs.commit", body)

    def commit(self, flags: int = 0, namespace: Optional[str] = None) -> int:
        """Commit the changes; returns the sequence number of the new root, 0 without changes.

        Changes that are refused are dropped.
        """
        if not self.ops and not flags:
            return 0
        answer = self.commit_async(flags, namespace).get() or {}
        return int(answer.get("rootseq", 0))


def _transaction(handle: Flux, txn: Optional[KVSTxn]) -> KVSTxn:
    """The given transaction, or the handle's open one."""
    if txn is not None:
        return txn
    if handle.kvs_txn is None:
        handle.kvs_txn = KVSTxn(handle)
    return handle.kvs_txn


def put(flux_handle: Flux, key: str, value: Any, _kvstxn: Optional[KVSTxn] = None, raw: bool = False) -> None:
    """Set `key` with the next `commit`."""
    _transaction(flux_handle, _kvstxn).put(key, value, raw)


def put_mkdir(flux_handle: Flux, key: str, _kvstxn: Optional[KVSTxn] = None) -> None:
    _transaction(flux_handle, _kvstxn).mkdir(key)


def put_unlink(flux_handle: Flux, key: str, _kvstxn: Optional[KVSTxn] = None) -> None:
    _transaction(flux_handle, _kvstxn).unlink(key)


def put_symlink(flux_handle: Flux, key: str, target: str, _kvstxn: Optional[KVSTxn] = None) -> None:
    _transaction(flux_handle, _kvstxn).symlink(key, target)


def commit_async(
    flux_handle: Flux, flags: int = 0, namespace: Optional[str] = None, _kvstxn: Optional[KVSTxn] = None
) -> RPC:
    """Like `commit`, but returns at once; `.get()` of the result waits."""
    return _transaction(flux_handle, _kvstxn).commit_async(flags, namespace)


def commit(flux_handle: Flux, flags: int = 0, namespace: Optional[str] = None, _kvstxn: Optional[KVSTxn] = None) -> int:
    """Commit all changes since the last commit; returns the sequence number of the new root."""
    return _transaction(flux_handle, _kvstxn).commit(flags, namespace)


class KVSDir(collections.abc.MutableMapping):  # type: ignore[type-arg]
    """A directory as a mapping from names to values (or to directories).

    Changes are made by `commit`, or at the end of a `with` block; directories below share them. Raises
    FileNotFoundError, NotADirectoryError.
    """

    def __init__(
        self,
        flux_handle: Optional[Flux] = None,
        path: str = ".",
        handle: None = None,
        namespace: Optional[str] = None,
        _kvstxn: Optional[KVSTxn] = None,
    ) -> None:
        if flux_handle is None:
            raise ValueError("KVSDir: a directory needs flux_handle")
        self.fhdl = flux_handle
        _check_key(path)
        self.path = _prefix(path)
        self._namespace = namespace
        self._txn = KVSTxn(flux_handle, namespace=namespace) if _kvstxn is None else _kvstxn
        _lookup(flux_handle, self.path or ".", kvs_flags.READDIR, namespace)

    def __enter__(self) -> KVSDir:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.commit()

    def key_at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

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
            return get(self.fhdl, self.key_at(name), self._namespace, self._txn)
        except OSError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._txn.put(self.key_at(name), value)

    def __delitem__(self, name: str) -> None:
        self._txn.unlink(self.key_at(name))

    def commit(self, flags: int = 0) -> int:
        return self._txn.commit(flags)

    def commit_async(self, flags: int = 0) -> RPC:
        """Like `commit`, but returns at once; `.get()` of the result waits."""
        return self._txn.commit_async(flags)

    def mkdir(self, key: str, contents: Optional[Mapping[str, Any]] = None) -> None:
        """Make a directory with `contents`, and commit."""
        self._txn.mkdir(self.key_at(key))
        for name, value in (contents or {}).items():
            self[join(key, name)] = value
        self.commit()

    def fill(self, contents: Mapping[str, Any]) -> None:
        """Set several values and commit.

        A key may be a path, `dir.name`; a dictionary is a value, not a directory.
        """
        for key, value in contents.items():
            self[key] = value
        self.commit()

    def list_all(self) -> Tuple[List[str], List[str]]:
        """(names of values, names of directories) of this directory."""
        return list(self.files()), list(self.directories())

    def files(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("val", "valref"))

    def directories(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("dir", "dirref"))


def get_dir(
    flux_handle: Flux, key: str = ".", namespace: Optional[str] = None, _kvstxn: Optional[KVSTxn] = None
) -> KVSDir:
    """A directory. Raises FileNotFoundError, NotADirectoryError."""
    return KVSDir(flux_handle, key, namespace=namespace, _kvstxn=_kvstxn)


def join(*args: str) -> str:
    """A key from its parts."""
    return ".".join(part for part in args if part)


def walk(
    directory: Any, topdown: bool = False, flux_handle: Any = None, namespace: Optional[str] = None
) -> Iterator[Any]:
    """(path, names of directories, names of values) of a directory and all below it, as in os.walk.

    `directory` is a KVSDir, or a key with `flux_handle`; its own path is "". Raises ValueError.
    """
    if not isinstance(directory, KVSDir):
        if flux_handle is None:
            raise ValueError("walk: a key needs flux_handle")
        directory = KVSDir(flux_handle, directory, namespace=namespace)
    return _walk(directory, "", topdown)


def _walk(directory: KVSDir, path: str, topdown: bool) -> Iterator[Any]:
    below, values = list(directory.directories()), list(directory.files())
    if topdown:
        yield path, below, values
    for name in below:
        inner = KVSDir(directory.fhdl, directory.key_at(name), namespace=directory._namespace)
        yield from _walk(inner, join(path, name), topdown)
    if not topdown:
        yield path, below, values


def namespace_create(flux_handle: Flux, namespace: str, owner: int = USERID_UNKNOWN, flags: int = 0) -> None:
    """Create a namespace. Raises FileExistsError if there is one with this name."""
    flux_handle.rpc("kvs.namespace-create", {"namespace": namespace, "owner": owner, "flags": flags}).get()


def namespace_remove(flux_handle: Flux, namespace: str) -> None:
    flux_handle.rpc("kvs.namespace-remove", {"namespace": namespace}).get()


def namespace_list(flux_handle: Flux) -> List[str]:
    spaces = flux_handle.rpc("kvs.namespace-list").get()["namespaces"]
    return [space["namespace"] for space in spaces]


def kvs_checkpoint_lookup(flux_handle: Flux, cache_bypass: bool = False) -> List[Dict[str, Any]]:
    """The checkpoints of the primary namespace, newest first.

    Each has `version`, `rootref`, `sequence` and `timestamp`. `cache_bypass` reads the backing store. Raises
    FileNotFoundError if there is none.
    """
    topic = "content-backing.checkpoint-get" if cache_bypass else "content.checkpoint-get"
    checkpoints: List[Dict[str, Any]] = flux_handle.rpc(topic, {}, nodeid=0).get()["value"]
    return checkpoints


class KVSWatchFuture(Future):
    """The values of a key, one at a time."""

    def get(self, autoreset: bool = True) -> Any:
        """The next value; None after the last. Raises FileNotFoundError if the key does not exist."""
        try:
            data = super().get()["val"]["data"]
        except OSError as exc:
            if exc.errno in (errno.ENODATA, errno.ECANCELED):
                return None
            raise
        if autoreset:
            self.reset()
        return _decode(base64.b64decode(data or ""))

    def cancel(self, stop: bool = False) -> None:
        """Ask the service to end the stream; with `stop`, the callback is not called any more."""
        self._call.cancel("kvs-watch.cancel")
        if stop:
            self.stop()


def kvs_watch_async(
    flux_handle: Flux,
    key: str,
    namespace: Optional[str] = None,
    waitcreate: bool = False,
    uniq: bool = False,
    full: bool = False,
) -> KVSWatchFuture:
    """The value of a key, now and after each change.

    `waitcreate` waits for the key, `uniq` omits repeated values, `full` includes changes through other keys.
    """
    flags = (
        kvs_flags.WATCH | kvs_flags.WAITCREATE * waitcreate | kvs_flags.WATCH_UNIQ * uniq | kvs_flags.WATCH_FULL * full
    )
    body = {"key": key, "flags": flags, "namespace": _namespace(namespace)}
    return KVSWatchFuture(flux_handle, flux_handle.handle.stream("kvs-watch.lookup", body))
