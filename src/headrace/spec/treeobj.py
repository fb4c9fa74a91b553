"""KVS tree objects, version 1 (RFC 11), and the blobrefs they point with (RFC 10).

Plain dictionaries, as they travel: the functions make them, and check those that come from outside.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from typing import Any, Dict, List, Optional

# Digest length in hex digits of the hashes that `content.hash` may name.
_DIGITS = {"sha1": 40, "sha256": 64}
# Where the standard library has each by itself. OpenSSL, which hashlib loads, is faster for what is larger than this
# (bytes), but takes longer to load than an instance's KVS to start.
_MODULES = {"sha1": "_sha1", "sha256": "_sha2" if sys.version_info >= (3, 12) else "_sha256"}
_SMALL = 2048
_BLOBREF = re.compile(r"([a-z0-9]+)-([0-9a-f]+)\Z", re.ASCII)
# Nested `dir` objects; deeper ones would only exhaust the stack of whoever walks them.
MAX_DEPTH = 128

TreeObject = Dict[str, Any]


class TreeObjectError(ValueError):
    """An object breaks RFC 11, or a blobref RFC 10; the message says where."""


def val(data: bytes) -> TreeObject:
    """Return a `val`: the data itself."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode("ascii")}


def valref(blobrefs: List[str]) -> TreeObject:
    """Return a `valref`: data kept in the content store, in pieces."""
    return {"ver": 1, "type": "valref", "data": blobrefs}


def dir_(entries: Optional[Dict[str, TreeObject]] = None) -> TreeObject:
    """Return a `dir` of named tree objects."""
    return {"ver": 1, "type": "dir", "data": {} if entries is None else entries}


def dirref(blobref: str) -> TreeObject:
    """Return a `dirref`: a `dir` kept in the content store."""
    return {"ver": 1, "type": "dirref", "data": [blobref]}


def symlink(target: str, namespace: Optional[str] = None) -> TreeObject:
    """Return a `symlink` to a key, of this namespace if none is named."""
    data = {"target": target} if namespace is None else {"namespace": namespace, "target": target}
    return {"ver": 1, "type": "symlink", "data": data}


def decode_val(obj: TreeObject) -> bytes:
    """Return the data of a `val`. Raises TreeObjectError."""
    if obj.get("type") != "val":
        raise TreeObjectError(f"expected a val, not {obj.get('type')!r}")
    try:
        return base64.b64decode(obj["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as exc:
        raise TreeObjectError(f"val: data is not base64: {exc}") from None


def digest(data: bytes, hash: str) -> bytes:
    """Return the digest of `data`; `hash` is a name that `content.hash` may have."""
    if len(data) <= _SMALL:
        try:
            return bytes(getattr(__import__(_MODULES[hash]), hash)(data).digest())
        except ImportError:
            # A Python that was built with OpenSSL alone.
            pass
    import hashlib

    if sys.version_info < (3, 9):
        return hashlib.new(hash, data).digest()
    return hashlib.new(hash, data, usedforsecurity=False).digest()  # novermin: behind the check above


def digest_size(hash: str) -> int:
    """Return the number of bytes of a digest."""
    return _DIGITS[hash] // 2


def blobref(data: bytes, hash: str = "sha1") -> str:
    """Return the blobref of a blob: hash name, hyphen, hex digest. Raises TreeObjectError for an unknown hash."""
    if hash not in _DIGITS:
        raise TreeObjectError(f"unknown hash '{hash}': expected {' or '.join(_DIGITS)}")
    return f"{hash}-{digest(data, hash).hex()}"


def is_blobref(text: object) -> bool:
    """Return whether `text` is a blobref of a hash we know."""
    match = _BLOBREF.match(text) if isinstance(text, str) else None
    return match is not None and _DIGITS.get(match.group(1)) == len(match.group(2))


def validate(obj: object) -> None:
    """Check a tree object from outside, with all `dir` entries in it. Raises TreeObjectError naming the path."""
    _validate(obj, "", 0)


def _validate(obj: object, path: str, depth: int) -> None:
    where = path or "root"
    if depth > MAX_DEPTH:
        raise TreeObjectError(f"{where}: directories nested more than {MAX_DEPTH} deep")
    if not isinstance(obj, dict):
        raise TreeObjectError(f"{where}: must be an object with ver, type and data")
    if obj.get("ver") != 1 or type(obj["ver"]) is not int:
        raise TreeObjectError(f"{where}: ver must be 1, not {obj.get('ver')!r}")
    kind, data = obj.get("type"), obj.get("data")
    if kind == "val":
        try:
            decode_val(obj)
        except TreeObjectError as exc:
            raise TreeObjectError(f"{where}: {exc}") from None
    elif kind in ("valref", "dirref"):
        if not isinstance(data, list) or not data or not all(map(is_blobref, data)):
            raise TreeObjectError(f"{where}: data of a {kind} must be a list of blobrefs such as sha1-f1d2d2f9…")
        if kind == "dirref" and len(data) != 1:
            raise TreeObjectError(f"{where}: a dirref has exactly one blobref, not {len(data)}")
    elif kind == "symlink":
        if not isinstance(data, dict) or not isinstance(data.get("target"), str):
            raise TreeObjectError(f"{where}: data of a symlink must be an object with a target")
        if not isinstance(data.get("namespace", ""), str):
            raise TreeObjectError(f"{where}: the namespace of a symlink must be a string")
    elif kind == "dir":
        if not isinstance(data, dict):
            raise TreeObjectError(f"{where}: data of a dir must be an object of entries")
        for name, entry in data.items():
            _validate(entry, f"{path}.{name}" if path else name, depth + 1)
    else:
        raise TreeObjectError(f"{where}: unknown type {kind!r}: expected val, valref, dir, dirref or symlink")
