"""What is free, by node: the bits that the index of free resources answers from, kept current job by job.

A vertex that directly holds single resources (cores, GPUs) has a bit for each that is free. A node that a job has whole
is one bit in a set of nodes. For each shape of slot that is being asked for there is a set of the nodes that can serve
it, brought up to date for the nodes that changed since it was last asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.graph import bitsets
from headrace.graph.model import Graph
from headrace.graph.policies.policy import Policy
from headrace.graph.selection import Run, Selection

_MAX_SHAPES = 64
# How many changes are remembered for shapes that are asked for rarely, before those are weighed anew.
_MAX_CHANGES = 8192


class Nodes(NamedTuple):
    """A set of nodes as bits: by preference and in the graph's order."""

    ranks: int
    numbers: int


NO_NODES = Nodes(0, 0)


class Footprint(NamedTuple):
    """What a job means to the index, besides the nodes it has whole.

    `users`: nodes it shares. `bits`: (holder, single resources of it, node). `blocks`: vertices above single resources
    that it has exclusively. `touched`: every node it uses any of.
    """

    whole: Nodes
    touched: Nodes
    users: Sequence[int]
    bits: Sequence[tuple[int, int, int]]
    blocks: Sequence[int]


class Shape:
    """One kind of slot: for every node whether (`can`, by preference) and how well (`scores`) it can serve it."""

    __slots__ = ("buckets", "can", "parts", "per_node", "scores", "seen")

    def __init__(self, parts: tuple[tuple[str, int], ...], per_node: int) -> None:
        self.parts = parts
        # 0: each slot for itself, wherever it is best; else so many on one node.
        self.per_node = per_node
        self.can = 0
        self.scores: list[int | None] = []
        self.buckets: dict[int, int] = {}
        # How many changes of the state are taken into account.
        self.seen = 0


class FreeState:
    """Free cores, GPUs and the like of a graph under one policy. Bit i of a holder is its child at position i."""

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self.graph = graph
        self.policy = policy
        self.ready = False
        self.usable = policy.whole <= {"node"} and not policy.close and policy.order != 0
        self._reset()

    def _reset(self) -> None:
        self.types: dict[str, frozenset[int]] = {}
        self.nodes: list[int] = []
        self.number: dict[int, int] = {}
        self.idle = 0
        self.users: dict[int, int] = {}
        # Single resources that several jobs were entered with, by holder: how many more than one.
        self.extra: dict[int, dict[int, int]] = {}
        # Nodes that changed, and how many were dropped from the front of the list.
        self.changes: list[int] = []
        self.dropped = 0
        self.whole = Nodes(0, 0)
        self.over = Nodes(0, 0)
        self.holders: list[list[int]] = []
        self.node_of: dict[int, int] = {}
        self.free: dict[int, int] = {}
        self.masks: dict[int, dict[str, int]] = {}
        # What to add to the place of a resource of a holder to get its id, by type, where that is one number.
        self.shift: dict[int, dict[str, int]] = {}
        self.blocked: dict[int, int] = {}
        self.rank: list[int] = []
        self.by_rank: list[int] = []
        self.shapes: dict[tuple[tuple[tuple[str, int], ...], int], Shape] = {}
        # As it is while nobody uses anything: nodes that can be given whole, free resources, nodes that can serve.
        self.sound = 0
        self.unused: dict[int, int] = {}
        # How many of each node and what is above it are down.
        self._down: dict[int, int] = {}
        self._can_unused: dict[tuple[tuple[tuple[str, int], ...], int], int] = {}

    def forget(self) -> None:
        """The graph or its status changed: build anew when next asked."""
        self.ready = False
        self._reset()

    def build(self) -> None:
        """Start from a graph that nobody uses."""
        self.ready = True
        graph = self.graph
        types, parent, size, children, ids = graph.type, graph.parent, graph.size, graph.children, graph.id
        if not self.usable:
            return
        root = graph.root
        nodes = self.nodes = [v for v in graph.preorder(root) if types[v] == "node"]
        if self.policy.stops and any(parent[v] != root for v in nodes):
            self.usable = False
            return
        self.number = {v: n for n, v in enumerate(nodes)}
        numbers = {graph.id[v] for v in nodes}
        if self.policy.node_weight and (len(numbers) < len(nodes) or max(ids, default=0) >= self.policy.node_weight):
            # Scores of different nodes could meet.
            self.usable = len(nodes) > 0 and len(numbers) == len(nodes) and self._inner_ids_small()
            if not self.usable:
                return
        spread: set[str] = {kind for kind, amount in graph.totals[root].items() if amount}
        holding: dict[str, set[int]] = {}
        uneven: set[int] = set()
        seen: dict[str, int] = {}
        shapes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        shifts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for n, node in enumerate(nodes):
            holders: list[int] = []
            stack = [node]
            while stack:
                h = stack.pop()
                free = 0
                masks: dict[str, int] = {}
                last: dict[str, int] = {}
                moved: dict[str, int] = {}
                inner = []
                for i, child in enumerate(children[h]):
                    if children[child]:
                        inner.append(child)
                        continue
                    kind = types[child]
                    if size[child] != 1 or ids[child] <= last.get(kind, -1):
                        spread.discard(kind)
                    if self.policy.stops and i and graph.uniq[child] <= graph.uniq[children[h][i - 1]]:
                        # Tried in another order than that of their places.
                        spread.discard(kind)
                    last[kind] = ids[child]
                    if moved.setdefault(kind, ids[child] - i) != ids[child] - i:
                        uneven.add(h)
                    bit = 1 << i
                    masks[kind] = masks.get(kind, 0) | bit
                    seen[kind] = seen.get(kind, 0) + 1
                    free |= bit
                stack.extend(reversed(inner))
                for above in (u for u in graph.ancestors(h) if u in self.masks):
                    # A slot is put together at the upper one, of what both hold.
                    spread.difference_update(masks.keys() & self.masks[above].keys())
                if masks:
                    holders.append(h)
                    self.free[h] = free
                    self.masks[h] = shapes.setdefault(tuple(masks.items()), masks)
                    if h not in uneven:
                        self.shift[h] = shifts.setdefault(tuple(moved.items()), moved)
                    self.node_of[h] = n
                    for kind in masks:
                        holding.setdefault(kind, set()).add(h)
            self.holders.append(holders)
        totals = graph.totals[root]
        # Equal sets are one object, so that comparing them costs nothing.
        known: dict[frozenset[int], frozenset[int]] = {}
        for kind in spread:
            if seen.get(kind) == totals.get(kind):
                found = frozenset(holding[kind])
                self.types[kind] = known.setdefault(found, found)
        self._rank_nodes()
        self.sound = self.idle
        self.unused = dict(self.free)
        if 0 in graph.up:
            for v, is_up in enumerate(graph.up):
                if not is_up:
                    self.switch(v, False)

    def switch(self, v: int, up: bool) -> None:
        """A vertex has come up, or gone down, which it was not before: what is down is free for nobody."""
        if not self.ready or not self.usable:
            return
        graph, number, step = self.graph, self.number, -1 if up else 1
        self._can_unused.clear()
        inside = next((u for u in graph.ancestors(v) if u in number), None)
        if inside is None or v in number:
            for u in graph.preorder(v):
                n = number.get(u)
                if n is not None:
                    self._count_block(u, n, step)
                    down = self._down[n] = self._down.get(n, 0) + step
                    bit = 1 << self.rank[n]
                    self.sound = self.sound & ~bit if down else self.sound | bit
        elif graph.children[v]:
            for u in graph.preorder(v):
                if u in self.free:
                    self._count_block(u, self.node_of[u], step)
        else:
            h, bit = graph.parent[v], 1 << graph.position[v]
            job = Footprint(NO_NODES, NO_NODES, (), ((h, bit, self.node_of[h]),), ())
            if up:
                self.gave_rest(job)
                self.unused[h] |= bit
            else:
                self.took_rest(job)
                self.unused[h] &= ~bit

    def _inner_ids_small(self) -> bool:
        graph, limit = self.graph, self.policy.node_weight
        return all(graph.id[v] < limit for v, kids in enumerate(graph.children) if not kids)

    def _rank_nodes(self) -> None:
        """Nodes by preference where the policy prefers by node: the lowest bit of a set is the one to take."""
        graph, nodes, order = self.graph, self.nodes, self.policy.order
        if self.policy.stops:
            by_rank = sorted(range(len(nodes)), key=lambda n: -graph.uniq[nodes[n]])
        else:
            by_rank = sorted(range(len(nodes)), key=lambda n: -order * graph.id[nodes[n]])
        self.by_rank = by_rank
        self.rank = [0] * len(nodes)
        bits = bytearray(len(nodes) // 8 + 1)
        for rank, n in enumerate(by_rank):
            self.rank[n] = rank
            if self._untouched(n):
                bits[rank >> 3] |= 1 << (rank & 7)
        self.idle = int.from_bytes(bits, "little")

    def _untouched(self, n: int) -> bool:
        """Whether nobody uses anything of a node, so that it could be given whole."""
        node = self.nodes[n]
        if self.blocked and self.blocked.get(node):
            return False
        return not self.users.get(n)

    def _weigh_idle(self, n: int) -> None:
        bit = 1 << self.rank[n]
        if self._untouched(n):
            self.idle |= bit
        elif self.idle & bit:
            self.idle ^= bit

    def footprint(self, selection: Selection) -> Footprint:
        """What `took` and `gave` need to know of a job that holds these vertices."""
        number, parent, position, children = self.number, self.graph.parent, self.graph.position, self.graph.children
        holders = self.free
        ranks = numbers = 0
        touched = 0
        touched_numbers = 0
        users: list[int] = []
        bits: dict[int, int] = {}
        blocks: list[int] = []
        for v, _, exclusive, _, _ in selection.inner_order():
            n = number.get(v)
            if n is not None:
                if exclusive:
                    ranks |= 1 << self.rank[n]
                    numbers |= 1 << n
                else:
                    users.append(n)
                    touched |= 1 << self.rank[n]
                    touched_numbers |= 1 << n
            elif exclusive:
                h = parent[v]
                if h in holders and not children[v]:
                    bits[h] = bits.get(h, 0) | 1 << position[v]
                else:
                    blocks.append(v)
                    for u in self.graph.preorder(v):
                        if u in number:
                            touched |= 1 << self.rank[number[u]]
                            touched_numbers |= 1 << number[u]
        for h, run in selection.runs.items():
            bits[h] = bits.get(h, 0) | run.bits
        found = [(h, b, self.node_of[h]) for h, b in bits.items()]
        every = Nodes(touched | ranks, touched_numbers | numbers)
        return Footprint(Nodes(ranks, numbers) if ranks else NO_NODES, every, users, found, blocks)

    def took(self, job: Footprint) -> None:
        """A job holds these; no other that was entered holds a whole node of them."""
        if not self.ready:
            return
        if job.whole is not NO_NODES:
            self.whole = Nodes(self.whole.ranks | job.whole.ranks, self.whole.numbers | job.whole.numbers)
        self.took_rest(job)

    def gave(self, job: Footprint) -> None:
        """A job no longer holds them."""
        if not self.ready:
            return
        if job.whole is not NO_NODES:
            self.whole = Nodes(self.whole.ranks & ~job.whole.ranks, self.whole.numbers & ~job.whole.numbers)
        self.gave_rest(job)

    def took_rest(self, job: Footprint) -> None:
        """As `took`, without the whole nodes; others may hold the same, which is counted."""
        if not self.ready:
            return
        users, free, changes = self.users, self.free, self.changes
        for n in job.users:
            users[n] = users.get(n, 0) + 1
            self._weigh_idle(n)
        for h, bits, n in job.bits:
            held = free[h]
            if held & bits == bits:
                free[h] = held ^ bits
            else:
                free[h] = held & ~bits
                counts = self.extra.setdefault(h, {})
                for bit in bitsets.each(bits & ~held):
                    counts[bit] = counts.get(bit, 0) + 1
            changes.append(n)
        for v in job.blocks:
            self._block(v, 1)

    def gave_rest(self, job: Footprint) -> None:
        """As `gave`, without the whole nodes."""
        if not self.ready:
            return
        users, free, changes = self.users, self.free, self.changes
        for n in job.users:
            users[n] -= 1
            self._weigh_idle(n)
        for h, bits, n in job.bits:
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
        for v in job.blocks:
            self._block(v, -1)

    def _block(self, v: int, step: int) -> None:
        """A vertex above single resources was taken exclusively, or given back."""
        children = self.graph.children
        for u in self.graph.preorder(v):
            n = self.number.get(u)
            if n is None and u in self.node_of:
                n = self.node_of[u]
            if n is not None and children[u]:
                self._count_block(u, n, step)

    def _count_block(self, u: int, n: int, step: int) -> None:
        """One more, or one less, reason why a node or a holder of it serves nobody."""
        count = self.blocked.get(u, 0) + step
        if count:
            self.blocked[u] = count
        else:
            del self.blocked[u]
        self.changes.append(n)
        if u in self.number:
            self._weigh_idle(n)

    def shape(self, parts: tuple[tuple[str, int], ...], per_node: int) -> Shape:
        key = (parts, per_node)
        shape = self.shapes.get(key)
        changes = self.changes
        if len(changes) > _MAX_CHANGES:
            self.dropped += len(changes)
            changes.clear()
            for other in self.shapes.values():
                # Nothing tells these what they missed.
                if other.seen < self.dropped:
                    other.seen = -1
        if shape is None:
            if len(self.shapes) >= _MAX_SHAPES:
                del self.shapes[next(iter(self.shapes))]
            shape = self.shapes[key] = Shape(parts, per_node)
            self._weigh_all(shape)
        elif shape.seen < 0:
            self._weigh_all(shape)
        elif shape.seen < self.dropped + len(changes):
            self._refresh(shape, set(changes[shape.seen - self.dropped :]))
        shape.seen = self.dropped + len(changes)
        return shape

    def can_unused(self, parts: tuple[tuple[str, int], ...], per_node: int) -> int:
        """The nodes, by preference, that could serve so many slots each if nobody used them."""
        key = (parts, per_node)
        found = self._can_unused.get(key)
        if found is None:
            free, self.free = self.free, self.unused
            bits = bytearray(len(self.nodes) // 8 + 1)
            for n, rank in enumerate(self.rank):
                # Nodes that are not sound are left out by whoever asks.
                if sum([self._fit_free(parts, h) for h in self.holders[n]]) >= per_node:
                    bits[rank >> 3] |= 1 << (rank & 7)
            self.free = free
            found = self._can_unused[key] = int.from_bytes(bits, "little")
        return found

    def _scored(self, shape: Shape) -> bool:
        return shape.per_node == 0 and not self.policy.stops and not self.policy.node_weight

    def _weigh_all(self, shape: Shape) -> None:
        scored = self._scored(shape)
        count = len(self.nodes)
        bits = bytearray((count + 7) // 8)
        buckets: dict[int, bytearray] = {}
        shape.scores = []
        for n in range(count):
            score = self._score(shape, n)
            if scored:
                shape.scores.append(score)
                if score is not None:
                    bucket = buckets.get(score)
                    if bucket is None:
                        bucket = buckets[score] = bytearray(len(bits))
                    bucket[n >> 3] |= 1 << (n & 7)
            elif score is not None:
                rank = self.rank[n]
                bits[rank >> 3] |= 1 << (rank & 7)
        shape.buckets = {score: int.from_bytes(b, "little") for score, b in buckets.items()}
        shape.can = int.from_bytes(bits, "little")

    def _refresh(self, shape: Shape, changed: set[int]) -> None:
        scored = self._scored(shape)
        for n in changed:
            score = self._score(shape, n)
            if scored:
                old = shape.scores[n]
                if old == score:
                    continue
                bit = 1 << n
                if old is not None:
                    left = shape.buckets[old] ^ bit
                    if left:
                        shape.buckets[old] = left
                    else:
                        del shape.buckets[old]
                if score is not None:
                    shape.buckets[score] = shape.buckets.get(score, 0) | bit
                shape.scores[n] = score
            else:
                bit = 1 << self.rank[n]
                if score is None:
                    if shape.can & bit:
                        shape.can ^= bit
                elif not shape.can & bit:
                    shape.can |= bit

    def _score(self, shape: Shape, n: int) -> int | None:
        """How good the best slot of a node is, or 0 where only whether matters; None where it cannot serve."""
        if self.blocked and self.blocked.get(self.nodes[n]):
            return None
        if shape.per_node:
            count = 0
            for h in self.holders[n]:
                count += self.fit(shape.parts, h)
                if count >= shape.per_node:
                    return 0
            return None
        best: int | None = None
        order = self.policy.order
        if not self._scored(shape):
            for h in self.holders[n]:
                if self.fit(shape.parts, h):
                    return 0
            return None
        for h in self.holders[n]:
            if self.blocked and self.blocked.get(h):
                continue
            found = self.next_slot(shape.parts, h, self.free[h])
            if found is not None and (best is None or found[1] * order > best * order):
                best = found[1]
        return best

    def fit(self, parts: tuple[tuple[str, int], ...], h: int) -> int:
        """How many slots a holder can serve."""
        if self.blocked and self.blocked.get(h):
            return 0
        return self._fit_free(parts, h)

    def _fit_free(self, parts: tuple[tuple[str, int], ...], h: int) -> int:
        return bitsets.fit(parts, self.free[h], self.masks[h])

    def next_slot(self, parts: tuple[tuple[str, int], ...], h: int, free: int) -> tuple[int, int] | None:
        """The best slot of a holder from those resources that are free: its bits, and the sum of its ids."""
        if len(parts) == 1 and parts[0][1] == 1:
            # A core each, as most ask.
            mask = self.masks[h].get(parts[0][0])
            some = free & mask if mask is not None else 0
            if not some:
                return None
            i = ((some & -some) if self.policy.order < 0 else some).bit_length() - 1
            return 1 << i, self.graph.id[self.graph.children[h][i]]
        if not bitsets.fit(parts, free, self.masks[h]):
            return None
        bits = self.best(parts, h, 1, free)
        return bits, self.sum_of(parts, h, bits)

    def sum_of(self, parts: tuple[tuple[str, int], ...], h: int, bits: int) -> int:
        """The sum of the ids of resources of a holder."""
        children, ids, masks, shift = self.graph.children[h], self.graph.id, self.masks[h], self.shift.get(h)
        total = 0
        for kind, _ in parts:
            some = bits & masks[kind]
            first, last = (some & -some).bit_length() - 1, some.bit_length()
            if shift is not None and some >> first == (1 << (last - first)) - 1:
                total += (last - first) * (first + last - 1) // 2 + (last - first) * shift[kind]
            else:
                total += sum([ids[children[i]] for i in range(first, last) if some >> i & 1])
        return total

    def best(self, parts: tuple[tuple[str, int], ...], h: int, slots: int, free: int) -> int:
        """The resources of the `slots` best slots of a holder, of those of `free`, which are enough."""
        masks = self.masks[h]
        pick = bitsets.lowest if self.policy.order < 0 else bitsets.highest
        out = 0
        for kind, count in parts:
            out |= pick(free & masks[kind], count * slots)
        return out

    def run(self, parts: tuple[tuple[str, int], ...], h: int, bits: int) -> Run:
        """Resources of a holder, as they stand in a selection."""
        children, masks, shift = self.graph.children[h], self.masks[h], self.shift.get(h)
        vertices: list[int] = []
        ids: dict[str, int] = {}
        end = 0
        for kind, _ in parts:
            some = bits & masks[kind]
            first, last = (some & -some).bit_length() - 1, some.bit_length()
            if some >> first == (1 << (last - first)) - 1:
                found = children[first:last]
            else:
                found = [children[i] for i in range(first, last) if some >> i & 1]
            if shift is None:
                ids[kind] = sum([1 << self.graph.id[v] for v in found])
            else:
                by = shift[kind]
                ids[kind] = some << by if by >= 0 else some >> -by
            vertices += found
            if first < end:
                vertices.sort(key=self.graph.position.__getitem__)
            end = last if last > end else end
        return Run(vertices, bits, ids)
