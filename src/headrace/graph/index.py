"""Free resources by node, so that the common requests are answered without a search.

The common requests are slots of cores and GPUs, alone or on one node: they make up nearly all jobs of a busy system.
For them a vertex that directly holds cores and GPUs keeps the free ones as bits, and for each shape of slot that is
being asked for there is a bit set over all nodes of those that can still serve it. A match is then a few integer
operations, whatever the number of nodes. The answers are those of the matcher: which of the two found a job cannot be
seen, and requests or graphs out of the ordinary (`None`) go to the matcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.graph.candidates import ChildOrder, lowest
from headrace.graph.matcher import Pick
from headrace.graph.model import Graph
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request
from headrace.graph.selection import Chosen

_MAX_SHAPES = 16


class Nodes(NamedTuple):
    """A set of nodes as bits: by preference and in the graph's order."""

    ranks: int
    numbers: int


class Footprint(NamedTuple):
    """What a job means to the index: nodes it has whole, and the rest of its vertices that matter."""

    whole: Nodes
    rest: Sequence[Chosen]


class _Shape:
    """One kind of slot: for every node whether (`can`, by preference) and how well (`scores`) it can serve it."""

    __slots__ = ("buckets", "can", "dirty", "parts", "per_node", "scores")

    def __init__(self, parts: tuple[tuple[str, int], ...], per_node: int) -> None:
        self.parts = parts
        # 0: each slot for itself, wherever it is best; else so many on one node.
        self.per_node = per_node
        self.can = 0
        self.scores: list[int | None] = []
        self.buckets: dict[int, int] = {}
        self.dirty: set[int] = set()


class FreeIndex:
    """Free cores, GPUs and the like of a graph under one policy. Bit i of a holder is its child at position i."""

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        order: ChildOrder,
    ) -> None:
        self._graph = graph
        self._policy = policy
        self._order = order
        self.ready = False
        self.usable = policy.whole <= {"node"} and not policy.close
        self._reset()

    def _reset(self) -> None:
        self._types: dict[str, frozenset[int]] = {}
        self._nodes: list[int] = []
        self._number: dict[int, int] = {}
        self._idle = 0
        self._users: dict[int, int] = {}
        self._extra: dict[int, int] = {}
        self._whole = Nodes(0, 0)
        self.over = Nodes(0, 0)
        self._holders: list[list[int]] = []
        self._node_of: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._masks: dict[int, dict[str, int]] = {}
        self._blocked: dict[int, int] = {}
        self._rank: list[int] = []
        self._by_rank: list[int] = []
        self._shapes: dict[tuple[tuple[tuple[str, int], ...], int], _Shape] = {}
        self._allowed: dict[bool, tuple[frozenset[int], int]] = {}

    def forget(self) -> None:
        """The graph or its status changed: build anew when next asked."""
        self.ready = False
        self._reset()

    # Building

    def build(self) -> None:
        """Start from a graph that nobody uses."""
        self.ready = True
        graph = self._graph
        types, parent, size, children, ids, up = (
            graph.type,
            graph.parent,
            graph.size,
            graph.children,
            graph.id,
            graph.up,
        )
        if not self.usable:
            return
        root = graph.root
        nodes = self._nodes = [v for v in graph.preorder(root) if types[v] == "node"]
        if self._policy.stops and any(parent[v] != root for v in nodes):
            self.usable = False
            return
        self._number = {v: n for n, v in enumerate(nodes)}
        numbers = {graph.id[v] for v in nodes}
        if self._policy.node_weight and (len(numbers) < len(nodes) or max(ids, default=0) >= self._policy.node_weight):
            # Scores of different nodes could meet.
            self.usable = len(nodes) > 0 and len(numbers) == len(nodes) and self._inner_ids_small()
            if not self.usable:
                return
        spread: set[str] = {kind for kind, amount in graph.totals[root].items() if amount}
        holding: dict[str, set[int]] = {}
        seen: dict[str, int] = {}
        shapes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for n, node in enumerate(nodes):
            holders: list[int] = []
            stack = [node]
            while stack:
                h = stack.pop()
                free = 0
                masks: dict[str, int] = {}
                last: dict[str, int] = {}
                inner = []
                for i, child in enumerate(children[h]):
                    if children[child]:
                        inner.append(child)
                        continue
                    kind = types[child]
                    if size[child] != 1 or ids[child] <= last.get(kind, -1):
                        spread.discard(kind)
                    last[kind] = ids[child]
                    bit = 1 << i
                    masks[kind] = masks.get(kind, 0) | bit
                    seen[kind] = seen.get(kind, 0) + 1
                    if up[child]:
                        free |= bit
                stack.extend(reversed(inner))
                if masks:
                    holders.append(h)
                    self._free[h] = free
                    self._masks[h] = shapes.setdefault(tuple(masks.items()), masks)
                    self._node_of[h] = n
                    for kind in masks:
                        holding.setdefault(kind, set()).add(h)
                if h != node and not up[h]:
                    for u in graph.preorder(h):
                        if children[u]:
                            self._blocked[u] = self._blocked.get(u, 0) + 1
            self._holders.append(holders)
            down = sum(not up[above] for above in (node, *graph.ancestors(node)))
            if down:
                self._blocked[node] = self._blocked.get(node, 0) + down
        totals = graph.totals[root]
        for kind in spread:
            if seen.get(kind) == totals.get(kind):
                self._types[kind] = frozenset(holding[kind])
        self._rank_nodes()

    def _inner_ids_small(self) -> bool:
        graph, limit = self._graph, self._policy.node_weight
        return all(graph.id[v] < limit for v, kids in enumerate(graph.children) if not kids)

    def _rank_nodes(self) -> None:
        """Nodes by preference where the policy prefers by node: the lowest bit of a set is the one to take."""
        graph, nodes, order = self._graph, self._nodes, self._policy.order
        if order == 0:
            by_rank = sorted(range(len(nodes)), key=lambda n: -graph.uniq[nodes[n]])
        else:
            by_rank = sorted(range(len(nodes)), key=lambda n: -order * graph.id[nodes[n]])
        self._by_rank = by_rank
        self._rank = [0] * len(nodes)
        bits = bytearray(len(nodes) // 8 + 1)
        for rank, n in enumerate(by_rank):
            self._rank[n] = rank
            if self._untouched(n):
                bits[rank >> 3] |= 1 << (rank & 7)
        self._idle = int.from_bytes(bits, "little")

    def _untouched(self, n: int) -> bool:
        """Whether nobody uses anything of a node, so that it could be given whole."""
        node = self._nodes[n]
        if self._blocked and self._blocked.get(node):
            return False
        return not self._users.get(n)

    def _weigh_idle(self, n: int) -> None:
        bit = 1 << self._rank[n]
        if self._untouched(n):
            self._idle |= bit
        elif self._idle & bit:
            self._idle ^= bit

    # Keeping current

    def footprint(self, order: Sequence[Chosen]) -> Footprint:
        """What `took` and `gave` need to know of a job that holds these vertices."""
        ranks = numbers = 0
        rest = []
        for item in order:
            n = self._number.get(item.vertex)
            if n is not None and item.exclusive:
                ranks |= 1 << self._rank[n]
                numbers |= 1 << n
            elif n is not None or item.exclusive:
                rest.append(item)
        return Footprint(Nodes(ranks, numbers), rest)

    def took(self, job: Footprint) -> None:
        """A job holds these; no other that was entered holds a whole node of them."""
        ranks, numbers = self._whole
        self._whole = Nodes(ranks | job.whole.ranks, numbers | job.whole.numbers)
        self.took_rest(job)

    def gave(self, job: Footprint) -> None:
        """A job no longer holds them."""
        ranks, numbers = self._whole
        self._whole = Nodes(ranks & ~job.whole.ranks, numbers & ~job.whole.numbers)
        self.gave_rest(job)

    def took_rest(self, job: Footprint) -> None:
        """As `took`, without the whole nodes; others may hold the same, which is counted."""
        if not job.rest:
            return
        parent, position, children = self._graph.parent, self._graph.position, self._graph.children
        free, extra, users = self._free, self._extra, self._users
        touched: set[int] = set()
        for v, _, exclusive, _, _ in job.rest:
            n = self._number.get(v)
            if n is not None:
                users[n] = users.get(n, 0) + 1
                self._weigh_idle(n)
            elif exclusive:
                h = parent[v]
                if h in free and not children[v]:
                    bit = 1 << position[v]
                    if free[h] & bit:
                        free[h] ^= bit
                    else:
                        extra[v] = extra.get(v, 0) + 1
                    touched.add(self._node_of[h])
                else:
                    self._block(v, 1, touched)
        for shape in self._shapes.values():
            shape.dirty.update(touched)

    def gave_rest(self, job: Footprint) -> None:
        """As `gave`, without the whole nodes."""
        if not job.rest:
            return
        parent, position, children = self._graph.parent, self._graph.position, self._graph.children
        free, extra, users = self._free, self._extra, self._users
        touched: set[int] = set()
        for v, _, exclusive, _, _ in job.rest:
            n = self._number.get(v)
            if n is not None:
                users[n] -= 1
                self._weigh_idle(n)
            elif exclusive:
                h = parent[v]
                if h in free and not children[v]:
                    held = extra.get(v)
                    if held is None:
                        free[h] |= 1 << position[v]
                    elif held == 1:
                        del extra[v]
                    else:
                        extra[v] = held - 1
                    touched.add(self._node_of[h])
                else:
                    self._block(v, -1, touched)
        for shape in self._shapes.values():
            shape.dirty.update(touched)

    def _block(self, v: int, step: int, touched: set[int]) -> None:
        """A vertex above single resources was taken exclusively, or given back."""
        blocked, children = self._blocked, self._graph.children
        for u in self._graph.preorder(v):
            n = self._number.get(u)
            if n is None and u in self._node_of:
                n = self._node_of[u]
            if n is not None and children[u]:
                blocked[u] = blocked.get(u, 0) + step
                touched.add(n)
                if u in self._number:
                    self._weigh_idle(n)

    def _touch(self, n: int) -> None:
        for shape in self._shapes.values():
            shape.dirty.add(n)

    # Answering

    def match(self, requests: Sequence[Request], allowed: frozenset[int] | None) -> list[Pick] | None:
        """Picks for the requests; empty if there are none; None where this index cannot tell."""
        if len(requests) != 1:
            return None
        top = requests[0]
        count = top.count.low
        if count != top.count.high:
            return None
        inner = top.with_
        if top.type == "node":
            whole = bool(top.exclusive) or bool(self._policy.whole)
            if not inner:
                return self._whole_nodes(count, -1, allowed) if whole else None
            if len(inner) > 1:
                return None
            slot = inner[0]
            parts = self._parts(slot)
            if parts is None:
                return None
            if whole:
                return self._whole_nodes(count, self._shape(parts, slot.count.low).can, allowed)
            return self._match_nodes(parts, slot.count.low, count, allowed)
        if top.type != "slot":
            return None
        if len(inner) == 1 and inner[0].type == "node":
            node = inner[0]
            if node.with_ or node.count.low != 1 or node.count.high != 1:
                return None
            return self._whole_nodes(count, -1, allowed)
        parts = self._parts(top)
        if parts is None:
            return None
        if self._policy.whole:
            return self._nodes_for_slots(parts, count, allowed)
        if self._policy.stops and count > 1:
            return None
        return self._match_slots(parts, count, allowed)

    def _parts(self, slot: Request) -> tuple[tuple[str, int], ...] | None:
        """The types and counts of a slot that this index can serve: single resources, all held by the same vertices."""
        if slot.type != "slot" or slot.count.low != slot.count.high:
            return None
        parts = []
        holding = None
        for part in slot.with_:
            found = self._types.get(part.type)
            if found is None or part.with_ or part.count.low != part.count.high:
                return None
            if holding is None:
                holding = found
            elif holding is not found and holding != found:
                return None
            parts.append((part.type, part.count.low))
        if len(parts) > 1 and len({kind for kind, _ in parts}) != len(parts):
            return None
        return tuple(parts)

    def _whole_nodes(self, count: int, can: int, allowed: frozenset[int] | None) -> list[Pick]:
        """`count` nodes that nobody uses, of those in `can`."""
        bits = self._idle & can & self._mask(allowed, True)
        if bits.bit_count() < count:
            return []
        nodes, size = self._nodes, self._graph.size
        return [Pick(nodes[n], size[nodes[n]], True, True, ()) for n in self._best_ranked(bits, count)]

    def _nodes_for_slots(
        self, parts: tuple[tuple[str, int], ...], count: int, allowed: frozenset[int] | None
    ) -> list[Pick]:
        """As many whole nodes as `count` slots fill."""
        bits = self._idle & self._shape(parts, 1).can & self._mask(allowed, True)
        picks = []
        for n in self._best_ranked(bits, count):
            node = self._nodes[n]
            picks.append(Pick(node, self._graph.size[node], True, True, ()))
            count -= sum(self._fit(parts, h) for h in self._holders[n])
            if count <= 0:
                return picks
        return []

    def _shape(self, parts: tuple[tuple[str, int], ...], per_node: int) -> _Shape:
        key = (parts, per_node)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[key] = _Shape(parts, per_node)
            self._weigh_all(shape)
        elif shape.dirty:
            self._refresh(shape)
        return shape

    def _scored(self, shape: _Shape) -> bool:
        return shape.per_node == 0 and self._policy.order != 0 and not self._policy.node_weight

    def _weigh_all(self, shape: _Shape) -> None:
        scored = self._scored(shape)
        count = len(self._nodes)
        bits = bytearray((count + 7) // 8)
        buckets: dict[int, bytearray] = {}
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
                rank = self._rank[n]
                bits[rank >> 3] |= 1 << (rank & 7)
        shape.buckets = {score: int.from_bytes(b, "little") for score, b in buckets.items()}
        shape.can = int.from_bytes(bits, "little")

    def _refresh(self, shape: _Shape) -> None:
        scored = self._scored(shape)
        for n in shape.dirty:
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
                bit = 1 << self._rank[n]
                if score is None:
                    if shape.can & bit:
                        shape.can ^= bit
                elif not shape.can & bit:
                    shape.can |= bit
        shape.dirty.clear()

    def _score(self, shape: _Shape, n: int) -> int | None:
        """How good the best slot of a node is, or 0 where only whether matters; None where it cannot serve."""
        if self._blocked and self._blocked.get(self._nodes[n]):
            return None
        if shape.per_node:
            count = 0
            for h in self._holders[n]:
                count += self._fit(shape.parts, h)
                if count >= shape.per_node:
                    return 0
            return None
        best: int | None = None
        order = self._policy.order
        if order == 0 or self._policy.node_weight:
            for h in self._holders[n]:
                if self._fit(shape.parts, h):
                    return 0
            return None
        for h in self._holders[n]:
            if self._fit(shape.parts, h):
                score = self._sum(shape.parts, h)
                if best is None or score * order > best * order:
                    best = score
        return best

    def _fit(self, parts: tuple[tuple[str, int], ...], h: int) -> int:
        """How many slots a holder can serve."""
        if self._blocked and self._blocked.get(h):
            return 0
        free, masks = self._free[h], self._masks[h]
        fit = -1
        for kind, count in parts:
            mask = masks.get(kind)
            if mask is None:
                return 0
            n = (free & mask).bit_count() // count
            if not n:
                return 0
            if fit < 0 or n < fit:
                fit = n
        return fit

    def _sum(self, parts: tuple[tuple[str, int], ...], h: int) -> int:
        children, ids = self._graph.children[h], self._graph.id
        return sum(ids[children[i]] + 1 for i in self._best(parts, h))

    def _best(self, parts: tuple[tuple[str, int], ...], h: int) -> list[int]:
        """Positions of the resources of the best slot of a holder that can serve one."""
        free, masks = self._free[h], self._masks[h]
        out = []
        low = self._policy.order < 0
        for kind, count in parts:
            bits = free & masks[kind]
            for _ in range(count):
                if low:
                    bit = bits & -bits
                    out.append(bit.bit_length() - 1)
                    bits ^= bit
                else:
                    i = bits.bit_length() - 1
                    out.append(i)
                    bits ^= 1 << i
        return out

    def _allowed_bits(self, allowed: frozenset[int], ranked: bool) -> int:
        bits = bytearray((len(self._nodes) + 7) // 8)
        for n, node in enumerate(self._nodes):
            if node in allowed:
                i = self._rank[n] if ranked else n
                bits[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(bits, "little")

    def _mask(self, allowed: frozenset[int] | None, ranked: bool) -> int:
        """The nodes that may be looked at: allowed, and not given whole to anybody."""
        taken = self._whole.ranks | self.over.ranks if ranked else self._whole.numbers | self.over.numbers
        if allowed is None:
            return ~taken
        known = self._allowed.get(ranked)
        if known is None or known[0] is not allowed:
            known = self._allowed[ranked] = (allowed, self._allowed_bits(allowed, ranked))
        return known[1] & ~taken

    def _match_slots(
        self, parts: tuple[tuple[str, int], ...], count: int, allowed: frozenset[int] | None
    ) -> list[Pick]:
        """`count` slots, each where it is best."""
        policy = self._policy
        scored = policy.order != 0 and not policy.node_weight
        mask = self._mask(allowed, not scored)
        picks: list[Pick] = []
        undo: list[tuple[int, int]] = []
        for _ in range(count):
            shape = self._shape(parts, 0)
            best = [self._best_scored(shape, mask)] if scored else self._best_ranked(shape.can & mask, 1)
            n = best[0] if best else -1
            if n < 0:
                picks = []
                break
            h = self._best_holder(parts, n)
            positions = self._best(parts, h)
            children = self._graph.children[h]
            picks.extend(Pick(children[i], 1, True, True, ()) for i in positions)
            if count > 1:
                undo.append((h, self._free[h]))
                bits = 0
                for i in positions:
                    bits |= 1 << i
                self._free[h] ^= bits
                self._touch(n)
        for h, bits in reversed(undo):
            self._free[h] = bits
            self._touch(self._node_of[h])
        return picks

    def _best_scored(self, shape: _Shape, mask: int) -> int:
        for score in sorted(shape.buckets, reverse=self._policy.order > 0):
            bits = shape.buckets[score] & mask
            if bits:
                return (bits & -bits).bit_length() - 1
        return -1

    def _best_ranked(self, bits: int, count: int) -> list[int]:
        """The `count` nodes to prefer among a set of ranks, or all if there are fewer."""
        ranks = self._order.first(self._graph.root, bits, count) if self._policy.stops else lowest(bits, count)
        return [self._by_rank[rank] for rank in ranks]

    def _best_holder(self, parts: tuple[tuple[str, int], ...], n: int) -> int:
        holders = self._holders[n]
        if len(holders) == 1:
            return holders[0]
        order = self._policy.order
        if order == 0:
            return next(h for h in self._in_order(self._nodes[n], holders) if self._fit(parts, h))
        fitting = [h for h in holders if self._fit(parts, h)]
        if len(fitting) == 1:
            return fitting[0]
        # Of equal scores the first in the graph's order.
        return max(fitting, key=lambda h: order * self._sum(parts, h))

    def _in_order(self, node: int, holders: list[int]) -> list[int]:
        """Holders in the order in which a search would come to them."""
        if self._graph.parent[holders[0]] == node:
            return [h for h in self._order(node) if h in self._free]
        out: list[int] = []
        stack = [node]
        while stack:
            v = stack.pop()
            if v in self._free:
                out.append(v)
            stack.extend(reversed([c for c in self._order(v) if self._graph.children[c]]))
        return out

    def _match_nodes(
        self, parts: tuple[tuple[str, int], ...], slots: int, count: int, allowed: frozenset[int] | None
    ) -> list[Pick]:
        """`count` nodes with `slots` slots each."""
        shape = self._shape(parts, slots)
        bits = shape.can & self._mask(allowed, True)
        if bits.bit_count() < count:
            return []
        nodes = self._nodes
        return [
            Pick(nodes[n], 1, False, False, self._slots_of(parts, slots, n)) for n in self._best_ranked(bits, count)
        ]

    def _slots_of(self, parts: tuple[tuple[str, int], ...], slots: int, n: int) -> list[Pick]:
        """The best `slots` slots of a node that has them."""
        picks: list[Pick] = []
        undo: list[tuple[int, int]] = []
        for i in range(slots):
            h = self._best_holder(parts, n)
            positions = self._best(parts, h)
            children = self._graph.children[h]
            picks.extend(Pick(children[p], 1, True, True, ()) for p in positions)
            if i + 1 < slots:
                undo.append((h, self._free[h]))
                for p in positions:
                    self._free[h] ^= 1 << p
        for h, free in reversed(undo):
            self._free[h] = free
        return picks
