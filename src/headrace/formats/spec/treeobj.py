"""KVS tree objects, version 1 (RFC 11), and the blobrefs that they contain (RFC 10).

The objects are plain dictionaries, as in messages. The functions make objects, and check objects from other programs.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from typing import Any, Dict, List, Optional

# The length of the digest in hex digits for each hash that `content.hash` may name.
_DIGITS = {"sha1": 40, "sha256": 64}
# The standard library's own module for each hash. hashlib loads OpenSSL, which is faster for blobs of more than _SMALL
# bytes but takes longer to load than an instance's KVS takes to start.
_MODULES = {"sha1": "_sha1", "sha256": "_sha2" if sys.version_info >= (3, 12) else "_sha256"}
_SMALL = 2048
_BLOBREF = re.compile(r"([a-z0-9]+)-([0-9a-f]+)\Z", re.ASCII)
# Limits the recursion of programs that walk nested `dir` objects.
MAX_DEPTH = 128

TreeObject = Dict[str, Any]


class TreeObjectError(ValueError):
    """An object that breaks RFC 11, or a blobref that breaks RFC 10; the message has the path."""


def val(data: bytes) -> TreeObject:
    """Return a `val`: an object that contains the data."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode("ascii")}


def valref(blobrefs: List[str]) -> TreeObject:
    """Return a `valref`: data stored in the content store, as one or more blobs."""
    return {"ver": 1, "type": "valref", "data": blobrefs}


def dir_(entries: Optional[Dict[str, TreeObject]] = None) -> TreeObject:
    """Return a `dir` of named tree objects."""
    return {"ver": 1, "type": "dir", "data": {} if entries is None else entries}


def dirref(blobref: str) -> TreeObject:
    """Return a `dirref`: a `dir` stored in the content store."""
    return {"ver": 1, "type": "dirref", "data": [blobref]}


def symlink(target: str, namespace: Optional[str] = None) -> TreeObject:
    """Return a `symlink` to a key, by default in the namespace of the link."""
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
    """Return the digest of `data`; `hash` is a value of `content.hash`."""
    if len(data) <= _SMALL:
        try:
            return bytes(getattr(__import__(_MODULES[hash]), hash)(data).digest())
        except ImportError:
            # This Python was built without its own hash modules, only with OpenSSL's.
            pass
    import hashlib

    if sys.version_info < (3, 9):
        return hashlib.new(hash, data).digest()
    return hashlib.new(hash, data, usedforsecurity=False).digest()  # novermin: behind the check above


def digest_size(hash: str) -> int:
    """Return the number of bytes of a digest."""
    return _DIGITS[hash] // 2


def blobref(data: bytes, hash: str = "sha1") -> str:
    """Return the blobref of a blob: hash name, hyphen, hex digest.

    Raises TreeObjectError for an unknown hash.
    """
    if hash not in _DIGITS:
        raise TreeObjectError(f"unknown hash '{hash}': expected {' or '.join(_DIGITS)}")
    return f"{hash}-{digest(data, hash).hex()}"


def is_blobref(text: object) -> bool:
    """Return whether `text` is a blobref of a known hash."""
    match = _BLOBREF.match(text) if isinstance(text, str) else None
    return match is not None and _DIGITS.get(match.group(1)) == len(match.group(2))


def validate(obj: object) -> None:
    """Check a tree object from another program, including the entries of a `dir`.

    Raises TreeObjectError with the path.
    """
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
