"""The frequency of searches for reference cycles, and the return of freed memory to the kernel."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

# The least bytes of a table worth shrinking, and the bytes per entry above which it is mostly empty: a table in use has
# about 100.
_LARGE = 256 << 10
_SPARSE = 512
# Seconds until freed memory is returned to the kernel.
_TRIM_AFTER = 0.5


def collect_rarely() -> None:
    """Search for cycles rarely.

    Most objects of a broker live in queues for milliseconds or in tables for hours, and objects created by imports are
    permanent. With Python's own threshold, the search takes a tenth of the time of a broker's imports.
    """
    gc.set_threshold(50_000, 20, 50)


def shrink(table: dict[Any, Any]) -> bool:
    """Free the memory of entries that were removed from a table. True if that was much.

    CPython keeps this memory until as many entries were added again. The order of the other entries does not change.
    Must not be called during an iteration over the table.
    """
    size = sys.getsizeof(table)
    if size < _LARGE or size < _SPARSE * len(table):
        return False
    entries = dict(table)
    table.clear()
    table.update(entries)
    return True


def give_memory_back() -> None:
    """Return freed memory to the kernel, in a process that has freed much.

    It takes a few milliseconds, and 0.1 ms for each thousand remaining objects.

    CPython keeps thousands of freed tuples, lists and dictionaries for reuse until it searches for cycles. Those of a
    large table are scattered over its memory, and keep all of it allocated. glibc by itself keeps up to twice the size
    of the largest freed block, and never returns single pages between others. With another C library, only the search
    is done.
    """
    gc.collect()
    _malloc_trim()(0)


class LaterTrim:
    """Returns memory to the kernel after a delay, once for all requests in that time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled = False

    def request(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(_TRIM_AFTER, self._trim)

    def _trim(self) -> None:
        self._scheduled = False
        give_memory_back()


@functools.lru_cache(None)
def _malloc_trim() -> Callable[[int], object]:
    # Imported here: only processes that have freed much need it, and it costs 1 MiB.
    import ctypes

    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _pad: None)
