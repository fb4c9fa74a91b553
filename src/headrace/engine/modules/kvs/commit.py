"""KVS changes: transactions are merged into versions of namespaces, made durable, and published.

Changes are collected until the end of the loop turn, or until the write in progress has finished. Then the changes of
each namespace become one version (unless a client forbids merging), and all versions are written with one sync. Only
then they are published: commits are answered, setroot events are sent, and requests that wait for the version are
answered. If a change fails, only this change is refused.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple
from weakref import WeakSet

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.state import disk
from headrace.engine.modules.background import Background
from headrace.engine.modules.kvs.job_data import touched
from headrace.engine.modules.kvs.log import Log, Space, create_record, remove_record, version_record
from headrace.engine.modules.kvs.tree import Dir, DirRef, KvsError, Missing, Refs
from headrace.engine.modules.kvs.txn import Op, apply
from headrace.engine.modules.kvs.views import Fetcher, failure
from headrace.engine.modules.kvs.walk import split_key
from headrace.formats.spec.message import Message

PRIMARY = "primary"

# The number of latest versions whose trees can be read by reference without the content store.
_HISTORY = 256
# Limits of one batch: seconds for applying changes, and number of changes, because responses also take time.
_SLICE = 0.002
_BATCH = 200


class Namespace:
    """A namespace: its published root and version, and the requests that wait for a later version."""

    __slots__ = ("flags", "name", "owner", "root", "seq", "waiters")

    def __init__(self, name: str, owner: int, flags: int, root: Dir | DirRef, seq: int = 0) -> None:
        self.name = name
        self.owner = owner
        self.flags = flags
        self.root = root
        self.seq = seq
        self.waiters: list[tuple[int, Message]] = []


class Change:
    """A change to be written: a transaction, or creation (`create`) or removal (`remove`) of a namespace."""

    __slots__ = ("create", "merge", "messages", "names", "ops", "remove", "space", "sync")

    def __init__(self, space: str, messages: list[Message], ops: list[Op], merge: bool = True) -> None:
        self.space = space
        self.messages = messages
        self.ops = ops
        self.merge = merge
        self.sync = False
        self.names: list[str] = []
        self.create: Namespace | None = None
        self.remove = False


class Version:
    """Changes that become visible together, as the next version of one namespace."""

    __slots__ = ("changes", "merge", "opened", "root", "seq", "space")

    def __init__(self, space: Namespace, root: Dir, seq: int) -> None:
        self.space = space
        self.root = root
        self.seq = seq
        self.changes: list[Change] = []
        self.opened: list[DirRef] = []
        self.merge = True


class Estate(NamedTuple):
    """The state that a KVS leaves to its next load in the same broker: namespaces and their nodes."""

    refs: Refs
    spaces: dict[str, Namespace]
    history: deque[Dir | DirRef]

    def save(self, path: str) -> None:
        """Store the namespaces in a new log. Raises sqlite3.Error."""
        log = Log(path)
        log.compact([_snapshot(space) for space in self.spaces.values()])
        log.close()


class Committer:
    """The namespaces, and the changes that are not published yet."""

    def __init__(
        self, ctx: ModuleContext, refs: Refs, fetcher: Fetcher, log: Log | None, estate: Estate | None = None
    ) -> None:
        self.ctx = ctx
        self.refs = refs
        self.fetcher = fetcher
        self.spaces: dict[str, Namespace] = estate.spaces if estate is not None and log is None else {}
        self.pending: deque[Change] = deque()
        # Distributions of the number of operations in commits and in fences.
        self.commit_ops = Spread()
        self.fence_ops = Spread()
        # The latest published roots, kept in memory so that their trees can be read by reference.
        self.history: deque[Dir | DirRef] = deque(maxlen=_HISTORY) if estate is None else estate.history
        # Published roots of the primary namespace. Lookups at these roots include the view of jobs.
        self.primary_roots: WeakSet[Dir] = WeakSet()
        self._log = log
        self._thread = Background(ctx.loop.call_soon_threadsafe, "kvs") if log is not None else None
        self._busy = False
        self._failing = False
        # Set by close(): further changes are refused, and `_written` is done when the queued changes are written.
        self._closing = False
        self._written: asyncio.Future[None] | None = None
        for space in (log.replay() if log is not None else {}).values():
            self.spaces[space.name] = Namespace(space.name, space.owner, space.flags, space.root, space.seq)
        if PRIMARY not in self.spaces:
            self.spaces[PRIMARY] = Namespace(PRIMARY, ctx.owner, 0, Dir({}))
            if log is not None:
                log.append([create_record(_snapshot(self.spaces[PRIMARY]))])
        self.primary_roots.add(self.primary_root)

    def queue(self, change: Change) -> None:
        """Add a change. Its messages are answered when it is published or refused."""
        if self._closing:
            self._refuse(change, RpcError(errno.ENOSYS, f"{self.ctx.name} was unloaded"))
            return
        self.pending.append(change)
        self.ctx.at_flush(self._flush)

    def _flush(self) -> None:
        """Turn pending changes into versions and write them, unless a write is in progress."""
        if self._busy or not self.pending:
            return
        versions: list[Version] = []
        latest: dict[str, Version] = {}
        records: list[bytes] = []
        start = time.monotonic()
        count = 0
        while self.pending and count < _BATCH and time.monotonic() - start < _SLICE:
            count += 1
            change = self.pending[0]
            if change.create is not None or change.remove:
                if versions:
                    break
                self.pending.popleft()
                self._write_space(change)
                return
            try:
                version = self._next_version(change, latest)
            except Missing as need:
                if not versions:
                    self._busy = True
                    self.ctx.spawn(self._load(need, change))
                break
            except RpcError as exc:
                self.pending.popleft()
                self._refuse(change, exc)
                continue
            self.pending.popleft()
            if version not in versions:
                versions.append(version)
        if self._log is not None:
            for version in versions:
                ops = [op for change in version.changes for op in change.ops]
                records.append(version_record(version.space.name, version.seq, ops, version.opened))
        if versions:
            self._write(records, lambda: self._publish(versions), [c for v in versions for c in v.changes])
        elif not self._busy:
            # All changes of the batch were refused, so no write will start the next batch.
            self._flush_soon()

    def _next_version(self, change: Change, latest: dict[str, Version]) -> Version:
        """The version that contains `change`. Raises RpcError if the change is refused, or Missing."""
        space = self.spaces.get(change.space)
        if space is None:
            raise RpcError(errno.ENOTSUP)
        version = latest.get(change.space)
        root, seq = (space.root, space.seq) if version is None else (version.root, version.seq)
        opened: list[DirRef] = []
        try:
            after = apply(root, change.ops, change.space, opened)
        except KvsError as exc:
            raise failure(exc) from None
        if version is None or not (version.merge and change.merge):
            version = latest[change.space] = Version(space, after, seq + 1)
        version.root = after
        version.opened += opened
        version.merge = change.merge
        version.changes.append(change)
        return version

    async def _load(self, need: Missing, change: Change) -> None:
        try:
            await self.fetcher.fill(need.node)
        except KvsError as exc:
            self.pending.remove(change)
            self._refuse(change, failure(exc))
        finally:
            self._busy = False
            self._flush_soon()

    def _write(self, records: list[bytes], publish: Callable[[], None], changes: list[Change]) -> None:
        """Make `records` durable, then call `publish`. If the write fails, refuse `changes`."""
        if self._log is None or self._thread is None:
            publish()
            self._flush_soon()
            return
        log = self._log

        def done(_result: Any, error: BaseException | None) -> None:
            self._busy = False
            try:
                if error is not None:
                    self._not_written(log.path, error, changes)
                    return
                if self._failing:
                    self.ctx.log(logging.WARNING, f"{log.path} can be written again: changes are accepted")
                self._failing = False
                publish()
                self._compact()
            finally:
                self._flush_soon()

        self._busy = True
        self._thread.submit(lambda: log.append(records), done)

    def _not_written(self, path: str | PathLike[str], error: BaseException, changes: list[Change]) -> None:
        if not self._failing:
            # Logged once, since some clients repeat refused changes endlessly.
            self.ctx.log(logging.ERROR, f"cannot write {path}: {error}: changes are refused")
        self._failing = True
        full = isinstance(error, sqlite3.Error) and "full" in str(error)
        text = f"{path} cannot be written: {disk.FULL if full else error}"
        for change in changes:
            self._refuse(change, RpcError(errno.ENOSPC if full else errno.EIO, text))

    def _flush_soon(self) -> None:
        if self.pending:
            self.ctx.call_soon(self._flush)
        elif self._written is not None and not self._busy and not self._written.done():
            self._written.set_result(None)

    def _compact(self) -> None:
        if self._log is None or self._thread is None or not self._log.overgrown:
            return
        log, spaces = self._log, [_snapshot(space) for space in self.spaces.values()]

        def done(_result: Any, error: BaseException | None) -> None:
            self._busy = False
            if error is not None:
                self.ctx.log(logging.WARNING, f"cannot compact {log.path}: {error}")
            self._flush_soon()

        self._busy = True
        self._thread.submit(lambda: log.compact(spaces), done)

    def _refuse(self, change: Change, exc: RpcError) -> None:
        for msg in change.messages:
            self.ctx.respond_error(msg, exc.errnum, exc.text)

    def _publish(self, versions: list[Version]) -> None:
        for version in versions:
            space = version.space
            space.root, space.seq = version.root, version.seq
            if space.name == PRIMARY:
                self.primary_roots.add(self.primary_root)
            ref = space.root.reference(self.refs)
            self.history.append(space.root)
            result = {"rootref": ref, "rootseq": space.seq}
            keys: dict[str, int] = {}
            for change in version.changes:
                (self.fence_ops if change.names else self.commit_ops).add(len(change.ops))
                if change.sync:
                    self.ctx.spawn(self._respond_synced(space, change, result), change.messages)
                else:
                    for msg in change.messages:
                        self.ctx.respond(msg, result)
                keys.update((".".join(split_key(op.key)), op.flags) for op in change.ops)
            event = {
                "namespace": space.name,
                "rootseq": space.seq,
                "rootref": ref,
                "names": [name for change in version.changes for name in change.names],
                "keys": keys,
                "owner": space.owner,
            }
            self.ctx.publish(f"kvs.namespace-{space.name}-setroot", event, private=True)
            if space.name == PRIMARY:
                data = touched(op for change in version.changes for op in change.ops)
                if data:
                    self.ctx.publish("kvs.job-data", {"keys": data}, private=True)
            self._wake(space, result)

    async def _respond_synced(self, space: Namespace, change: Change, result: dict[str, Any]) -> None:
        try:
            await self.sync(space)
        except KvsError as exc:
            self._refuse(change, failure(exc))
            return
        for msg in change.messages:
            self.ctx.respond(msg, result)

    @property
    def primary_root(self) -> Dir:
        """The root of the primary namespace, which is always loaded."""
        root = self.spaces[PRIMARY].root
        assert isinstance(root, Dir)
        return root

    async def sync(self, space: Namespace) -> None:
        """Store the primary namespace's tree in the content store, with a checkpoint. Raises KvsError."""
        if space.name == PRIMARY:
            await self.fetcher.checkpoint(self.primary_root, space.seq)

    def clear_counts(self) -> None:
        self.commit_ops, self.fence_ops = Spread(), Spread()

    def _wake(self, space: Namespace, result: dict[str, Any]) -> None:
        ready = [msg for seq, msg in space.waiters if seq <= space.seq]
        if ready:
            space.waiters = [entry for entry in space.waiters if entry[0] > space.seq]
            for msg in ready:
                self.ctx.respond(msg, result)

    def _write_space(self, change: Change) -> None:
        """Write the creation or removal of a namespace."""
        new = change.create
        if (new is not None) == (change.space in self.spaces):
            if new is not None:
                self._refuse(change, RpcError(errno.EEXIST))
            else:
                self.ctx.respond(change.messages[0])
            self._flush_soon()
            return

        def publish() -> None:
            topic = f"kvs.namespace-{change.space}"
            if new is not None:
                self.spaces[new.name] = new
                ref = new.root.reference(self.refs)
                self.history.append(new.root)
                body = {"namespace": new.name, "rootseq": new.seq, "rootref": ref, "owner": new.owner}
                self.ctx.publish(topic + "-created", body, private=True)
            else:
                removed = self.spaces.pop(change.space)
                for _seq, msg in removed.waiters:
                    self.ctx.respond_error(msg, errno.ENOTSUP)
                self.ctx.publish(topic + "-removed", {"namespace": removed.name}, private=True)
            self.ctx.respond(change.messages[0])

        record = b""
        if self._log is not None:
            record = create_record(_snapshot(new)) if new is not None else remove_record(change.space)
        self._write([record], publish, [change])

    async def close(self) -> None:
        """Write queued changes and refuse further ones.

        With a log, also store a checkpoint, for programs that read the content store of a stopped instance. The state
        is left to the next load in this broker, which reads the namespaces from the log if there is one.
        """
        await self._finish()
        kept = self.ctx.kept
        if kept is not None:
            kept[self.ctx.name] = Estate(self.refs, self.spaces, self.history)
        if self._log is not None:
            try:
                await self.sync(self.spaces[PRIMARY])
            except KvsError as exc:
                self.ctx.log(logging.WARNING, f"no checkpoint was stored: {exc.text}")
        if self._thread is not None:
            await self._thread.close()
        if self._log is not None:
            self._log.close()
        # Done last, because requests may have arrived in the meantime.
        for space in self.spaces.values():
            for _seq, msg in space.waiters:
                self.ctx.respond_error(msg, errno.ENOSYS, f"{self.ctx.name} was unloaded")
            space.waiters.clear()

    async def _finish(self) -> None:
        """Write the queued changes. Later changes are refused; otherwise a reload under load might never end."""
        loop = self.ctx.loop
        # The messages of this turn may include the last changes of modules that were unloaded just before.
        delivered: asyncio.Future[None] = loop.create_future()
        self.ctx.at_flush(lambda: delivered.set_result(None))
        await delivered
        self._closing = True
        if self._busy or self.pending:
            self._written = loop.create_future()
            await self._written


def _snapshot(space: Namespace) -> Space:
    return Space(space.name, space.owner, space.flags, space.seq, space.root)


class Spread:
    """Count, least, most, mean and standard deviation of a quantity, without storing the samples.

    Uses Welford's running mean and sum of squared differences, which stay accurate where a sum of squares does not.
    """

    def __init__(self) -> None:
        self.count = 0
        self.least: float = 0
        self.most: float = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        self.least = min(self.least, value) if self.count else value
        self.most = max(self.most, value) if self.count else value
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self._squares += before * (value - self.mean)

    def stats(self) -> dict[str, float]:
        """The values for `module stats`.

        `stddev` is the sample standard deviation, 0 for fewer than two values.
        """
        deviation = math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0
        return {
            "count": self.count,
            "min": self.least,
            "mean": self.mean,
            "stddev": deviation,
            "max": self.most,
        }
