"""The KVS's log of versions, which survives `kill -9`.

The log is an SQLite database with one synced transaction per batch of commits. It stores operations instead of blobs,
so it is only as large as the clients' values. When it becomes larger than the trees, it is replaced by the trees. Every
method may wait for the disk, so the event loop calls them through `background.Background`.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from typing import Any, NamedTuple

import msgspec

from headrace.engine.broker.kept import make_private
from headrace.engine.modules.kvs.tree import Dir, DirRef, KvsError, Missing, Node, pack, unpack
from headrace.engine.modules.kvs.txn import Op, apply, pack_ops, unpack_ops

# The log is replaced by the trees when it is larger than this number of bytes and more than twice as large as the
# trees.
_COMPACT_BYTES = 4 << 20


class LogError(ValueError):
    """A damaged log: a record differs from the record that was written."""


class Space(NamedTuple):
    """A namespace in the log; `owner` is a user id, `seq` the version."""

    name: str
    owner: int
    flags: int
    seq: int
    root: Dir | DirRef


class _Version(msgspec.Struct, frozen=True, array_like=True, tag="version"):
    """A version of a namespace: packed operations, and packed directories on their paths, by reference."""

    name: str
    seq: int
    ops: list[Any]
    loaded: dict[str, list[Any]]


class _Created(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    """A namespace with its packed root."""

    name: str
    owner: int
    flags: int
    seq: int
    root: list[Any]


class _Removed(msgspec.Struct, frozen=True, array_like=True, tag="remove"):
    name: str


_Record = _Version | _Created | _Removed
_encode = msgspec.msgpack.Encoder().encode
# Records are arrays that begin with the tag, in logs of all versions of Headrace.
_decode = msgspec.msgpack.Decoder(_Record).decode


def version_record(name: str, seq: int, ops: list[Op], opened: list[DirRef]) -> bytes:
    """The record of a version. `opened` (from `apply`) makes the replay independent of the content store."""
    loaded = {node.ref: pack(node) for node in opened}
    return _encode(_Version(name, seq, pack_ops(ops), loaded))


def create_record(space: Space) -> bytes:
    return _encode(_Created(space.name, space.owner, space.flags, space.seq, pack(space.root)))


def remove_record(name: str) -> bytes:
    return _encode(_Removed(name))


class Log:
    """The log at `path`. Raises sqlite3.Error from every method that touches the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        make_private(path)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, record BLOB NOT NULL, crc INTEGER)")
        if "crc" not in (column for _, column, *_ in self._db.execute("PRAGMA table_info(log)")):
            # Earlier versions wrote logs without checksums. SQLite itself does not verify values.
            self._db.execute("ALTER TABLE log ADD COLUMN crc INTEGER")
        self._bytes = self._base = int(self._db.execute("SELECT total(length(record)) FROM log").fetchone()[0])

    def replay(self) -> dict[str, Space]:
        """The namespaces after the last record; none for a new log. Raises LogError or sqlite3.Error."""
        spaces: dict[str, Space] = {}
        for id, raw, crc in self._db.execute("SELECT id, record, crc FROM log ORDER BY id"):
            try:
                if crc is not None and zlib.crc32(raw) != crc:
                    raise ValueError("other bytes than were written")
                _replay(spaces, raw)
            except Exception as exc:
                # Damaged bytes can raise any exception.
                raise LogError(f"record {id} of the log is not one: {exc!r}") from None
        return spaces

    def append(self, records: list[bytes]) -> None:
        """Write and sync all `records`. If this raises, none of them was written."""
        self._db.execute("BEGIN")
        try:
            self._insert(records)
            self._db.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        self._bytes += sum(map(len, records))

    @property
    def overgrown(self) -> bool:
        return self._bytes > max(_COMPACT_BYTES, 2 * self._base)

    def compact(self, spaces: list[Space]) -> None:
        """Replace the log by `spaces`, the namespaces after its last record."""
        records = [create_record(space) for space in spaces]
        self._db.execute("BEGIN")
        try:
            self._db.execute("DELETE FROM log")
            self._insert(records)
            self._db.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        self._bytes = self._base = sum(map(len, records))

    def _insert(self, records: list[bytes]) -> None:
        rows = ((record, zlib.crc32(record)) for record in records)
        self._db.executemany("INSERT INTO log (record, crc) VALUES (?, ?)", rows)

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()


def _replay(spaces: dict[str, Space], raw: bytes) -> None:
    record: _Record = _decode(raw)
    match record:
        case _Created(name, owner, flags, seq, root):
            spaces[name] = Space(name, owner, flags, seq, _root(root))
        case _Removed(name):
            spaces.pop(name, None)
        case _Version(name, seq, ops, loaded):
            old = spaces[name]
            spaces[name] = old._replace(seq=seq, root=_replay_ops(old.root, unpack_ops(ops), name, loaded))


def _replay_ops(root: Dir | DirRef, ops: list[Op], name: str, loaded: dict[str, Any]) -> Dir:
    while True:
        try:
            return apply(root, ops, name, [])
        except Missing as need:
            if not isinstance(need.node, DirRef):
                raise
            need.node.loaded = _directory(loaded[need.node.ref])


def _root(packed: list[Any]) -> Dir | DirRef:
    """The root of a namespace: a directory, or a reference if its blob was not in the content store."""
    node: Node = unpack(packed)
    if not isinstance(node, (Dir, DirRef)):
        raise KvsError(0, "the root of a namespace in the log is not a directory")
    return node


def _directory(packed: list[Any]) -> Dir:
    node = _root(packed)
    if not isinstance(node, Dir):
        raise KvsError(0, "the log has a reference in place of a directory")
    return node
