"""The KVS's trees: immutable nodes with shared structure, hashes, tree objects (RFC 11). Pure.

A commit copies only the directories on its path, so every version in use stays readable at no cost, and a failed
transaction changes nothing. Hashes (of RFC 11 tree objects, addressed as in RFC 10) are computed when a reference is
first requested, and cached in the node. The blob of a node is generated again when a client loads it, so that nothing
is stored twice. For the log, trees are packed without hashing. Reading a blob that only the content service has raises
`Missing`: the caller fetches the blob and repeats the operation.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
from json.encoder import encode_basestring
from typing import Any, Union
from weakref import WeakValueDictionary

from headrace.formats.spec import treeobj

# A value whose base64 text is longer is stored as a separate blob, as in Flux, so that hashes agree.
_INLINE_LIMIT = 72
# Limit on components of a key and on nested directories: hashing needs three nested calls per level.
MAX_DEPTH = 128


class KvsError(ValueError):
    """A request that the KVS refuses; `errnum` is a number of errno.h."""

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(text)
        self.errnum = errnum
        self.text = text


class Missing(Exception):
    """The blob `node.ref` must be loaded from the content service and passed to `node.fill`."""

    def __init__(self, node: Blob | DirRef) -> None:
        super().__init__(node.ref)
        self.node = node


class Refs:
    """The node in memory for each blobref. `hash_name` is the instance's content.hash."""

    __slots__ = ("hash_name", "live")

    def __init__(self, hash_name: str = "sha1") -> None:
        self.hash_name = hash_name
        self.live: WeakValueDictionary[str, Dir | Blob] = WeakValueDictionary()

    def blobref(self, data: bytes) -> str:
        return f"{self.hash_name}-{treeobj.digest(data, self.hash_name).hex()}"

    def valid(self, ref: object) -> bool:
        """True if `ref` is a blobref of this instance's hash."""
        if not isinstance(ref, str) or not ref.startswith(self.hash_name + "-"):
            return False
        digits = ref[len(self.hash_name) + 1 :]
        return len(digits) == 2 * treeobj.digest_size(self.hash_name) and not digits.strip("0123456789abcdef")

    def blob(self, ref: str) -> bytes | None:
        """The blob of a node in memory; None if there is no such node."""
        node = self.live.get(ref)
        if isinstance(node, Dir):
            return dir_blob(node, self)
        return node.data if node is not None else None


class Blob:
    """A piece of a value: its bytes, or only its reference until the blob is loaded."""

    __slots__ = ("__weakref__", "_twin", "data", "ref")

    def __init__(self, data: bytes | None, ref: str = "") -> None:
        self.data = data
        self.ref = ref
        self._twin: Blob | None = None

    def reference(self, refs: Refs) -> str:
        if not self.ref:
            assert self.data is not None
            self.ref = refs.blobref(self.data)
            twin = refs.live.setdefault(self.ref, self)
            if twin is not self and isinstance(twin, Blob):
                self._twin = twin  # keeps the registered blob alive as long as this equal blob
        return self.ref

    def fill(self, data: bytes, refs: Refs) -> None:
        self.data = data
        refs.live.setdefault(self.ref, self)


class Val:
    """A value that is stored in its directory: a small value, or a value of the job store."""

    __slots__ = ("_entry", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._entry = ""


class ValRef:
    """A large or appended value: the first `count` of `blobs`.

    Versions of a growing value share the list. An append to the longest version extends the list in place, which does
    not affect older versions because of their `count`.
    """

    __slots__ = ("_entry", "blobs", "count")

    def __init__(self, blobs: list[Blob], count: int = -1) -> None:
        self.blobs = blobs
        self.count = len(blobs) if count < 0 else count
        self._entry = ""

    def extended(self, data: bytes) -> ValRef:
        blobs = self.blobs if len(self.blobs) == self.count else self.blobs[: self.count]
        blobs.append(Blob(data))
        return ValRef(blobs)


class Symlink:
    __slots__ = ("namespace", "target")

    def __init__(self, target: str, namespace: str | None = None) -> None:
        self.target = target
        self.namespace = namespace


class Dir:
    """A directory. `edit` is the transaction that made it; only that transaction may change it."""

    __slots__ = ("__weakref__", "_ref", "_twin", "edit", "entries")

    def __init__(self, entries: dict[str, Node], edit: object = None) -> None:
        self.entries = entries
        self.edit = edit
        self._ref = ""
        self._twin: Dir | None = None

    def reference(self, refs: Refs) -> str:
        """The blobref. Hashes all nodes below that do not have a reference yet."""
        if not self._ref:
            self._ref = refs.blobref(dir_blob(self, refs))
            twin = refs.live.setdefault(self._ref, self)
            if twin is not self and isinstance(twin, Dir):
                self._twin = twin
        return self._ref


class DirRef:
    """A directory known by its reference. `loaded` is the directory once its blob has been loaded."""

    __slots__ = ("loaded", "ref")

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.loaded: Dir | None = None

    def reference(self, _refs: Refs) -> str:
        return self.ref

    def fill(self, data: bytes, refs: Refs) -> None:
        """Set the blob. Raises KvsError(ENOTRECOVERABLE) if it is not a directory."""
        try:
            node = from_treeobj(json.loads(data), refs)
        except (ValueError, RecursionError) as exc:
            raise KvsError(errno.ENOTRECOVERABLE, f"{self.ref} is not a tree object: {exc}") from None
        if not isinstance(node, Dir):
            raise KvsError(errno.ENOTRECOVERABLE, f"{self.ref} is not a directory")
        self.loaded = node


Node = Union[Val, ValRef, Symlink, Dir, DirRef]


def value_node(data: bytes) -> Val | ValRef:
    """The node for a value, inline or as a blob, as in Flux."""
    return Val(data) if (len(data) + 2) // 3 * 4 <= _INLINE_LIMIT else ValRef([Blob(data)])


def value_bytes(node: Val | ValRef) -> bytes:
    """The whole value. Raises Missing."""
    if isinstance(node, Val):
        return node.data
    return b"".join(blob_bytes(blob) for blob in node.blobs[: node.count])


def blob_bytes(blob: Blob) -> bytes:
    if blob.data is None:
        raise Missing(blob)
    return blob.data


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def val_treeobj(data: bytes) -> dict[str, Any]:
    return {"ver": 1, "type": "val", "data": _b64(data)}


def _entry_text(node: Node, refs: Refs) -> str:
    """The node in its directory's blob: compact JSON with sorted keys."""
    if isinstance(node, Val):
        if not node._entry:
            node._entry = f'{{"data":"{_b64(node.data)}","type":"val","ver":1}}'
        return node._entry
    if isinstance(node, ValRef):
        if not node._entry:
            listed = '","'.join(blob.reference(refs) for blob in node.blobs[: node.count])
            node._entry = f'{{"data":["{listed}"],"type":"valref","ver":1}}'
        return node._entry
    if isinstance(node, Symlink):
        where = "" if node.namespace is None else f'"namespace":{encode_basestring(node.namespace)},'
        return f'{{"data":{{{where}"target":{encode_basestring(node.target)}}},"type":"symlink","ver":1}}'
    ref = node.ref if isinstance(node, DirRef) else node.reference(refs)
    return f'{{"data":["{ref}"],"type":"dirref","ver":1}}'


def dir_blob(node: Dir, refs: Refs) -> bytes:
    """The RFC 11 blob of a directory: compact JSON with sorted keys, so that hashes agree with Flux's."""
    entries = node.entries
    body = ",".join(f"{encode_basestring(name)}:{_entry_text(entries[name], refs)}" for name in sorted(entries))
    return f'{{"data":{{{body}}},"type":"dir","ver":1}}'.encode("utf-8", "surrogateescape")


def to_treeobj(node: Node, refs: Refs) -> dict[str, Any]:
    """The tree object for `node` in its directory. For a directory, this is a dirref."""
    if isinstance(node, Val):
        return val_treeobj(node.data)
    if isinstance(node, ValRef):
        return {"ver": 1, "type": "valref", "data": [blob.reference(refs) for blob in node.blobs[: node.count]]}
    if isinstance(node, Symlink):
        data = {"target": node.target}
        if node.namespace is not None:
            data["namespace"] = node.namespace
        return {"ver": 1, "type": "symlink", "data": data}
    ref = node.ref if isinstance(node, DirRef) else node.reference(refs)
    return {"ver": 1, "type": "dirref", "data": [ref]}


def from_treeobj(obj: Any, refs: Refs, depth: int = 0) -> Node:
    """The node for a tree object (RFC 11). Raises KvsError(EINVAL).

    References to nodes in memory are replaced by the nodes.
    """
    if depth > MAX_DEPTH:
        raise KvsError(errno.EINVAL, f"tree object is nested deeper than {MAX_DEPTH}")
    if not isinstance(obj, dict) or obj.get("ver") != 1 or "type" not in obj or "data" not in obj:
        raise KvsError(errno.EINVAL, 'a tree object is {"ver":1,"type":...,"data":...}')
    kind, data = obj["type"], obj["data"]
    if kind == "val":
        if isinstance(data, str):
            try:
                return value_node(base64.b64decode(data, validate=True))
            except (binascii.Error, ValueError):
                pass
        raise KvsError(errno.EINVAL, "data of a val must be a base64 string")
    if kind == "valref":
        if not isinstance(data, list) or not data or not all(refs.valid(ref) for ref in data):
            raise KvsError(errno.EINVAL, f"data of a valref must be an array of {refs.hash_name} blobrefs")
        return ValRef([_known_blob(ref, refs) for ref in data])
    if kind == "dirref":
        if not isinstance(data, list) or len(data) != 1 or not refs.valid(data[0]):
            raise KvsError(errno.EINVAL, f"data of a dirref must be an array of one {refs.hash_name} blobref")
        return dir_of_ref(data[0], refs)
    if kind == "dir":
        if isinstance(data, dict) and all(name and "." not in name for name in data):
            return Dir({name: from_treeobj(entry, refs, depth + 1) for name, entry in data.items()})
        raise KvsError(errno.EINVAL, "data of a dir must be an object whose names are non-empty and hold no dot")
    if kind == "symlink":
        if isinstance(data, dict) and isinstance(data.get("target"), str) and data["target"]:
            space = data.get("namespace")
            if space is None or (isinstance(space, str) and space):
                return Symlink(data["target"], space)
        raise KvsError(errno.EINVAL, 'data of a symlink must be {"target":key[,"namespace":name]}')
    raise KvsError(errno.EINVAL, f"unknown tree object type {kind!r}")


def _known_blob(ref: str, refs: Refs) -> Blob:
    live = refs.live.get(ref)
    return live if isinstance(live, Blob) else Blob(None, ref)


def dir_of_ref(ref: str, refs: Refs) -> Dir | DirRef:
    """The directory with this reference if it is in memory, else a DirRef that is not loaded."""
    live = refs.live.get(ref)
    return live if isinstance(live, Dir) else DirRef(ref)


def height(node: Node) -> int:
    """The number of levels of directories in memory, including `node`."""
    level = {id(node): node} if isinstance(node, Dir) else {}
    count = 0
    while level and count <= MAX_DEPTH:
        count += 1
        below = [entry for found in level.values() for entry in found.entries.values()]
        level = {id(entry): entry for entry in below if isinstance(entry, Dir)}
    return count


_VAL, _PARTS, _DIR, _DIRREF, _SYMLINK = range(5)


def pack(node: Node) -> list[Any]:
    """The node and all nodes below it as lists, strings and bytes (for msgpack).

    Blobs of a value remain separate, so that their references are valid after a restart.
    """
    if isinstance(node, Val):
        return [_VAL, node.data]
    if isinstance(node, ValRef):
        return [_PARTS, [blob.ref if blob.data is None else blob.data for blob in node.blobs[: node.count]]]
    if isinstance(node, Symlink):
        return [_SYMLINK, node.target, node.namespace]
    if isinstance(node, DirRef):
        if node.loaded is None:
            return [_DIRREF, node.ref]
        node = node.loaded
    return [_DIR, {name: pack(entry) for name, entry in node.entries.items()}]


def unpack(packed: list[Any]) -> Node:
    """The node from the result of `pack`."""
    kind, data = packed[0], packed[1]
    if kind == _VAL:
        return Val(data)
    if kind == _PARTS:
        return ValRef([Blob(None, part) if isinstance(part, str) else Blob(part) for part in data])
    if kind == _SYMLINK:
        return Symlink(data, packed[2])
    if kind == _DIRREF:
        return DirRef(data)
    return Dir({name: unpack(entry) for name, entry in data.items()})
