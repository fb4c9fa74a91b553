"""`flux.kvs`: keys and values of the instance. A value is JSON; a missing key raises FileNotFoundError."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

if TYPE_CHECKING:
    from flux.core.handle import Flux

_READDIR = 1


def _lookup(handle: Flux, key: str, flags: int, namespace: Optional[str]) -> Any:
    body = {"key": key, "flags": flags, "namespace": namespace or "primary"}
    return handle.rpc("kvs.lookup", body).get()["val"]


def get(flux_handle: Flux, key: str, namespace: Optional[str] = None) -> Any:
    """The value of `key`."""
    return json.loads(get_key_direct_bytes(flux_handle, key, namespace) or b"null")


def get_key_direct_bytes(handle: Flux, key: str, namespace: Optional[str] = None) -> bytes:
    """The bytes of `key`."""
    return base64.b64decode(_lookup(handle, key, 0, namespace)["data"] or "")


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
        _lookup(flux_handle, key, _READDIR, namespace)
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


class KVSDir:
    """A directory as a mapping from names to values (or to further directories)."""

    def __init__(self, flux_handle: Flux, path: str = ".", namespace: Optional[str] = None) -> None:
        self.fhdl = flux_handle
        self.path = "" if path == "." else path.rstrip(".")
        self._namespace = namespace
        _lookup(flux_handle, path, _READDIR, namespace)

    def key_at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _entries(self) -> Dict[str, Any]:
        data: Dict[str, Any] = _lookup(self.fhdl, self.path or ".", _READDIR, self._namespace)["data"]
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __contains__(self, name: str) -> bool:
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

    def mkdir(self, name: str) -> None:
        put_mkdir(self.fhdl, self.key_at(name))

    def files(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("val", "valref"))

    def directories(self) -> Iterator[str]:
        return (name for name, entry in self._entries().items() if entry["type"] in ("dir", "dirref"))


def get_dir(flux_handle: Flux, key: str = ".", namespace: Optional[str] = None) -> KVSDir:
    return KVSDir(flux_handle, key, namespace)
