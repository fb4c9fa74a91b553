"""A queue of keys to process: each key is queued at most once, and retried after a failure.

A key is never processed twice at the same time. The queue's state is data and the clock is an argument, so that tests
run without waiting; `get` is the only coroutine.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

FIRST_DELAY = 0.2
LARGEST_DELAY = 60.0


class WorkQueue(Generic[Item]):
    """A queue of keys. `clock` returns seconds; all times are on its scale."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: dict[Item, None] = {}
        self._working: set[Item] = set()
        self._again: set[Item] = set()
        self._later: list[tuple[float, int, Item]] = []
        self._due: dict[Item, float] = {}
        self._failures: dict[Item, int] = {}
        self._count = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: Item) -> None:
        """Queue `item`; if it is being processed, it is queued again after that."""
        if item in self._working:
            self._again.add(item)
        elif item not in self._ready:
            self._ready[item] = None
            self._changed.set()

    def add_at(self, item: Item, when: float) -> None:
        """Queue `item` at `when`, unless it is due earlier."""
        if self._due.get(item, float("inf")) <= when:
            return
        self._due[item] = when
        self._count += 1
        heapq.heappush(self._later, (when, self._count, item))
        self._changed.set()

    def add_failed(self, item: Item) -> float:
        """Queue `item` again after a delay that doubles with each consecutive failure; returns the delay."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        delay = min(FIRST_DELAY * 2.0**failures, LARGEST_DELAY)
        self.add_at(item, self._clock() + delay)
        return delay

    def succeeded(self, item: Item) -> None:
        """Reset the delay of `item` after failures."""
        self._failures.pop(item, None)

    def done(self, item: Item) -> None:
        """Report that the processing of `item`, which `get` returned, has ended."""
        self._working.discard(item)
        if item in self._again:
            self._again.discard(item)
            self.add(item)

    def take(self) -> Item | None:
        """The next due item, which counts as being processed until `done`; None if none is due."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            when, _, item = heapq.heappop(self._later)
            if self._due.get(item) == when:
                del self._due[item]
                self.add(item)
        if not self._ready:
            return None
        item = next(iter(self._ready))
        del self._ready[item]
        self._working.add(item)
        return item

    def next_due(self) -> float | None:
        """The time of the next delayed item."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    async def get(self) -> Item:
        """Wait for an item; it counts as being processed until `done`."""
        while True:
            item = self.take()
            if item is not None:
                if self._ready:
                    self._changed.set()
                return item
            self._changed.clear()
            due = self.next_due()
            try:
                await asyncio.wait_for(self._changed.wait(), None if due is None else max(due - self._clock(), 0.0))
            except asyncio.TimeoutError:
                pass
