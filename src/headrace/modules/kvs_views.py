"""Walks that need something fetched: blobs from the content service, jobs' data from the job store.

The pure walk of kvs_tree raises what it lacks; here it is asked for by RPC and the walk is made again. Most lookups
lack nothing and are answered without a task.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ..broker.module import ModuleContext, RpcError
from ..spec.message import Message
from .kvs_tree import (
    Blob,
    Dir,
    DirRef,
    KvsError,
    Missing,
    Mount,
    NeedFrozen,
    NeedPath,
    Node,
    Refs,
    Top,
    Val,
    View,
    value_node,
)

T = TypeVar("T")


class Walk:
    """The environment of one request's walks (kvs_tree.Env): what was fetched for it, and where namespaces begin."""

    def __init__(self, refs: Refs, root_of: Callable[[str, Walk], View]) -> None:
        self.refs = refs
        self._root_of = root_of
        self.fetched: dict[str, str | list[str] | None] = {}
        self.made: dict[str, Dir] = {}

    def outside(self, path: str) -> str | list[str] | None:
        try:
            return self.fetched[path]
        except KeyError:
            raise NeedPath(path) from None

    def root_of(self, namespace: str) -> View:
        return self._root_of(namespace, self)

    def frozen(self, view: Mount | Top) -> Dir:
        try:
            return self.made[_view_key(view)]
        except KeyError:
            raise NeedFrozen(view) from None


def _view_key(view: Mount | Top) -> str:
    return view.path if isinstance(view, Mount) else "."


class Fetcher:
    """Supplies walks."""

    def __init__(self, ctx: ModuleContext, refs: Refs) -> None:
        self.ctx = ctx
        self.refs = refs
        # Directories of jobs that ended are made once, as long as anybody holds them.
        self._ended: WeakValueDictionary[str, Dir] = WeakValueDictionary()

    def run(self, walk: Walk, fn: Callable[[], T]) -> T | asyncio.Future[T] | Any:
        """`fn()`, or an awaitable of it when something has to be fetched first."""
        try:
            return fn()
        except (Missing, NeedPath, NeedFrozen) as need:
            return self._settle(walk, fn, need)

    async def _settle(self, walk: Walk, fn: Callable[[], T], need: Missing | NeedPath | NeedFrozen) -> T:
        while True:
            if isinstance(need, Missing):
                await self.fill(need.node)
            elif isinstance(need, NeedPath):
                walk.fetched[need.path] = await self.path(need.path)
            else:
                walk.made[_view_key(need.view)] = await self.freeze(need.view, walk)
            try:
                return fn()
            except (Missing, NeedPath, NeedFrozen) as again:
                need = again

    async def fill(self, node: Blob | DirRef) -> None:
        """Load a node's blob. Raises KvsError(ENOENT) when the content service does not have it."""
        live = self.refs.live.get(node.ref)
        if isinstance(node, DirRef) and isinstance(live, Dir):
            node.loaded = live
            return
        reply = await self._call("content.load", None, bytes.fromhex(node.ref.partition("-")[2]))
        if reply.errnum:
            raise KvsError(reply.errnum, f"{node.ref} is not in the content store" if reply.errnum == 2 else reply.text)
        node.fill(reply.payload or b"", self.refs)

    async def path(self, path: str) -> str | list[str] | None:
        """What the job store has at `path`: a value, entry names, or nothing (also when there is no job store)."""
        reply = await self._call("job-store.lookup", {"path": path})
        if reply.errnum:
            return None
        found = reply.obj or {}
        return found["val"] if "val" in found else found.get("dir")

    async def freeze(self, view: Mount | Top, walk: Walk) -> Dir:
        """The view as plain directories, values and all."""
        if isinstance(view, Top):
            jobs = view.under.entries.get("job")
            if jobs is not None and not isinstance(jobs, Dir):
                return view.under
            entries = dict(view.under.entries)
            mount = await self.freeze(Mount("", jobs), walk)
            if mount.entries:
                entries["job"] = mount
            return Dir(entries)
        cached = self._ended.get(view.path)
        if cached is not None and view.under is None:
            return cached
        listed = walk.fetched.get(view.path) or await self.path(view.path)
        entries = dict(view.under.entries) if view.under is not None else {}
        for name in listed if isinstance(listed, list) else ():
            over = entries.get(name)
            if over is not None and not isinstance(over, Dir):
                continue
            path = f"{view.path}.{name}" if view.path else name
            entry = await self._freeze_entry(path, over, walk)
            if entry is not None:
                entries[name] = entry
        made = Dir(entries)
        if view.under is None and _job_ended(entries):
            self._ended[view.path] = made
        return made

    async def _freeze_entry(self, path: str, over: Dir | None, walk: Walk) -> Node | None:
        if over is None:
            cached = self._ended.get(path)
            if cached is not None:
                return cached
        found = await self.path(path)
        if isinstance(found, str):
            return over if over is not None else value_node(found.encode("utf-8", "surrogateescape"))
        if found is None:
            return over
        walk.fetched[path] = found
        return await self.freeze(Mount(path, over), walk)

    async def _call(self, topic: str, obj: dict[str, Any] | None, payload: bytes | None = None) -> Message:
        future: asyncio.Future[Message] = self.ctx.loop.create_future()
        self.ctx.call(topic, obj, lambda reply: None if future.done() else future.set_result(reply), payload=payload)
        return await future


def _job_ended(entries: dict[str, Node]) -> bool:
    """True for a job's directory whose eventlog ends with `clean`: nothing in it changes any more."""
    log = entries.get("eventlog")
    if log is None:
        return False
    last = log.data if isinstance(log, Val) else getattr(log, "blobs", [Blob(b"")])[-1].data or b""
    return b'"name":"clean"' in last.rstrip(b"\n").rpartition(b"\n")[2]


def failure(exc: KvsError) -> RpcError:
    return RpcError(exc.errnum or errno.EINVAL, exc.text)
