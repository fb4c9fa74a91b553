"""How often a process looks for reference cycles, and when it gives memory back to the kernel."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

# Bytes from which a table is worth shrinking, and bytes for each entry above which it is mostly empty: it has about 100
# when it is in use.
_LARGE = 256 << 10
_SPARSE = 512
# Seconds after which memory that was freed is given back to the kernel.
_TRIM_AFTER = 0.5


def collect_rarely() -> None:
    """Look for cycles rarely: most objects of a broker live in queues for milliseconds or in tables for hours, and what
    imports make stays. With Python's own threshold a tenth of the time of a broker's imports is spent on looking.
    """
    gc.set_threshold(50_000, 20, 50)


def shrink(table: dict[Any, Any]) -> bool:
    """Free the room of entries that a table has lost, which CPython keeps until as many have come again; True if there
    was much. The order of the other entries stays. Nobody may be iterating over the table.
    """
    size = sys.getsizeof(table)
    if size < _LARGE or size < _SPARSE * len(table):
        return False
    entries = dict(table)
    table.clear()
    table.update(entries)
    return True


def give_memory_back() -> None:
    """Return freed memory to the kernel, for a process that has freed much: a few milliseconds, and .1 ms for each
    thousand objects that are left.

    CPython keeps thousands of freed tuples, lists and dictionaries for their next use, until it looks for cycles: those
    of a large table lie scattered in its memory and hold all of that. glibc by itself keeps as much as the largest
    block that was freed was large, twice, and a page between others for good; with another C library it is left alone.
    """
    gc.collect()
    _malloc_trim()(0)


class LaterTrim:
    """Gives memory back a little later, once for all requests until then."""

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
    # Imported here: it is for processes that have freed much, and costs 1 MiB.
    import ctypes

    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _pad: None)
