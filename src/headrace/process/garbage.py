"""How often a process looks for reference cycles, and when it gives memory back to the kernel."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Look for cycles rarely: most objects of a broker live in queues for milliseconds or in tables for hours, and what
    imports make stays. With Python's own threshold a tenth of the time of a broker's imports is spent on looking.
    """
    gc.set_threshold(50_000, 20, 50)


def give_memory_back() -> None:
    """Return freed memory to the kernel. glibc by itself keeps as much of it as the largest block that was freed was
    large, twice, and a page between others for good. Without an effect with another C library.
    """
    # Imported here: it is for processes that have freed much, and costs 1 MiB.
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
