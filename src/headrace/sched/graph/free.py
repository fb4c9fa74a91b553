"""The free resources of each node, as the bits that the index reads, updated with every job.

A node that a job holds whole is one bit in a set of nodes. On a node that jobs share, each holder has a bit for each
free single resource, and each pool a number of free units. Changed nodes are listed in `FreeState.changes`, for tables
that are derived from this state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.sched.graph import bitsets
from headrace.sched.graph.layout import Demand, Layout
from headrace.sched.graph.selection import Selection


class Nodes(NamedTuple):
    """A set of nodes as bits: by rank (the policy's preference) and by number (the graph's order)."""

    ranks: int
    numbers: int


NO_NODES = Nodes(0, 0)


class Footprint(NamedTuple):
    """The resources of a job in terms of the index.

    - `whole`: the nodes that it holds whole.
    - `touched`: every node with resources of it.
    - `users`: the nodes that it shares.
    - `bits`: (holder, its single resources, node); the set is empty for a holder of which the job uses only something
      else.
    - `blocks`: vertices above single resources that it holds exclusively.
    - `units`: (pool, units of it).
    """

    whole: Nodes
    touched: Nodes
    users: Sequence[int]
    bits: Sequence[tuple[int, int, int]]
    blocks: Sequence[int]
    units: Sequence[tuple[int, int]]


class FreeState:
    """Free single resources (cores, GPUs) of a graph. Initially all are free.

    `free` has the free resources of each holder, `room` the free units of each pool (negative if more is in use than
    exists). `blocked` counts, by node or holder, the reasons why it is unavailable. `whole` are the nodes that jobs
    hold whole, `idle` (by rank) the nodes that no job shares.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.users: dict[int, int] = {}
        # The number of jobs that use a holder, or anything below it.
        self.holder_users = dict.fromkeys(layout.every, 0)
        # By holder, single resources that several jobs hold at once, with the number of jobs beyond the first.
        self.extra: dict[int, dict[int, int]] = {}
        # Changed nodes by number, in order of change.
        self.changes: list[int] = []
        self.whole = NO_NODES
        self.free = dict(layout.every)
        self.room = dict(layout.sizes)
        self.blocked: dict[int, int] = {}
        self.idle = (1 << len(layout.nodes)) - 1
        # The state of the graph without jobs: nodes that can be given whole, free resources, free units, nodes that
        # satisfy a demand.
        self.sound = self.idle
        self.unused = dict(layout.every)
        self.unused_room = dict(layout.sizes)
        self._able_unused: dict[Demand, int] = {}
        # Nodes with a vertex that has been down or differs from the layout.
        self._altered: set[int] = set()
        # By node, the number of vertices that are down among the node and those above it.
        self._down: dict[int, int] = {}
        up = layout.graph.up
        if 0 in up:
            for v, is_up in enumerate(up):
                if not is_up:
                    self.switch(v, False)

    def switch(self, v: int, up: bool) -> None:
        """Record that a vertex came up or went down. Resources that are down are not free."""
        graph, number, step = self.layout.graph, self.layout.number, -1 if up else 1
        self._able_unused.clear()
        inside = next((u for u in graph.ancestors(v) if u in number), None)
        if inside is None or v in number:
            for u in graph.preorder(v):
                n = number.get(u)
                if n is not None:
                    self._count_block(u, n, step)
                    down = self._down[n] = self._down.get(n, 0) + step
                    bit = 1 << self.layout.rank[n]
                    self.sound = self.sound & ~bit if down else self.sound | bit
        elif graph.children[v]:
            for u in graph.preorder(v):
                if u in self.free:
                    self._count_block(u, self.layout.node_of[u], step)
                    self._altered.add(self.layout.node_of[u])
        else:
            h, bit = graph.parent[v], 1 << graph.position[v]
            n = self.layout.node_of[h]
            self._altered.add(n)
            if v in self.room:
                units = graph.size[v] if up else -graph.size[v]
                self.room[v] += units
                self.unused_room[v] += units
            if up:
                self._give_bits(((h, bit, n),), 0)
                self.unused[h] |= bit
            else:
                self._take_bits(((h, bit, n),), 0)
                self.unused[h] &= ~bit

    def resize(self, v: int, more: int) -> None:
        """Record that a pool has `more` units than before."""
        n = self.layout.node_of[self.layout.graph.parent[v]]
        self._able_unused.clear()
        self._altered.add(n)
        if self.layout.graph.up[v]:
            self.room[v] += more
            self.unused_room[v] += more
        self.changes.append(n)

    def _weigh_idle(self, n: int) -> None:
        """Update the bit in `idle` for a node: it is set if no job uses a part of the node."""
        bit = 1 << self.layout.rank[n]
        if self.users.get(n) or (self.blocked and self.blocked.get(self.layout.nodes[n])):
            if self.idle & bit:
                self.idle ^= bit
        else:
            self.idle |= bit

    def footprint(self, selection: Selection) -> Footprint:
        """The footprint of a job that holds these vertices."""
        layout = self.layout
        graph, number, rank = layout.graph, layout.number, layout.rank
        parent, position, children = graph.parent, graph.position, graph.children
        ranks = numbers = 0
        touched = 0
        touched_numbers = 0
        users: list[int] = []
        bits: dict[int, int] = {}
        blocks: list[int] = []
        units: list[tuple[int, int]] = []
        sizes = layout.sizes
        for v, needs, exclusive, _, _ in selection.inner_order():
            n = number.get(v)
            if n is not None:
                if exclusive:
                    ranks |= 1 << rank[n]
                    numbers |= 1 << n
                else:
                    users.append(n)
                    touched |= 1 << rank[n]
                    touched_numbers |= 1 << n
            elif not children[v]:
                # A job that shares a single resource also keeps other jobs from using it.
                h = parent[v]
                if h in self.free:
                    bits[h] = bits.get(h, 0) | (1 << position[v] if sizes.get(v, 1) == 1 else 0)
                    if v in sizes:
                        units.append((v, needs))
            elif exclusive:
                blocks.append(v)
                for u in graph.preorder(v):
                    if u in number:
                        touched |= 1 << rank[number[u]]
                        touched_numbers |= 1 << number[u]
            elif v in self.free:
                bits.setdefault(v, 0)
        for h, run in selection.runs.items():
            bits[h] = bits.get(h, 0) | run.bits
            if run.bits & layout.pool_bits.get(h, 0):
                units += [(v, 1) for v in run.vertices if v in sizes]
        node_of = layout.node_of
        found = [(h, b, node_of[h]) for h, b in bits.items()]
        every = Nodes(touched | ranks, touched_numbers | numbers)
        return Footprint(Nodes(ranks, numbers) if ranks else NO_NODES, every, users, found, blocks, units)

    def took(self, job: Footprint) -> None:
        """Enter a job. No other entered job may hold any of its whole nodes."""
        if job.whole is not NO_NODES:
            self.whole = Nodes(self.whole.ranks | job.whole.ranks, self.whole.numbers | job.whole.numbers)
        self.took_rest(job)

    def gave(self, job: Footprint) -> None:
        """Remove a job that was entered by `took`."""
        if job.whole is not NO_NODES:
            self.whole = Nodes(self.whole.ranks & ~job.whole.ranks, self.whole.numbers & ~job.whole.numbers)
        self.gave_rest(job)

    def took_rest(self, job: Footprint) -> None:
        """As `took`, without the whole nodes. Other jobs may hold the same resources; these are counted."""
        users = self.users
        for n in job.users:
            users[n] = users.get(n, 0) + 1
            self._weigh_idle(n)
        self._take_bits(job.bits, 1)
        for v, units in job.units:
            self.room[v] -= units
        for v in job.blocks:
            self._block(v, 1)

    def _take_bits(self, taken: Sequence[tuple[int, int, int]], jobs: int) -> None:
        """Take single resources, for `jobs` jobs (0: because they went down)."""
        free, changes, holder_users = self.free, self.changes, self.holder_users
        for h, bits, n in taken:
            holder_users[h] += jobs
            held = free[h]
            if held & bits == bits:
                free[h] = held ^ bits
            else:
                free[h] = held & ~bits
                counts = self.extra.setdefault(h, {})
                for bit in bitsets.each(bits & ~held):
                    counts[bit] = counts.get(bit, 0) + 1
            changes.append(n)

    def gave_rest(self, job: Footprint) -> None:
        """As `gave`, without the whole nodes."""
        users = self.users
        for n in job.users:
            users[n] -= 1
            self._weigh_idle(n)
        self._give_bits(job.bits, 1)
        for v, units in job.units:
            self.room[v] += units
        for v in job.blocks:
            self._block(v, -1)

    def _give_bits(self, given: Sequence[tuple[int, int, int]], jobs: int) -> None:
        """Free single resources that `jobs` jobs held (0: because they came up)."""
        free, changes, holder_users = self.free, self.changes, self.holder_users
        for h, bits, n in given:
            holder_users[h] -= jobs
            counts = self.extra.get(h)
            if counts is not None:
                for bit in bitsets.each(bits):
                    left = counts.get(bit)
                    if left is not None:
                        bits ^= bit
                        if left > 1:
                            counts[bit] = left - 1
                        else:
                            del counts[bit]
                if not counts:
                    del self.extra[h]
            free[h] |= bits
            changes.append(n)

    def _block(self, v: int, step: int) -> None:
        """Count an exclusive use of a vertex above single resources (`step` 1), or its end (-1)."""
        layout = self.layout
        children = layout.graph.children
        for u in layout.graph.preorder(v):
            n = layout.number.get(u)
            if n is None and u in layout.node_of:
                n = layout.node_of[u]
            if n is not None and children[u]:
                self._count_block(u, n, step)

    def _count_block(self, u: int, n: int, step: int) -> None:
        """Add `step` (1 or -1) to the reasons why a node, or a holder in it, is unavailable."""
        count = self.blocked.get(u, 0) + step
        if count:
            self.blocked[u] = count
        else:
            del self.blocked[u]
        self.changes.append(n)
        if u in self.layout.number:
            self._weigh_idle(n)

    def fit(self, parts: tuple[tuple[str, int], ...], h: int) -> int:
        """The number of slots that fit on a holder."""
        if self.blocked and self.blocked.get(h):
            return 0
        return bitsets.fit(parts, self.free[h], self.layout.masks[h])

    def serves(self, demand: Demand, n: int) -> bool:
        """Whether a node satisfies a demand at present."""
        layout, blocked = self.layout, self.blocked
        if blocked and blocked.get(layout.nodes[n]):
            return False
        if demand.units:
            return layout.fit_units(demand.parts, n, self.room) >= (demand.slots or 1)
        if not demand.holders:
            left = demand.slots or 1
            for h in layout.holders[n]:
                left -= self.fit(demand.parts, h)
                if left <= 0:
                    return True
            return False
        left = demand.holders
        for h in layout.holders[n]:
            left -= self.holder_serves(demand, h)
            if left <= 0:
                return True
        return False

    def holder_serves(self, demand: Demand, h: int) -> bool:
        """Whether a holder satisfies a demand for holders on its node."""
        return self.fit(demand.parts, h) >= demand.slots and not (demand.alone and self.holder_users[h])

    def is_idle(self, n: int) -> bool:
        """Whether no job uses single resources of a node, and all of them are up."""
        layout, free, every, blocked = self.layout, self.free, self.layout.every, self.blocked
        if blocked and (blocked.get(layout.nodes[n]) or any(blocked.get(h) for h in layout.holders[n])):
            return False
        if any([free[h] != every[h] or self.holder_users[h] for h in layout.holders[n]]):
            return False
        return n not in self._altered or all(
            [self.room[v] == layout.sizes[v] for pools in layout.pools.values() if (v := pools[n]) >= 0]
        )

    def cores_in_use(self, n: int, reserved: Mapping[int, int]) -> int:
        """The cores of a node that are in use, or `reserved` (bits by holder), except cores that are down."""
        layout, blocked = self.layout, self.blocked
        count = 0
        for h in layout.holders[n]:
            cores = layout.masks[h].get("core", 0) & self.unused[h]
            if not (blocked and blocked.get(h)):
                cores &= ~self.free[h] | reserved.get(h, 0)
            elif not self._is_up(h):
                continue
            count += cores.bit_count()
        return count

    def able_unused(self, demand: Demand) -> int:
        """The nodes, by rank, that would satisfy a demand without jobs.

        A node that is down (not `sound`) may be included.
        """
        found = self._able_unused.get(demand)
        if found is None:
            layout = self.layout
            found = 0
            for kind in layout.node_kinds:
                if layout.serves(demand, kind.example, layout.every, layout.sizes):
                    found |= kind.rank_bits
            for n in self._altered:
                unused = {h: self.unused[h] if self._is_up(h) else 0 for h in layout.holders[n]}
                bit = 1 << layout.rank[n]
                serves = layout.serves(demand, n, unused, self.unused_room)
                found = found | bit if serves else found & ~bit
            self._able_unused[demand] = found
        return found

    def _is_up(self, h: int) -> bool:
        """Whether a holder and the vertices above it in its node are up."""
        graph = self.layout.graph
        while graph.up[h]:
            if h in self.layout.number:
                return True
            h = graph.parent[h]
        return False
