"""The resources that reservations use over time, kept apart from the index of what is free now.

Reservations never enter that index. A profile has the nodes that they touch over time, which is enough for whole nodes;
each shared node has a list of what reservations hold of it. A search for a span of time reads the index through a
window, which subtracts what reservations hold of a node when the search reaches the node, and restores it afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from headrace.graph.free import Footprint, FreeState, Nodes
from headrace.graph.layout import Layout
from headrace.graph.profile import Profile

# Start, end, job, and the resources that it holds on a node, by holder.
_Held = tuple[int, int, int, Sequence[tuple[int, int]]]


class Reservations:
    """The reservations on a graph; no two of them hold the same resource at the same time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._profile = Profile()
        # By number of a shared node, the reserved resources in order of start.
        self._parts: dict[int, list[_Held]] = {}

    def add(self, jobid: int, start: int, end: int, job: Footprint) -> None:
        """Enter a reservation of a job during [start, end) seconds."""
        self._profile.add(start, end, job.touched.ranks, self._joined(job.whole), job.whole.ranks)
        for n, held in self._by_node(job).items():
            insort(self._parts.setdefault(n, []), (start, end, jobid, held))

    def remove(self, jobid: int, start: int, end: int, job: Footprint) -> None:
        """Undo `add` with the same arguments."""
        self._profile.remove(start, end, job.touched.ranks, self._joined(job.whole), job.whole.ranks)
        for n in self._by_node(job):
            parts = self._parts[n]
            del parts[bisect_left(parts, (start, end, jobid))]
            if not parts:
                del self._parts[n]

    def _joined(self, whole: Nodes) -> int:
        return whole.ranks | whole.numbers << len(self._layout.nodes)

    def _by_node(self, job: Footprint) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for h, bits, n in job.bits:
            if not bits:
                continue
            found.setdefault(n, []).append((h, bits))
        layout = self._layout
        for v in job.blocks:
            for h in layout.graph.preorder(v):
                if h in layout.every:
                    found.setdefault(layout.node_of[h], []).append((h, layout.every[h]))
        return found

    def touched_in(self, start: int, end: int) -> int:
        """The nodes, by rank, that are touched at some moment of [start, end)."""
        return self._profile.touched_in(start, end)

    def window(self, state: FreeState, start: int, end: int, may: Callable[[int], object] | None) -> Window:
        """A window on `state` for [start, end); nodes (vertices) for which `may` is false are left out."""
        return Window(self._profile, self._parts, state, start, end, may)


class Window:
    """The free resources of a span of time, node by node. `over` are the nodes that reservations have whole in it."""

    __slots__ = ("_end", "_may", "_parts", "_profile", "_saved", "_start", "_state", "_subtracted", "over")

    def __init__(
        self,
        profile: Profile,
        parts: dict[int, list[_Held]],
        state: FreeState,
        start: int,
        end: int,
        may: Callable[[int], object] | None,
    ) -> None:
        self._profile = profile
        self._parts = parts
        self._state = state
        self._start = start
        self._end = end
        self._may = may
        self._subtracted: set[int] = set()
        self._saved: dict[int, int] = {}
        count, whole = len(state.layout.nodes), profile.whole_in(start, end)
        self.over = Nodes(whole & ((1 << count) - 1), whole >> count)

    def touched(self) -> int:
        """The nodes, by rank, that a reservation holds or shares at some moment of the span."""
        return self._profile.touched_in(self._start, self._end)

    def subtract(self, n: int) -> bool:
        """Subtract what reservations hold of a node during the span; False if the node is left out."""
        if self._may is not None and not self._may(self._state.layout.nodes[n]):
            return False
        parts = self._parts.get(n)
        if parts is None or n in self._subtracted:
            return True
        self._subtracted.add(n)
        start, end, free, saved = self._start, self._end, self._state.free, self._saved
        for begins, ends, _, held in parts:
            if begins >= end:
                break
            if ends > start:
                for h, bits in held:
                    if h not in saved:
                        saved[h] = free[h]
                    free[h] &= ~bits
        return True

    def close(self) -> None:
        """Restore the index."""
        self._state.free.update(self._saved)
