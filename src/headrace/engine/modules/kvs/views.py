"""Walks that need data from other services: blobs of the content service, jobs of the job store.

The pure walk (walk.py) raises an exception for missing data. This file requests the data and repeats the walk. Most
lookups need no such data and are answered without an asyncio task.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.kvs.tree import (
    Blob,
    Dir,
    DirRef,
    KvsError,
    Missing,
    Node,
    Refs,
    Val,
    ValRef,
    dir_blob,
    dir_of_ref,
    value_node,
)
from headrace.engine.modules.kvs.walk import Mount, NeedFrozen, NeedPath, Top, View
from headrace.formats.spec.message import Message

T = TypeVar("T")


class Walk:
    """The environment (walk.Env) for the walks of one request: fetched data, and the roots of namespaces."""

    def __init__(self, refs: Refs, root_of: Callable[[str, Walk], View]) -> None:
        self.refs = refs
        self._root_of = root_of
        self.fetched: dict[str, str | list[str] | None] = {}
        self.made: dict[str, Dir | DirRef] = {}

    def outside(self, path: str) -> str | list[str] | None:
        try:
            return self.fetched[path]
        except KeyError:
            raise NeedPath(path) from None

    def root_of(self, namespace: str) -> View:
        return self._root_of(namespace, self)

    def frozen(self, view: Mount | Top) -> Dir | DirRef:
        try:
            return self.made[_view_key(view)]
        except KeyError:
            raise NeedFrozen(view) from None


def _view_key(view: Mount | Top) -> str:
    return view.path if isinstance(view, Mount) else "."


class Fetcher:
    """Fetches the data that walks need.

    The directory of an inactive job is made once and cached until `forget`. If the content store is durable, the
    directory is stored there and only its reference is cached. Otherwise it is cached as long as it is referenced.
    """

    def __init__(self, ctx: ModuleContext, refs: Refs, durable: bool) -> None:
        self.ctx = ctx
        self.refs = refs
        self.durable = durable
        self._ended: WeakValueDictionary[str, Dir] = WeakValueDictionary()
        self._ended_refs: dict[str, str] = {}
        self._forgotten = 0
        # Nodes that `keep` has already stored.
        self._kept: WeakSet[Dir | Blob] = WeakSet()

    def run(self, walk: Walk, fn: Callable[[], T]) -> T | asyncio.Future[T] | Any:
        """The result of `fn()`, or an awaitable of it if data must be fetched first."""
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
            except (Missing, NeedPath, NeedFrozen) as exc:
                need = exc

    async def fill(self, node: Blob | DirRef) -> None:
        """Load a node's blob. Raises KvsError(ENOENT) if the content service does not have it."""
        live = self.refs.live.get(node.ref)
        if isinstance(node, DirRef) and isinstance(live, Dir):
            node.loaded = live
            return
        reply = await self._call("content.load", None, bytes.fromhex(node.ref.partition("-")[2]))
        if reply.errnum:
            raise KvsError(reply.errnum, f"{node.ref} is not in the content store" if reply.errnum == 2 else reply.text)
        node.fill(reply.payload or b"", self.refs)

    async def directory(self, ref: str) -> Dir:
        """The directory with reference `ref`. Raises KvsError."""
        node = dir_of_ref(ref, self.refs)
        if isinstance(node, DirRef):
            await self.fill(node)
            assert node.loaded is not None
            return node.loaded
        return node

    async def path(self, path: str) -> str | list[str] | None:
        """The job store's data at `path`: a value, entry names, or None. None without a job store."""
        reply = await self._call("job-store.lookup", {"path": path})
        if reply.errnum:
            return None
        found = reply.obj or {}
        return found["val"] if "val" in found else found.get("dir")

    def forget(self, path: str) -> None:
        """Drop the cached directory of a job that was purged, or whose log has grown after its end."""
        self._forgotten += 1
        self._ended.pop(path, None)
        self._ended_refs.pop(path, None)

    async def freeze(self, view: Mount | Top, walk: Walk) -> Dir | DirRef:
        """The view converted to plain directories, with all values."""
        if isinstance(view, Top):
            jobs = view.under.entries.get("job")
            if jobs is not None and not isinstance(jobs, Dir):
                return view.under
            mount = await self._freeze_mount("", jobs, await self.path(""))
            entries = dict(view.under.entries)
            if isinstance(mount, DirRef) or mount.entries:
                entries["job"] = mount
            return Dir(entries)
        return await self._freeze_mount(view.path, view.under, await self.path(view.path))

    async def _freeze_mount(self, path: str, under: Dir | None, listed: str | list[str] | None) -> Dir | DirRef:
        entries = dict(under.entries) if under is not None else {}
        forgotten = self._forgotten
        for name in listed if isinstance(listed, list) else ():
            over = entries.get(name)
            if over is None or isinstance(over, Dir):
                entry = await self._freeze_entry(f"{path}.{name}" if path else name, over)
                if entry is not None:
                    entries[name] = entry
        made = Dir(entries)
        if under is None and _job_ended(entries) and forgotten == self._forgotten:
            if self.durable:
                await self.keep(made)
                self._ended_refs[path] = made.reference(self.refs)
                return DirRef(self._ended_refs[path])
            self._ended[path] = made
        return made

    async def _freeze_entry(self, path: str, over: Dir | None) -> Node | None:
        if over is None:
            if path in self._ended_refs:
                return DirRef(self._ended_refs[path])
            ended = self._ended.get(path)
            if ended is not None:
                return ended
        found = await self.path(path)
        if isinstance(found, str):
            return over if over is not None else value_node(found.encode("utf-8", "surrogateescape"))
        return over if found is None else await self._freeze_mount(path, over, found)

    async def keep(self, root: Dir) -> None:
        """Store the blobs of `root` and of all nodes in memory below it. Raises KvsError."""
        todo: list[Dir | Blob] = [root]
        while todo:
            batch, todo = todo[:100], todo[100:]
            calls = []
            for node in batch:
                if node in self._kept:
                    continue
                data = dir_blob(node, self.refs) if isinstance(node, Dir) else node.data
                if data is not None:
                    calls.append((node, self._call("content.store", None, data or None)))
                for entry in node.entries.values() if isinstance(node, Dir) else ():
                    if isinstance(entry, Dir):
                        todo.append(entry)
                    elif isinstance(entry, ValRef):
                        todo.extend(entry.blobs[: entry.count])
            for (node, _call), reply in zip(calls, await asyncio.gather(*(call for _node, call in calls))):
                if reply.errnum:
                    # The directories above the failed blob must be visited again at the next attempt.
                    self._kept.clear()
                    raise KvsError(reply.errnum, reply.text)
                self._kept.add(node)

    async def checkpoint(self, root: Dir, seq: int) -> None:
        """Store `root` and make it the content service's latest checkpoint. Raises KvsError."""
        await self.keep(root)
        value = {"version": 1, "rootref": root.reference(self.refs), "sequence": seq, "timestamp": self.ctx.now()}
        reply = await self._call("content.checkpoint-put", {"key": "kvs-primary", "value": value})
        if reply.errnum:
            raise KvsError(reply.errnum, reply.text)

    async def _call(self, topic: str, obj: dict[str, Any] | None, payload: bytes | None = None) -> Message:
        future: asyncio.Future[Message] = self.ctx.loop.create_future()
        self.ctx.call(topic, obj, lambda reply: None if future.done() else future.set_result(reply), payload=payload)
        return await future


def _job_ended(entries: dict[str, Node]) -> bool:
    """True if a job's directory can no longer change: its eventlog ends with `clean`."""
    log = entries.get("eventlog")
    if log is None:
        return False
    last = log.data if isinstance(log, Val) else getattr(log, "blobs", [Blob(b"")])[-1].data or b""
    return b'"name":"clean"' in last.rstrip(b"\n").rpartition(b"\n")[2]


def failure(exc: KvsError) -> RpcError:
    return RpcError(exc.errnum or errno.EINVAL, exc.text)
