"""The resources that reservations use over time, apart from the index of currently free resources.

Reservations never enter that index. A profile has the nodes that they touch over time, which is enough for whole nodes;
each shared node has a list of its reserved resources. A search for a span of time reads the index through a window,
which subtracts the reserved resources of a node when the search reaches the node, and restores them afterwards.

Units of a pool that one job releases may be the same ones that the next has reserved, so reserved units of a pool are
not subtracted. Instead, the pool's planner gives the maximum in use during the span.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from headrace.sched.graph.bitsets import each
from headrace.sched.graph.free import Footprint, FreeState, Nodes
from headrace.sched.graph.layout import Layout

# Start, end, job, and its resources on a node: single resources by holder, and the pools of which it has units.
_Held = tuple[int, int, int, Sequence[tuple[int, int]], Sequence[int]]
# The maximum number of units of a pool in use during [start, end), as `View.in_use`.
InUse = Callable[[int, int, int], int]


class Profile:
    """The nodes that reservations use during any span of time, without a look at each reservation.

    Time is cut where reservations begin and end. Segment i of the lists is [times[i], times[i + 1]); nothing is used
    before the first and from the last on. Each segment has two sets of nodes: the nodes that a reservation holds whole,
    and the nodes that any reservation uses. The answer for a span is the union of its segments. Bits are nodes by rank;
    whole nodes are also kept in the order of the graph.
    """

    __slots__ = ("_cuts", "_parts", "times", "touched", "whole")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.touched: list[int] = []
        self.whole: list[int] = []
        # The number of reservations that begin or end at each of `times`.
        self._cuts: dict[int, int] = {}
        # By shared node (a single bit), the spans of its reservations: removing one must keep the node for the others.
        self._parts: dict[int, list[tuple[int, int]]] = {}

    def add(self, start: int, end: int, touched: int, whole: int, ranks: int) -> None:
        """Add a reservation during [start, end).

        `ranks` are its whole nodes by rank, `whole` the same in the caller's own form; `touched` includes `ranks`. No
        other reservation may touch the nodes of `ranks` during that time.
        """
        i, j = self._cut(start), self._cut(end)
        self.touched[i:j] = [t | touched for t in self.touched[i:j]]
        if whole:
            self.whole[i:j] = [w | whole for w in self.whole[i:j]]
        for bit in each(touched & ~ranks):
            self._parts.setdefault(bit, []).append((start, end))

    def remove(self, start: int, end: int, touched: int, whole: int, ranks: int) -> None:
        """Undo `add` with the same arguments."""
        i, j = bisect_left(self.times, start), bisect_left(self.times, end)
        keep = ~touched
        self.touched[i:j] = [t & keep for t in self.touched[i:j]]
        if whole:
            keep = ~whole
            self.whole[i:j] = [w & keep for w in self.whole[i:j]]
        for bit in each(touched & ~ranks):
            spans = self._parts[bit]
            spans.remove((start, end))
            if not spans:
                del self._parts[bit]
            for s, e in spans:
                if s < end and e > start:
                    k, m = bisect_left(self.times, max(s, start)), bisect_left(self.times, min(e, end))
                    self.touched[k:m] = [t | bit for t in self.touched[k:m]]
        self._join(start)
        self._join(end)

    def touched_in(self, start: int, end: int) -> int:
        """The nodes that are touched at some moment of [start, end)."""
        i = max(bisect_right(self.times, start) - 1, 0)
        return reduce(or_, self.touched[i : bisect_left(self.times, end)], 0)

    def whole_in(self, start: int, end: int) -> int:
        """The nodes that are held whole at some moment of [start, end)."""
        i = max(bisect_right(self.times, start) - 1, 0)
        return reduce(or_, self.whole[i : bisect_left(self.times, end)], 0)

    def _cut(self, t: int) -> int:
        """Make a segment begin at `t`, and return its index."""
        count = self._cuts.get(t, 0)
        self._cuts[t] = count + 1
        i = bisect_left(self.times, t)
        if not count:
            self.times.insert(i, t)
            self.touched.insert(i, self.touched[i - 1] if i else 0)
            self.whole.insert(i, self.whole[i - 1] if i else 0)
        return i

    def _join(self, t: int) -> None:
        """Remove the cut at `t` once no reservation begins or ends there."""
        count = self._cuts[t] - 1
        if count:
            self._cuts[t] = count
            return
        del self._cuts[t]
        i = bisect_left(self.times, t)
        del self.times[i], self.touched[i], self.whole[i]


class Reservations:
    """The reservations on a graph; no two of them hold the same resource at the same time."""

    def __init__(self, layout: Layout, in_use: InUse) -> None:
        self._layout = layout
        self._in_use = in_use
        self._profile = Profile()
        # By number of a shared node, the reserved resources in order of start.
        self._parts: dict[int, list[_Held]] = {}

    def add(self, jobid: int, start: int, end: int, job: Footprint) -> None:
        """Enter a reservation of a job during [start, end) seconds."""
        self._profile.add(start, end, job.touched.ranks, self._joined(job.whole), job.whole.ranks)
        for n, (held, pools) in self._by_node(job).items():
            insort(self._parts.setdefault(n, []), (start, end, jobid, held, pools))

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

    def _by_node(self, job: Footprint) -> dict[int, tuple[list[tuple[int, int]], list[int]]]:
        """The resources of a job on each node that it shares: single resources by holder, and pools."""
        found: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}
        layout = self._layout
        for h, bits, n in job.bits:
            if bits:
                found.setdefault(n, ([], []))[0].append((h, bits))
        for v, _ in job.units:
            found.setdefault(layout.node_of[layout.graph.parent[v]], ([], []))[1].append(v)
        for v in job.blocks:
            for h in layout.graph.preorder(v):
                if h in layout.every:
                    found.setdefault(layout.node_of[h], ([], []))[0].append((h, layout.every[h]))
        return found

    def touched_in(self, start: int, end: int) -> int:
        """The nodes, by rank, that are touched at some moment of [start, end)."""
        return self._profile.touched_in(start, end)

    def window(self, state: FreeState, start: int, end: int, may: Callable[[int], object] | None) -> Window:
        """A window on `state` for [start, end); nodes (vertices) for which `may` is false are left out."""
        return Window(self._profile, self._parts, state, start, end, may, self._in_use)


class Window:
    """The free resources of a span of time, node by node.

    `over` are the nodes that reservations hold whole in the span.
    """

    __slots__ = (
        *("_end", "_in_use", "_may", "_parts", "_profile", "_saved", "_saved_room", "_start", "_state", "_subtracted"),
        "over",
    )

    def __init__(
        self,
        profile: Profile,
        parts: dict[int, list[_Held]],
        state: FreeState,
        start: int,
        end: int,
        may: Callable[[int], object] | None,
        in_use: InUse,
    ) -> None:
        self._in_use = in_use
        self._profile = profile
        self._parts = parts
        self._state = state
        self._start = start
        self._end = end
        self._may = may
        self._subtracted: set[int] = set()
        self._saved: dict[int, int] = {}
        self._saved_room: dict[int, int] = {}
        count, whole = len(state.layout.nodes), profile.whole_in(start, end)
        self.over = Nodes(whole & ((1 << count) - 1), whole >> count)

    def touched(self) -> int:
        """The nodes, by rank, that a reservation holds or shares at some moment of the span."""
        return self._profile.touched_in(self._start, self._end)

    def touched_at_start(self) -> int:
        """The nodes, by rank, that a reservation holds or shares when the span begins."""
        return self._profile.touched_in(self._start, self._start + 1)

    def held_at_start(self, n: int) -> dict[int, int]:
        """The single resources of a node that reservations hold when the span begins, as bits by holder."""
        found: dict[int, int] = {}
        for begins, ends, _, held, _ in self._parts.get(n, ()):
            if begins <= self._start < ends:
                for h, bits in held:
                    found[h] = found.get(h, 0) | bits
        return found

    def in_use_at_start(self, v: int) -> int:
        """The units of a pool that jobs and reservations use when the span begins."""
        return self._in_use(v, self._start, self._start + 1)

    def subtract(self, n: int) -> bool:
        """Subtract the reserved resources of a node during the span; False if the node is left out."""
        if self._may is not None and not self._may(self._state.layout.nodes[n]):
            return False
        parts = self._parts.get(n)
        if parts is None or n in self._subtracted:
            return True
        self._subtracted.add(n)
        start, end, free, saved = self._start, self._end, self._state.free, self._saved
        room, saved_room = self._state.room, self._saved_room
        for begins, ends, _, held, pools in parts:
            if begins >= end:
                break
            if ends > start:
                for h, bits in held:
                    if h not in saved:
                        saved[h] = free[h]
                    free[h] &= ~bits
                for v in pools:
                    if v not in saved_room:
                        saved_room[v] = room[v]
                        room[v] = self._state.unused_room[v] - self._in_use(v, start, end)
        return True

    def close(self) -> None:
        """Restore the index."""
        self._state.free.update(self._saved)
        self._state.room.update(self._saved_room)
