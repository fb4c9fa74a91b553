"""Waiting in tests: for something to hold, bounded, or to see that something goes on to hold.

A pause of a fixed length is too short on a busy machine and too long on all others, so tests have none (test_house.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds: longer than anything takes, also beside a process that keeps each core busy. A test that passes waits no
# longer than it must.
PATIENCE = 180.0
_PAUSE = 0.005


def until(met: Callable[[], object], patience: float = PATIENCE, pause: float = _PAUSE) -> None:
    """Wait until something holds. Raises AssertionError after `patience` seconds; `pause` is between two looks."""
    deadline = time.monotonic() + patience
    while not met():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(pause)


def stays(holds: Callable[[], object], seconds: float = 0.1) -> None:
    """See that something holds for a while, where nothing tells that its opposite will not come about."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds(), "it did not stay so"
        time.sleep(_PAUSE)
    assert holds(), "it did not stay so"


async def until_in_loop(met: Callable[[], object], patience: float = PATIENCE) -> None:
    """`until` within a loop, which goes on meanwhile."""
    deadline = time.monotonic() + patience
    while not met():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(_PAUSE / 10)


async def stays_in_loop(holds: Callable[[], object], seconds: float = 0.1) -> None:
    """`stays` within a loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds(), "it did not stay so"
        await asyncio.sleep(_PAUSE)
    assert holds(), "it did not stay so"
