"""KVS transactions (RFC 11): operations turn a tree into a new tree, or fail as a whole. Pure."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from headrace.engine.modules.kvs.tree import (
    MAX_DEPTH,
    Blob,
    Dir,
    DirRef,
    KvsError,
    Missing,
    Node,
    Refs,
    Symlink,
    Val,
    ValRef,
    from_treeobj,
    height,
    pack,
    unpack,
    value_bytes,
    value_node,
)
from headrace.engine.modules.kvs.walk import MAX_SYMLINKS, split_key
from headrace.formats.spec.kvs_flags import APPEND


class Op(NamedTuple):
    """One operation: put `node` at `key`, append it (flag APPEND), or unlink `key` (`node` is None)."""

    key: str
    flags: int
    node: Optional[Node]


def decode_ops(ops: Any, refs: Refs, guest: bool = False) -> list[Op]:
    """The operations of a kvs.commit request.

    A `guest` may write only values and empty directories, because a symlink or reference could point to another user's
    data.

    Raises KvsError(EPROTO, EINVAL, EPERM) with the number of the operation.
    """
    if not isinstance(ops, list):
        raise KvsError(errno.EPROTO, "ops must be an array")
    decoded = []
    for index, op in enumerate(ops):
        if not isinstance(op, dict) or not isinstance(op.get("key"), str) or "dirent" not in op:
            raise KvsError(errno.EPROTO, f"ops[{index}] must have key, flags and dirent")
        flags = op.get("flags", 0)
        if not isinstance(flags, int) or flags & ~APPEND:
            raise KvsError(errno.EPROTO, f"ops[{index}].flags: {flags!r} is not 0 or {APPEND} (append)")
        dirent = op["dirent"]
        try:
            if not split_key(op["key"]):
                raise KvsError(errno.EINVAL, "the root cannot be replaced")
            node = None if dirent is None else from_treeobj(dirent, refs)
        except KvsError as exc:
            raise KvsError(exc.errnum, f"ops[{index}]: {exc.text}") from None
        if guest and dirent is not None and not _self_contained(dirent):
            raise KvsError(errno.EPERM, f"ops[{index}]: only the instance owner can write a {dirent['type']} object")
        if flags and (node is None or dirent["type"] != "val"):
            raise KvsError(errno.EPROTO, f"ops[{index}]: only a val can be appended")
        decoded.append(Op(op["key"], flags, node))
    return decoded


def _self_contained(dirent: dict[str, Any]) -> bool:
    """True if a tree object has no references."""
    return dirent["type"] == "val" or (dirent["type"] == "dir" and not dirent["data"])


def largest_blob(ops: Sequence[Op]) -> tuple[int, str]:
    """The size of the largest value in `ops`, and the key of its operation."""
    return max(((_largest(op.node), op.key) for op in ops), default=(0, ""))


def _largest(node: Node | None) -> int:
    if isinstance(node, Val):
        return len(node.data)
    if isinstance(node, ValRef):
        return max((len(blob.data) for blob in node.blobs[: node.count] if blob.data is not None), default=0)
    return max(map(_largest, node.entries.values()), default=0) if isinstance(node, Dir) else 0


def pack_ops(ops: Sequence[Op]) -> list[Any]:
    """The operations as lists for the log. A reference to a directory in memory becomes that directory."""
    return [[op.key, op.flags, None if op.node is None else pack(op.node)] for op in ops]


def unpack_ops(packed: Sequence[Any]) -> list[Op]:
    return [Op(key, flags, None if node is None else unpack(node)) for key, flags, node in packed]


def apply(root: Dir | DirRef, ops: Sequence[Op], namespace: str, opened: list[DirRef]) -> Dir:
    """The root after all `ops`. `root` itself is not changed.

    Each DirRef on the path of an operation is appended to `opened`, because the result also depends on the contents of
    its directory.

    Raises KvsError(EISDIR) for an append to a directory, KvsError(EOPNOTSUPP) for an append to a symlink,
    KvsError(EINVAL) for a symlink on a path that leads out of `namespace`, KvsError(ELOOP) for too many symlinks,
    KvsError(ENAMETOOLONG) for too many nested directories, and Missing if a directory must be loaded first.
    """
    edit = object()
    top = _own(_opened(root, opened), edit)
    for op in ops:
        _apply_one(top, op, namespace, edit, opened)
    return top


def _opened(node: Dir | DirRef, opened: list[DirRef]) -> Dir:
    """The directory of `node`. A DirRef is appended to `opened`. Raises Missing if it is not loaded."""
    if isinstance(node, Dir):
        return node
    if node.loaded is None:
        raise Missing(node)
    opened.append(node)
    return node.loaded


def _own(node: Dir, edit: object) -> Dir:
    """A directory that this edit may change: `node` if the edit made it, otherwise a copy."""
    return node if node.edit is edit else Dir(dict(node.entries), edit)


def _apply_one(top: Dir, op: Op, namespace: str, edit: object, opened: list[DirRef]) -> None:
    todo = split_key(op.key)[::-1]
    here = top
    depth = links = 0
    while len(todo) > 1:
        name = todo.pop()
        entry = here.entries.get(name)
        if isinstance(entry, Symlink):
            links += 1
            if links > MAX_SYMLINKS:
                raise KvsError(errno.ELOOP, f"{op.key}: too many symlinks")
            if entry.namespace is not None and entry.namespace != namespace:
                raise KvsError(errno.EINVAL, f"{op.key}: {name} is a symlink into namespace {entry.namespace}")
            todo.extend(split_key(entry.target)[::-1])
            here = top
            depth = 0
            continue
        if isinstance(entry, DirRef):
            entry = _opened(entry, opened)
        if not isinstance(entry, Dir):
            if op.node is None:
                return
            entry = Dir({}, edit)
        below = _own(entry, edit)
        if below is not entry or here.entries.get(name) is not below:
            here.entries[name] = below
        here = below
        depth += 1
    if depth + (height(op.node) if isinstance(op.node, Dir) else 0) > MAX_DEPTH:
        raise KvsError(errno.ENAMETOOLONG, f"{op.key}: more than {MAX_DEPTH} directories deep")
    name = todo[0]
    if op.node is None:
        here.entries.pop(name, None)
    elif op.flags & APPEND:
        here.entries[name] = _appended(here.entries.get(name), op)
    else:
        here.entries[name] = op.node


def _appended(old: Node | None, op: Op) -> Node:
    assert isinstance(op.node, (Val, ValRef))
    data = value_bytes(op.node)
    if old is None:
        return value_node(data)
    if isinstance(old, ValRef):
        return old.extended(data)
    if isinstance(old, Val):
        return ValRef([Blob(old.data), Blob(data)])
    if isinstance(old, Symlink):
        raise KvsError(errno.EOPNOTSUPP, f"{op.key}: cannot append to a symlink")
    raise KvsError(errno.EISDIR, f"{op.key}: cannot append to a directory")
