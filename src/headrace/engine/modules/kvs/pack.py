"""The KVS's trees packed for its log, without hashing. Blobs of values remain separate, so that their references are
valid after a restart.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.modules.kvs.tree import Blob, Dir, DirRef, Node, Symlink, Val, ValRef

_VAL, _PARTS, _DIR, _DIRREF, _SYMLINK = range(5)


def pack(node: Node) -> list[Any]:
    """The node as lists, strings and bytes (for msgpack), with all nodes below it."""
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
    """The node that was packed by `pack`."""
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
