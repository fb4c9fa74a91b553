"""Job data that clients commit to the KVS. Pure.

Appends to a job's logs are passed to the job store. Any other value that is committed below a job's directory (RFC 16)
is shown in the KVS instead of the job store's value. The job-info service reads the job store directly, so it must know
the keys of these values. Keys in the job's own namespace, `guest`, are excluded: job-info requests them from the KVS if
they are not in the job store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.engine.modules.kvs.tree import Dir, DirRef, Val, ValRef, value_bytes
from headrace.engine.modules.kvs.txn import Op
from headrace.engine.modules.kvs.walk import split_key
from headrace.formats.spec.kvs_flags import APPEND

# The number of components in the path of a job's directory: "job", and four groups of hex digits.
_DEPTH = 5


def touched(ops: Iterable[Op]) -> dict[str, bool]:
    """The keys of job data that `ops` change. True means that the key has a committed value afterwards."""
    keys = {}
    for op in ops:
        if op.key.lstrip(".").startswith("job."):
            names = split_key(op.key)
            if len(names) == _DEPTH + 1 and names[-1] != "guest":
                keys[".".join(names)] = op.node is not None
    return keys


def committed(root: Dir) -> dict[str, bool]:
    """The keys of job data with committed values in the primary namespace at `root`, each mapped to True.

    Directories that are not in memory are skipped.
    """
    level: list[tuple[str, object]] = [("job", root.entries.get("job"))]
    for _ in range(_DEPTH):
        level = [
            (f"{path}.{name}", entry)
            for path, node in level
            if isinstance(node, Dir)
            for name, entry in node.entries.items()
        ]
    return {path: True for path, _entry in level if not path.endswith(".guest")}


class LogAppend(NamedTuple):
    """An append to a log of a job: index of the operation, path in the job store, text."""

    number: int
    path: str
    text: str

    @property
    def job(self) -> str:
        """The job's path in the job store."""
        return ".".join(self.path.split(".")[: _DEPTH - 1])


def log_appends(root: Dir, ops: Sequence[Op]) -> list[LogAppend]:
    """The appends of a transaction to keys that may be logs in the job store.

    These are the eventlogs of jobs and the keys in the namespaces of jobs. Keys are excluded if they have a committed
    value in the primary namespace at `root`, or a value from an earlier operation of the transaction.
    """
    found = []
    written = set()
    for number, op in enumerate(ops):
        if not op.key.lstrip(".").startswith("job."):
            continue
        names = split_key(op.key)
        if names[_DEPTH:] != ["eventlog"] and (len(names) <= _DEPTH + 1 or names[_DEPTH] != "guest"):
            continue
        path = ".".join(names[1:])
        if op.flags & APPEND and path not in written and not _has_value(root, names):
            assert isinstance(op.node, (Val, ValRef))
            # Bytes that are not UTF-8 become `\xNN`. JSON has no such escape, so the job store rejects the text.
            found.append(LogAppend(number, path, value_bytes(op.node).decode("utf-8", "backslashreplace")))
        else:
            written.add(path)
    return found


def _has_value(root: Dir, names: Iterable[str]) -> bool:
    node: object = root
    for name in names:
        if isinstance(node, DirRef):
            node = node.loaded
        node = node.entries.get(name) if isinstance(node, Dir) else None
    return node is not None
