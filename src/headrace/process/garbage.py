"""How often a process looks for reference cycles."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Look for cycles rarely: most objects of a broker live in queues for milliseconds or in tables for hours, and what
    imports make stays. With Python's own threshold a tenth of the time of a broker's imports is spent on looking.
    """
    gc.set_threshold(50_000, 20, 50)
