"""Nodes in the order of their use, for policies that compare use (`Policy.by_use`).

The order is a few dozen sets of nodes, one for each class of use that occurs. Only the nodes that changed since the
last match are classified again.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sched.graph.bitsets import numbers
from headrace.sched.graph.free import FreeState
from headrace.sched.graph.matcher import measured_by
from headrace.sched.graph.reservations import Window
from headrace.sched.graph.shapes import Shapes


class UseOrder:
    """The order of nodes by use in a state whose log of changes is in `shapes`."""

    def __init__(self, state: FreeState, shapes: Shapes) -> None:
        self._state = state
        self._shapes = shapes
        self._layout = layout = state.layout
        # By number of a node: the pool whose use is measured; empty if the use of cores is measured.
        self._pools = layout.pools.get(measured_by(layout.graph), []) if measured_by(layout.graph) != "core" else []
        # By number of a node: its cores, and its class of use.
        self._cores = [sum([layout.masks[h].get("core", 0).bit_count() for h in hs]) for hs in layout.holders]
        self._class_of = [layout.policy.use_class(0, cores) for cores in self._cores]
        # By class: the nodes, by rank. Every node is in one class.
        self._nodes: dict[int, int] = {}
        for n, use_class in enumerate(self._class_of):
            self._nodes[use_class] = self._nodes.get(use_class, 0) | 1 << layout.rank[n]
        # The number of changes of the state that are included; -1 for none.
        self._seen = -1

    def among(self, bits: int, window: Window | None) -> Iterator[int]:
        """The nodes of a set, by rank, in order of preference. In a window, their use at its beginning counts."""
        self._refresh()
        nodes = self._nodes if window is None else self._classes_at_start(window, bits)
        return (rank for use_class in sorted(nodes) for rank in numbers(nodes[use_class] & bits))

    def _classes_at_start(self, window: Window, bits: int) -> dict[int, int]:
        """The classes of a set of nodes at the beginning of a window."""
        reserved = window.touched_at_start() & bits
        if not reserved:
            return self._nodes
        nodes = {use_class: some & ~reserved for use_class, some in self._nodes.items()}
        for rank in numbers(reserved):
            n = self._layout.by_rank[rank]
            use_class = self._classify(n, window)
            nodes[use_class] = nodes.get(use_class, 0) | 1 << rank
        return nodes

    def _refresh(self) -> None:
        changed, self._seen = self._shapes.changed_since(self._seen)
        for n in changed:
            old, new = self._class_of[n], self._classify(n, None)
            if old == new:
                continue
            bit = 1 << self._layout.rank[n]
            left = self._nodes[old] ^ bit
            if left:
                self._nodes[old] = left
            else:
                del self._nodes[old]
            self._nodes[new] = self._nodes.get(new, 0) | bit
            self._class_of[n] = new

    def _classify(self, n: int, window: Window | None) -> int:
        """The class of a node at present, or when a window begins."""
        policy, state = self._layout.policy, self._state
        if not self._pools:
            reserved = {} if window is None else window.held_at_start(n)
            return policy.use_class(state.cores_in_use(n, reserved), self._cores[n])
        v, graph = self._pools[n], self._layout.graph
        if v < 0 or not graph.up[v]:
            return policy.use_class(0, 0)
        used = state.unused_room[v] - state.room[v] if window is None else window.in_use_at_start(v)
        return policy.use_class(min(used, graph.size[v]), graph.size[v])
