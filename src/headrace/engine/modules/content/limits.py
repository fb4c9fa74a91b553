"""The arguments of the content module: limits on blobs, on the cache, and on a batch of writes."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from headrace.engine.broker.module.context import RpcError

# The default limits, in bytes, on one blob, and on all blobs of an instance without a statedir.
BLOB_SIZE = 1 << 30
MEMORY = 1 << 30


class Limits(NamedTuple):
    """Limits: sizes in bytes, `purge_old_entry` in seconds, `flush_batch` in blobs (0: no limit)."""

    blob_size: int = BLOB_SIZE
    memory: int = MEMORY
    purge_target_size: int = 16 << 20
    purge_old_entry: int = 0
    flush_batch: int = 0

    def as_event(self) -> dict[str, Any]:
        """The event for other services: the blob size limit, null if no argument sets it."""
        return {"blob-size-limit": None if self.blob_size == BLOB_SIZE else self.blob_size}


_ARGUMENTS = {
    "blob-size-limit": "blob_size",
    "memory-limit": "memory",
    "purge-target-size": "purge_target_size",
    "purge-old-entry": "purge_old_entry",
    "flush-batch-limit": "flush_batch",
}


def parse(args: list[str]) -> Limits:
    """The limits from `args` (each `name=N`). Raises RpcError(EINVAL) that names the argument."""
    limits = Limits()
    for arg in args:
        name, _, value = arg.partition("=")
        if name not in _ARGUMENTS:
            raise RpcError(errno.EINVAL, f"content: unknown argument {arg!r}, known are {', '.join(_ARGUMENTS)}")
        if not (value.isascii() and value.isdigit()):
            raise RpcError(errno.EINVAL, f"content: {arg!r}: {name} needs a whole number")
        limits = limits._replace(**{_ARGUMENTS[name]: int(value)})
    return limits
