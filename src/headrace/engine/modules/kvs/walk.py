"""The walk from a key of the KVS to a node, and the result of a lookup. Pure.

The directory of all jobs is not part of the trees. The walk shows it in the primary namespace and reads it from the job
store through its `Env`. If data is not in memory (a blob of the content service, a job of the job store), the walk
raises `Missing` or `NeedPath`. The caller fetches the data and repeats the walk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, Protocol, Union

from headrace.engine.modules.kvs.tree import (
    MAX_DEPTH,
    Dir,
    DirRef,
    KvsError,
    Missing,
    Refs,
    Symlink,
    Val,
    ValRef,
    to_treeobj,
    val_treeobj,
    value_bytes,
)
from headrace.formats.spec.kvs_flags import READDIR, READLINK, TREEOBJ

# The most symlinks that a lookup or an operation follows.
MAX_SYMLINKS = 10


class Mount:
    """A directory with entries of the job store. `under` has the committed entries, which take precedence.

    `path` is the path in the job store; "" is the directory of all jobs.
    """

    __slots__ = ("path", "under")

    def __init__(self, path: str, under: Dir | None) -> None:
        self.path = path
        self.under = under


class Top:
    """The root of the primary namespace as clients see it: `under` plus the directory `job`."""

    __slots__ = ("under",)

    def __init__(self, under: Dir) -> None:
        self.under = under


View = Union[Val, ValRef, Symlink, Dir, DirRef, Mount, Top]


class NeedPath(Exception):
    """The walk needs the job store's data at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NeedFrozen(Exception):
    """The walk needs the reference of a view, which must first be converted to a Dir (`Env.frozen`)."""

    def __init__(self, view: Mount | Top) -> None:
        super().__init__()
        self.view = view


class Env(Protocol):
    """The operations that a walk needs from its caller."""

    refs: Refs

    def outside(self, path: str) -> str | list[str] | None:
        """The value or entry names at `path` in the job store; None if `path` does not exist. Raises NeedPath."""

    def root_of(self, namespace: str) -> View:
        """The root of a namespace. Raises KvsError(ENOTSUP, EPERM), NeedPath."""

    def frozen(self, view: Mount | Top) -> Dir | DirRef:
        """The view converted to a plain directory, with everything below it. Raises NeedFrozen."""


def split_key(key: str) -> list[str]:
    """The components of a key, without empty components; "." is the root. Raises KvsError."""
    if not isinstance(key, str) or not key:
        raise KvsError(errno.EINVAL, "a key must be a non-empty string")
    names = [name for name in key.split(".") if name]
    if len(names) > MAX_DEPTH:
        raise KvsError(errno.ENAMETOOLONG, f"key has {len(names)} components, at most {MAX_DEPTH} are allowed")
    return names


def child(node: View, name: str, env: Env) -> View | None:
    """The entry `name` of a directory of any kind; None if it does not exist or `node` is not a directory."""
    if isinstance(node, Dir):
        return node.entries.get(name)
    if isinstance(node, DirRef):
        if node.loaded is None:
            raise Missing(node)
        return node.loaded.entries.get(name)
    if isinstance(node, Top):
        below = node.under.entries.get(name)
        if name != "job" or not (below is None or isinstance(below, Dir)):
            return below
        return Mount("", below) if below is not None or env.outside("") else None
    if isinstance(node, Mount):
        over = node.under.entries.get(name) if node.under is not None else None
        if over is not None and not isinstance(over, Dir):
            return over
        path = f"{node.path}.{name}" if node.path else name
        found = env.outside(path)
        if isinstance(found, list):
            return Mount(path, over)
        if over is not None:
            return over
        return None if found is None else Val(found.encode("utf-8", "surrogateescape"))
    return None


def find(root: View, key: str, env: Env, follow_last: bool = True) -> View | None:
    """The node at `key`; None if it does not exist.

    Symlinks are followed; in the last component only with `follow_last`. Raises KvsError (ELOOP for too many symlinks,
    errors of `root_of` for a symlink's namespace), Missing, NeedPath.
    """
    todo = split_key(key)[::-1]
    node = root
    links = 0
    while todo:
        name = todo.pop()
        found = child(node, name, env)
        if isinstance(found, Symlink) and (todo or follow_last):
            links += 1
            if links > MAX_SYMLINKS:
                raise KvsError(errno.ELOOP)
            if found.namespace is not None:
                root = env.root_of(found.namespace)
            todo.extend(split_key(found.target)[::-1])
            node = root
            continue
        if found is None:
            return None
        node = found
    return node


def names(node: Dir | Mount | Top, env: Env) -> Iterable[str]:
    """The entry names of a directory, sorted. Raises NeedPath."""
    if isinstance(node, Dir):
        return sorted(node.entries)
    if isinstance(node, Top):
        listed = set(node.under.entries)
        if "job" not in listed and env.outside(""):
            listed.add("job")
        return sorted(listed)
    listed = set(node.under.entries) if node.under is not None else set()
    listed.update(env.outside(node.path) or ())
    return sorted(listed)


def answer(node: View, flags: int, env: Env) -> dict[str, Any]:
    """The tree object for `node` in the response of kvs.lookup.

    Raises KvsError(EISDIR) for a directory without READDIR, KvsError(ENOTDIR) for any other node with READDIR,
    KvsError(EINVAL) for READLINK unless the node is a symlink, and Missing, NeedPath, NeedFrozen.
    """
    if flags & TREEOBJ:
        if isinstance(node, (Mount, Top)):
            node = env.frozen(node)
        return to_treeobj(node, env.refs)
    if isinstance(node, Symlink):
        if flags & READDIR:
            raise KvsError(errno.ENOTDIR)
        return to_treeobj(node, env.refs)
    if flags & READLINK:
        raise KvsError(errno.EINVAL)
    if isinstance(node, (Val, ValRef)):
        if flags & READDIR:
            raise KvsError(errno.ENOTDIR)
        return val_treeobj(value_bytes(node))
    if not flags & READDIR:
        raise KvsError(errno.EISDIR)
    if isinstance(node, DirRef):
        if node.loaded is None:
            raise Missing(node)
        node = node.loaded
    data = {}
    for name in names(node, env):
        entry = child(node, name, env)
        if isinstance(entry, (Mount, Top)):
            # The reference of this directory is not computed, since that would hash all jobs. A client that wants the
            # entries looks up the directory.
            data[name] = {"ver": 1, "type": "dir", "data": {}}
        elif entry is not None:
            data[name] = to_treeobj(entry, env.refs)
    return {"ver": 1, "type": "dir", "data": data}
