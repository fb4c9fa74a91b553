"""The walk from a key of the KVS to a node, and what a lookup answers with; pure.

The directory of all jobs is not in the trees: the walk sees it laid over them, asking its `Env` for what the job store
has. What is not at hand (a blob that only the content service has, data of jobs) makes the walk raise `Missing` or
`NeedPath`: the caller fetches it and walks again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, Protocol, Union

from headrace.modules.kvs.tree import (
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
from headrace.spec.kvs_flags import READDIR, READLINK, TREEOBJ

# Symlinks that one lookup or one operation may follow.
MAX_SYMLINKS = 10


class Mount:
    """A directory whose entries are asked of the job store; `under` holds what was committed over them.

    `path` is the job store's path ("" is the directory of all jobs).
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
    """The walk needs `path` of the job store."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NeedFrozen(Exception):
    """A reference to a view was asked for: it must be made into a Dir first (`Env.frozen`)."""

    def __init__(self, view: Mount | Top) -> None:
        super().__init__()
        self.view = view


class Env(Protocol):
    """What a walk may ask its caller."""

    refs: Refs

    def outside(self, path: str) -> str | list[str] | None:
        """Value or entry names at `path` of the job store, None when there is nothing. Raises NeedPath."""

    def root_of(self, namespace: str) -> View:
        """Raises KvsError(ENOTSUP, EPERM), NeedPath."""

    def frozen(self, view: Mount | Top) -> Dir | DirRef:
        """The view as a plain directory with all that is below it. Raises NeedFrozen."""


def split_key(key: str) -> list[str]:
    """The components of a key; empty ones do not count, "." is the root. Raises KvsError."""
    if not isinstance(key, str) or not key:
        raise KvsError(errno.EINVAL, "a key must be a non-empty string")
    names = [name for name in key.split(".") if name]
    if len(names) > MAX_DEPTH:
        raise KvsError(errno.ENAMETOOLONG, f"key has {len(names)} components, at most {MAX_DEPTH} are allowed")
    return names


def child(node: View, name: str, env: Env) -> View | None:
    """The entry `name` of a directory of any kind; None when there is none or `node` is no directory."""
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
    """The node at `key`, None when there is none.

    A symlink is followed unless it is the last component and `follow_last` is off. Raises KvsError (ELOOP after
    40 symlinks, whatever `root_of` says about a symlink's namespace), Missing, NeedPath.
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
    """The tree object that kvs.lookup gives for `node`.

    Raises KvsError: EISDIR for a directory without READDIR, ENOTDIR for READDIR of something else, EINVAL for READLINK
    of something else than a symlink; Missing, NeedPath, NeedFrozen.
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
            # Hashing all jobs to list their names would be absurd: a client that wants the entries asks for them.
            data[name] = {"ver": 1, "type": "dir", "data": {}}
        elif entry is not None:
            data[name] = to_treeobj(entry, env.refs)
    return {"ver": 1, "type": "dir", "data": data}
