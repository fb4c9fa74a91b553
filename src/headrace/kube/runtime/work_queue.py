"""Keys that want work: each at most once in the queue, never worked on twice at a time, again later after a failure.

The queue's state is data and time is an argument, so that tests run it without a clock; `get` is the only coroutine.
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
    """`clock` gives seconds; delays are on its scale."""

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
        """Have `item` worked on as soon as may be; while it is being worked on, once more afterwards."""
        if item in self._working:
            self._again.add(item)
        elif item not in self._ready:
            self._ready[item] = None
            self._changed.set()

    def add_at(self, item: Item, when: float) -> None:
        """Have `item` worked on at `when`, unless an earlier time is set already."""
        if self._due.get(item, float("inf")) <= when:
            return
        self._due[item] = when
        self._count += 1
        heapq.heappush(self._later, (when, self._count, item))
        self._changed.set()

    def add_failed(self, item: Item) -> float:
        """Have `item` worked on again after a delay that doubles with each failure in a row; returns the delay."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        delay = min(FIRST_DELAY * 2.0**failures, LARGEST_DELAY)
        self.add_at(item, self._clock() + delay)
        return delay

    def succeeded(self, item: Item) -> None:
        """The failures of `item` are over."""
        self._failures.pop(item, None)

    def done(self, item: Item) -> None:
        """The work on `item` that `get` gave out is over."""
        self._working.discard(item)
        if item in self._again:
            self._again.discard(item)
            self.add(item)

    def take(self) -> Item | None:
        """The next item whose time has come, now being worked on; None where there is none."""
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
        """When the next delayed item is due."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    async def get(self) -> Item:
        """Wait for an item; it is being worked on until `done`."""
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
