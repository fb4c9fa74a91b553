"""Where runs are carried out: a target makes places, and a place runs cells of one shape, one after the other.

`local`, `instance` and `kubernetes` make them. A place that is open holds nodes of its target; `Pool` keeps it for
later runs of its shape until another shape needs the nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from headrace.experiments.values import Cell

from .jobs import Ended

# Cells of one shape can share a place.
Shape = tuple[object, ...]


class TargetError(Exception):
    """A target cannot be used, or was lost; the message names it. Runs of other targets continue."""


class PlaceError(Exception):
    """Cells of a shape cannot run on their target; the message says why. Cells of other shapes can."""


class Place(Protocol):
    """An instance of the size of its cells."""

    def run(self, cell: Cell, record: Path, work: Path) -> Ended:
        """Run a cell's program once, with `work` as its folder, and write what it left to `record`.

        Raises Lost if the machine failed.
        """

    def close(self) -> None:
        """End the instance. Raises nothing."""


class Opening(Struct, frozen=True, kw_only=True):
    """A place to open: for cells of one shape. `number` is unique in the experiment's session."""

    cells: tuple[Cell, ...]
    size: int
    number: int


class Target(Protocol):
    """`nodes` is how many nodes open places may have together, `jobs` how many run at a time by default.

    If `is_one_for_each_shape`, cells of one shape wait for their place rather than open another. `facts` are what the
    session keeps about the target, as JSON; they grow as places are opened.
    """

    nodes: int
    jobs: int
    is_one_for_each_shape: bool
    facts: dict[str, Any]

    def open(self, opening: Opening) -> Place:
        """Open a place; this may take minutes. Raises PlaceError, TargetError, Lost."""

    def stop(self) -> None:
        """End all places now, also those that are being opened. Called in another thread."""

    def close(self) -> None:
        """Release what the target itself holds, after its places were closed."""


class Lease:
    """A place of the pool that one run uses; it is opened by the first."""

    def __init__(self, shape: Shape, size: int) -> None:
        self.shape = shape
        self.size = size
        self.place: Place | None = None
        self.busy = True


class Pool:
    """The open places of a target. `condition` guards it and is notified when a place becomes free."""

    def __init__(self, nodes: int, is_one_for_each_shape: bool, condition: threading.Condition) -> None:
        self._nodes = nodes
        self._is_one_for_each_shape = is_one_for_each_shape
        self._condition = condition
        # In the order of their last use.
        self._leases: list[Lease] = []

    def reserve(self, shape: Shape, size: int, is_stopped: Callable[[], bool]) -> tuple[Lease, list[Place]] | None:
        """A place for a run, and idle places of other shapes that the caller must close before it opens this one.

        Waits until there is room; None if `is_stopped` became true. The condition is held by the caller.
        """
        while not is_stopped():
            for lease in self._leases:
                if lease.shape == shape and not lease.busy:
                    lease.busy = True
                    return lease, []
            must_wait = self._is_one_for_each_shape and any(lease.shape == shape for lease in self._leases)
            evicted = None if must_wait else self._make_room(size)
            if evicted is not None:
                lease = Lease(shape, size)
                self._leases.append(lease)
                return lease, evicted
            self._condition.wait()
        return None

    def _make_room(self, size: int) -> list[Place] | None:
        """Remove idle places until `size` nodes are free; None if that is not enough."""
        free = self._nodes - sum(lease.size for lease in self._leases)
        chosen: list[Lease] = []
        for lease in self._leases:
            if free >= size:
                break
            if not lease.busy:
                chosen.append(lease)
                free += lease.size
        if free < size:
            return None
        for lease in chosen:
            self._leases.remove(lease)
        return [lease.place for lease in chosen if lease.place]

    def free(self, lease: Lease) -> None:
        """The run has ended, and the place can take the next one."""
        lease.busy = False
        self._leases.remove(lease)
        self._leases.append(lease)
        self._condition.notify_all()

    def remove(self, lease: Lease) -> None:
        """The place was not opened, or was lost."""
        self._leases.remove(lease)
        self._condition.notify_all()

    def take_all(self) -> list[Place]:
        """Remove all places, for the end."""
        places = [lease.place for lease in self._leases if lease.place]
        self._leases.clear()
        return places

    def take_idle(self, needed: frozenset[Shape]) -> list[Place]:
        """Remove idle places of shapes that no run needs any more."""
        chosen = [lease for lease in self._leases if not lease.busy and lease.shape not in needed]
        for lease in chosen:
            self._leases.remove(lease)
        return [lease.place for lease in chosen if lease.place]
