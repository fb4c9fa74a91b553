"""The content service (RFC 10) on rank 0: blobs by hash. Other ranks pass requests up the tree.

With a `statedir`, or if the module has its own process, blobs are stored in `content.sqlite`, and a store request is
answered after the sync (one per batch). Otherwise blobs are stored in memory. Store requests beyond a limit are then
refused, since the RFC forbids dropping a stored blob. The KVS can generate the blobs of nodes that it has in memory, so
it is asked before a load fails with ENOENT.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headrace.engine.broker.kept import data_path, make_private
from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.state.disk import FULL, emptied, unusable
from headrace.engine.modules.background import Background
from headrace.engine.modules.content.cache import BlobCache
from headrace.engine.modules.content.limits import MEMORY, Limits, parse
from headrace.formats.spec import treeobj
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.kvs import CONTENT, CONTENT_BACKING

NAME = "content"

_LOST = "Data that is stored only under its hash (for example by flux restore) is then lost; jobs are not lost."
# The number of newest checkpoints that are kept, as in Flux.
_CHECKPOINTS = 5


class MemoryStore:
    """Blobs in memory, up to `limit` bytes."""

    def __init__(self) -> None:
        self.limit = MEMORY
        self.size = 0
        self.blobs: dict[bytes, bytes] = {}
        self.checkpoints: list[dict[str, Any]] = []

    def store(self, batch: list[tuple[bytes, bytes]]) -> None:
        """Store blobs by digest. Raises RpcError(ENOSPC) when the limit is reached."""
        for digest, blob in batch:
            if digest in self.blobs:
                continue
            if self.size + len(blob) > self.limit:
                raise RpcError(
                    errno.ENOSPC, f"content: {self.limit >> 20} MiB are in memory; start with a statedir to store more"
                )
            self.blobs[digest] = blob
            self.size += len(blob)

    def load(self, digest: bytes) -> bytes | None:
        return self.blobs.get(digest)

    def count(self) -> int:
        return len(self.blobs)

    def put_checkpoint(self, value: dict[str, Any]) -> None:
        self.checkpoints = [value, *self.checkpoints][:_CHECKPOINTS]

    def get_checkpoints(self) -> list[dict[str, Any]]:
        return self.checkpoints

    def save(self, path: str) -> None:
        """Copy all blobs and checkpoints into a SqliteStore. Raises sqlite3.Error."""
        disk = SqliteStore(path)
        disk.store(list(self.blobs.items()))
        for value in reversed(self.checkpoints):
            disk.put_checkpoint(value)
        disk.close()


class SqliteStore:
    """Blobs in a database file, for use from one thread at a time.

    Raises sqlite3.Error, also for a damaged blob.
    """

    def __init__(self, path: str, hash_name: str = "sha1") -> None:
        self._hash_name = hash_name
        make_private(path)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS objects (hash BLOB PRIMARY KEY, object BLOB NOT NULL) WITHOUT ROWID"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS checkpoints (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def store(self, batch: list[tuple[bytes, bytes]]) -> None:
        # A blob that is already stored is rewritten only if it is damaged.
        known = "ON CONFLICT (hash) DO UPDATE SET object = excluded.object WHERE object != excluded.object"
        self._write(f"INSERT INTO objects VALUES (?, ?) {known}", list(batch))

    def load(self, digest: bytes) -> bytes | None:
        row = self._db.execute("SELECT CAST(object AS BLOB) FROM objects WHERE hash = ?", (digest,)).fetchone()
        if row is None:
            return None
        blob = bytes(row[0])
        # SQLite does not verify values, so bytes that were changed on the disk are detected here.
        if treeobj.digest(blob, self._hash_name) != digest:
            name = f"{self._hash_name}-{digest.hex()}"
            raise sqlite3.DatabaseError(f"blob {name} is damaged: its bytes are not those that have this hash")
        return blob

    def count(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM objects").fetchone()[0])

    def put_checkpoint(self, value: dict[str, Any]) -> None:
        self._write("INSERT INTO checkpoints (value) VALUES (?)", [(msgspec.json.encode(value).decode(),)])
        self._db.execute(
            "DELETE FROM checkpoints WHERE id NOT IN (SELECT id FROM checkpoints ORDER BY id DESC LIMIT ?)",
            (_CHECKPOINTS,),
        )

    def get_checkpoints(self) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT value FROM checkpoints ORDER BY id DESC").fetchall()
        return [msgspec.json.decode(row[0]) for row in rows]

    def close(self) -> None:
        self._db.close()


class Content:
    """The service's state on rank 0."""

    def __init__(
        self, ctx: ModuleContext, store: MemoryStore | SqliteStore, hash_name: str, path: str, limits: Limits
    ) -> None:
        self.ctx = ctx
        self.limits = limits
        self.disk = store
        self.path = path
        self.hash_name = hash_name
        self.digest_size = treeobj.digest_size(hash_name)
        self.durable = isinstance(store, SqliteStore)
        self._thread = Background(ctx.loop.call_soon_threadsafe, "content") if self.durable else None
        self._cache = BlobCache(limits.purge_target_size if self.durable else 0, limits.purge_old_entry)
        self._purging = False
        # Blobs that are not written yet, and the store requests that wait for that, with their digests.
        self._dirty: dict[bytes, bytes] = {}
        self._waiting: list[tuple[Message, bytes]] = []
        # The number of blobs that are being written.
        self._writing = 0
        self._flushers: list[Message] = []
        # Requests that wait for the KVS.
        self._asked: set[Message] = set()
        self._closing = False
        # The name of the module that is loaded as backing store; "" if none.
        self.backing = ""
        self._logged_errors: set[str] = set()

    def _run(self, fn: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `fn` in the thread, then call `done` on the loop. A store in memory does both at once."""
        if self._thread is not None:
            self._thread.submit(fn, done)
            return
        try:
            result = fn()
        except RpcError as exc:
            done(None, exc)
            return
        done(result, None)

    def store(self, msg: Message) -> None:
        blob = msg.payload or b""
        if len(blob) > self.limits.blob_size:
            raise RpcError(errno.EFBIG, f"a blob has at most {self.limits.blob_size} bytes, this has {len(blob)}")
        if self._closing:
            raise self._unloaded()
        digest = treeobj.digest(blob, self.hash_name)
        self._dirty[digest] = blob
        self._waiting.append((msg, digest))
        self.ctx.at_flush(self._write)

    def _write(self) -> None:
        if self._writing or not self._waiting:
            return
        waiting, digests = self._next_batch()
        batch = [(digest, self._dirty[digest]) for digest in digests]
        self._writing = len(batch)

        def done(_result: Any, error: BaseException | None) -> None:
            self._writing = 0
            for digest, blob in batch:
                self._dirty.pop(digest, None)
                if error is None:
                    self._remember(digest, blob)
            for msg, digest in self._waiting:
                # The same blob was stored again during this write, so it must be written again, even after an error.
                self._dirty.setdefault(digest, msg.payload or b"")
            for msg, digest in waiting:
                if error is None:
                    self.ctx.respond(msg, payload=digest)
                else:
                    self._failed(msg, error)
            flushers, self._flushers = self._flushers, []
            for msg in flushers:
                self.flush(msg)
            self._write()

        self._run(lambda: self.disk.store(batch), done)

    def _next_batch(self) -> tuple[list[tuple[Message, bytes]], list[bytes]]:
        """Remove the next batch from the queue: its requests, and the distinct digests of their blobs."""
        digests: dict[bytes, None] = {}
        for index, (_msg, digest) in enumerate(self._waiting):
            if digest not in digests and len(digests) == (self.limits.flush_batch or -1):
                taken, self._waiting = self._waiting[:index], self._waiting[index:]
                return taken, list(digests)
            digests[digest] = None
        taken, self._waiting = self._waiting, []
        return taken, list(digests)

    def _remember(self, digest: bytes, blob: bytes) -> None:
        """Cache a blob that is in the backing store, unless the store itself is in memory."""
        if self.durable:
            self._cache.put(digest, blob, self.ctx.monotonic())
            if not self._purging:
                self._purge()

    def _purge(self) -> None:
        wait = self._cache.purge(self.ctx.monotonic())
        self._purging = wait is not None
        if wait is not None:
            self.ctx.call_later(wait, self._purge)

    def dropcache(self, _msg: Message) -> Any:
        self._cache.clear()
        return EMPTY

    def _failed(self, msg: Message, error: BaseException) -> None:
        if isinstance(error, RpcError):
            self.ctx.respond_error(msg, error.errnum, error.text)
        else:
            full = "full" in str(error)
            if str(error) not in self._logged_errors:
                # RFC 10 allows only EIO as the error of a load, so the reason is logged, once per error.
                self._logged_errors.add(str(error))
                self.ctx.log(logging.ERROR, f"{self.path}: {error}")
            text = f"{self.path}: {FULL if full else error}"
            self.ctx.respond_error(msg, errno.ENOSPC if full else errno.EIO, text)

    def _digest(self, msg: Message) -> bytes:
        digest = msg.payload or b""
        if len(digest) != self.digest_size:
            raise RpcError(
                errno.EPROTO, f"a {self.hash_name} digest has {self.digest_size} bytes, this has {len(digest)}"
            )
        return digest

    def backing_load(self, msg: Message) -> None:
        """`content-backing.load`: a blob from the store itself.

        Unlike `content.load`, this does not find unwritten blobs or blobs of the KVS.
        """
        digest = self._digest(msg)

        def done(blob: Any, error: BaseException | None) -> None:
            if error is not None:
                self._failed(msg, error)
            elif blob is None:
                self.ctx.respond_error(msg, errno.ENOENT)
            else:
                self.ctx.respond(msg, payload=blob or None)

        self._run(lambda: self.disk.load(digest), done)

    def _find(self, msg: Message, found: Callable[[bytes], None]) -> None:
        digest = self._digest(msg)
        blob = self._dirty.get(digest)
        if blob is None:
            blob = self._cache.get(digest, self.ctx.monotonic())
        if blob is not None:
            found(blob)
            return

        def from_kvs(reply: Message) -> None:
            if msg not in self._asked:
                return
            self._asked.remove(msg)
            if reply.errnum:
                self.ctx.respond_error(msg, errno.ENOENT)
            else:
                found(reply.payload or b"")

        def done(blob: Any, error: BaseException | None) -> None:
            if error is not None:
                self._failed(msg, error)
            elif blob is not None:
                self._remember(digest, blob)
                found(blob)
            else:
                self._asked.add(msg)
                self.ctx.call("kvs.blob", {"ref": f"{self.hash_name}-{digest.hex()}"}, from_kvs)

        self._run(lambda: self.disk.load(digest), done)

    def load(self, msg: Message) -> None:
        # For an empty blob, the response has no payload (RFC 10).
        self._find(msg, lambda blob: self.ctx.respond(msg, payload=blob or None))

    def validate(self, msg: Message) -> None:
        self._find(msg, lambda _blob: self.ctx.respond(msg))

    def flush(self, msg: Message) -> None:
        """Respond when all blobs are written.

        Raises RpcError(ENOSYS) without a statedir or a backing store.
        """
        if not self.durable and not self.backing:
            raise RpcError(errno.ENOSYS)
        if self._closing:
            raise self._unloaded()
        if self._waiting or self._writing:
            self._flushers.append(msg)
        else:
            self.ctx.respond(msg)

    def checkpoint_get(self, msg: Message) -> None:
        """`checkpoint-get {}`: all checkpoints, newest first.

        For the request of older clients, `{"key": "kvs-primary"}`: only the newest checkpoint.
        """
        key = (msg.obj or {}).get("key")

        def done(values: Any, error: BaseException | None) -> None:
            if error is not None:
                self._failed(msg, error)
            elif not values or key not in (None, "kvs-primary"):
                self.ctx.respond_error(msg, errno.ENOENT)
            else:
                self.ctx.respond(msg, {"value": values if key is None else values[0]})

        self._run(self.disk.get_checkpoints, done)

    def checkpoint_put(self, msg: Message) -> None:
        value = msg.obj["value"]

        def done(_result: Any, error: BaseException | None) -> None:
            if error is not None:
                self._failed(msg, error)
            else:
                self.ctx.respond(msg)

        self._run(lambda: self.disk.put_checkpoint(value), done)

    def register_backing(self, msg: Message) -> Any:
        """Register a module as the backing store (RFC 10).

        Raises RpcError(EBUSY) if another module is registered.
        """
        name = msg.obj["name"]
        if not name:
            raise RpcError(errno.EPROTO, "content.register-backing: name must not be empty")
        if self.backing:
            raise RpcError(errno.EBUSY, f"content backing store {self.backing} is already active")
        self.backing = name
        return EMPTY

    def unregister_backing(self, _msg: Message) -> Any:
        if not self.backing:
            raise RpcError(errno.EINVAL, "content backing store is not active")
        self.backing = ""
        return EMPTY

    async def close(self) -> None:
        """Finish the write in progress and refuse all other requests.

        A MemoryStore is kept in the broker, for the next load of the module.
        """
        self.announce(Limits())
        self._closing = True
        self._refuse([msg for msg, _digest in self._waiting] + self._flushers)
        self._waiting, self._flushers = [], []
        if self._thread is not None:
            await self._thread.close()
        self._refuse(self._asked)
        self._asked.clear()
        if isinstance(self.disk, SqliteStore):
            self.disk.close()
        elif self.ctx.kept is not None:
            self.ctx.kept[self.ctx.name] = self.disk

    def _refuse(self, requests: Iterable[Message]) -> None:
        for msg in requests:
            self._failed(msg, self._unloaded())

    def _unloaded(self) -> RpcError:
        return RpcError(errno.ENOSYS, f"{self.ctx.name} was unloaded")

    def announce(self, limits: Limits) -> None:
        """Publish changed `limits` for the KVS, which generates blobs."""
        if self.limits.as_event() != Limits().as_event():
            self.ctx.publish("content.limits", limits.as_event(), private=True)

    def stats(self) -> dict[str, Any]:
        held = len(self._dirty) + len(self._cache)
        size = sum(map(len, self._dirty.values())) + self._cache.size
        if isinstance(self.disk, MemoryStore):
            held, size = held + self.disk.count(), size + self.disk.size
        return {
            "count": held,
            "valid": held,
            "dirty": len(self._dirty),
            "size": size,
            "flush-batch-count": self._writing,
        }


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Provide `content`. The arguments are described in limits.py."""
    kept = ctx.kept
    path = data_path(ctx.attrs, NAME, apart=kept is None)
    limits = parse(args)
    hash_name = ctx.attrs.get("content.hash", "sha1")
    if hash_name not in ("sha1", "sha256"):
        raise RpcError(errno.EINVAL, f"content.hash is {hash_name!r}, it must be sha1 or sha256")
    if ctx.attrs.get("statedir") and ctx.attrs.get("content.backing-module") == "none":
        raise RpcError(errno.EINVAL, "content.backing-module is none, but a statedir keeps blobs in content-sqlite")
    inherited = kept.pop(ctx.name, None) if kept else None
    if lost := emptied(path, _LOST):
        ctx.log(logging.ERROR, lost)
    kept_store = inherited if isinstance(inherited, MemoryStore) else MemoryStore()
    try:
        store = SqliteStore(path, hash_name) if path else kept_store
    except sqlite3.Error as exc:
        raise RpcError(errno.EIO, unusable(path, exc, _LOST)) from None
    if isinstance(store, MemoryStore):
        store.limit = limits.memory
    content = Content(ctx, store, hash_name, path, limits)
    ctx.service(
        NAME,
        {
            "store": content.store,
            "load": content.load,
            "validate": content.validate,
            "flush": content.flush,
            "dropcache": content.dropcache,
            "checkpoint-get": content.checkpoint_get,
            "checkpoint-put": content.checkpoint_put,
            "register-backing": content.register_backing,
            "unregister-backing": content.unregister_backing,
            "limits": lambda _msg: limits.as_event(),
        },
        requests=CONTENT,
    )
    # In Flux, the backing store is a separate module (RFC 10).
    ctx.service(
        "content-backing",
        {
            "store": content.store,
            "load": content.backing_load,
            "checkpoint-get": content.checkpoint_get,
            "checkpoint-put": content.checkpoint_put,
        },
        requests=CONTENT_BACKING,
    )
    content.announce(limits)
    ctx.on_stats(content.stats)
    ctx.on_unload(content.close)
