"""Free resources by node, so that the common requests are answered without a search.

The common requests are slots of cores and GPUs, alone or on one node: they make up nearly all jobs of a busy system. For
them a vertex that directly holds cores and GPUs keeps the free ones as bits, and for each shape of slot that is being
asked for there is a bit set over all nodes of those that can still serve it. A match is then a few integer operations,
whatever the number of nodes. The answers are those of the matcher: which of the two found a job cannot be seen, and
requests or graphs out of the ordinary (`None`) go to the matcher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.graph.candidates import ChildOrder
from headrace.graph.matcher import Pick
from headrace.graph.model import Graph
from headrace.graph.planner import Planner
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request
from headrace.graph.selection import Chosen

_MAX_SHAPES = 16


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
        self.dirty: set[int] | None = None


class FreeIndex:
    """Free cores, GPUs and the like of a graph under one policy. Bit i of a holder is its child at position i."""

    def __init__(self, graph: Graph, policy: Policy, order: ChildOrder) -> None:
        self._graph = graph
        self._policy = policy
        self._order = order
        self._ready = False
        self._usable = not policy.whole and not policy.interval and not policy.classes
        self._reset()

    def _reset(self) -> None:
        self._types: dict[str, frozenset[int]] = {}
        self._nodes: list[int] = []
        self._holders: list[list[int]] = []
        self._node_of: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._masks: dict[int, dict[str, int]] = {}
        self._blocked: dict[int, int] = {}
        self._rank: list[int] = []
        self._by_rank: list[int] = []
        self._shapes: dict[tuple[tuple[tuple[str, int], ...], int], _Shape] = {}
        self._allowed: tuple[frozenset[int], int] | None = None

    def forget(self) -> None:
        """The graph or its status changed: build anew when next asked."""
        self._ready = False
        self._reset()

    # Building

    def _build(self, plans: Mapping[int, Planner]) -> None:
        self._ready = True
        graph = self._graph
        types, parent, size, children, ids, up = (
            graph.type,
            graph.parent,
            graph.size,
            graph.children,
            graph.id,
            graph.up,
        )
        if not self._usable:
            return
        root = graph.root
        nodes = self._nodes = [v for v in graph.preorder(root) if types[v] == "node"]
        if self._policy.stops and any(parent[v] != root for v in nodes):
            self._usable = False
            return
        numbers = {graph.id[v] for v in nodes}
        if self._policy.node_weight and (len(numbers) < len(nodes) or max(ids, default=0) >= self._policy.node_weight):
            # Scores of different nodes could meet.
            self._usable = len(nodes) > 0 and len(numbers) == len(nodes) and self._inner_ids_small()
            if not self._usable:
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
                    plan = plans.get(child)
                    if up[child] and (plan is None or plan.idle):
                        free |= bit
                stack.extend(reversed(inner))
                if masks:
                    holders.append(h)
                    self._free[h] = free
                    self._masks[h] = shapes.setdefault(tuple(masks.items()), masks)
                    self._node_of[h] = n
                    for kind in masks:
                        holding.setdefault(kind, set()).add(h)
                plan = plans.get(h)
                if not up[h] or (plan is not None and not plan.idle):
                    self._blocked[h] = 1
            self._holders.append(holders)
            for above in graph.ancestors(node):
                plan = plans.get(above)
                if not up[above] or (plan is not None and not plan.idle):
                    self._blocked[node] = self._blocked.get(node, 0) + 1
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
        for rank, n in enumerate(by_rank):
            self._rank[n] = rank

    # Keeping current

    def took(self, order: Sequence[Chosen]) -> None:
        if not self._ready or not self._usable:
            return
        parent, position = self._graph.parent, self._graph.position
        free = self._free
        for item in order:
            if not item.exclusive:
                continue
            v = item.vertex
            h = parent[v]
            if h in free and not self._graph.children[v]:
                free[h] &= ~(1 << position[v])
                self._touch(self._node_of[h])
            else:
                self._block(v, 1)

    def gave(self, order: Sequence[Chosen], plans: Mapping[int, Planner]) -> None:
        if not self._ready or not self._usable:
            return
        graph = self._graph
        free = self._free
        for item in order:
            if not item.exclusive:
                continue
            v = item.vertex
            h = graph.parent[v]
            if h in free and not graph.children[v]:
                plan = plans.get(v)
                if plan is None or (plan.idle and graph.up[v]):
                    free[h] |= 1 << graph.position[v]
                    self._touch(self._node_of[h])
            else:
                self._block(v, -1)

    def _block(self, v: int, step: int) -> None:
        """A vertex above single resources was taken exclusively, or given back."""
        graph = self._graph
        if graph.type[v] == "node" or v in self._free:
            self._blocked[v] = self._blocked.get(v, 0) + step
            for h in (v,) if v in self._free else ():
                self._touch(self._node_of[h])
            if graph.type[v] == "node":
                node = self._node_number(v)
                self._touch(node)
            return
        for inner in graph.preorder(v)[1:]:
            if graph.type[inner] == "node" or inner in self._free:
                self._blocked[inner] = self._blocked.get(inner, 0) + step
                if inner in self._free:
                    self._touch(self._node_of[inner])
                else:
                    self._touch(self._node_number(inner))

    def _node_number(self, node: int) -> int:
        stack = [node]
        while stack:
            v = stack.pop()
            if v in self._node_of:
                return self._node_of[v]
            stack.extend(self._graph.children[v])
        return self._nodes.index(node)

    def _touch(self, n: int) -> None:
        for shape in self._shapes.values():
            if shape.dirty is not None:
                shape.dirty.add(n)

    # Answering

    def match(
        self, requests: Sequence[Request], allowed: frozenset[int] | None, plans: Mapping[int, Planner]
    ) -> list[Pick] | None:
        """Picks for the requests; None where this index cannot tell, which does not mean that there are none."""
        if not self._usable or len(requests) != 1:
            return None
        top = requests[0]
        slot = top
        if top.type == "node" and len(top.with_) == 1 and not top.exclusive:
            slot = top.with_[0]
        if slot.type != "slot" or slot.count.low != slot.count.high or top.count.low != top.count.high:
            return None
        if not self._ready:
            self._build(plans)
            if not self._usable:
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
        key = tuple(parts)
        if len({kind for kind, _ in key}) != len(key):
            return None
        if slot is top:
            if self._policy.stops and slot.count.low > 1:
                return None
            return self._match_slots(key, slot.count.low, allowed)
        return self._match_nodes(key, slot.count.low, top.count.low, allowed)

    def _shape(self, parts: tuple[tuple[str, int], ...], per_node: int) -> _Shape:
        key = (parts, per_node)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[key] = _Shape(parts, per_node)
        self._refresh(shape)
        return shape

    def _refresh(self, shape: _Shape) -> None:
        scored = shape.per_node == 0 and self._policy.order != 0 and not self._policy.node_weight
        if shape.dirty is None:
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
            shape.dirty = set()
            return
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
        if allowed is None:
            return -1
        if self._allowed is None or self._allowed[0] is not allowed:
            self._allowed = (allowed, self._allowed_bits(allowed, ranked))
        return self._allowed[1]

    def _match_slots(
        self, parts: tuple[tuple[str, int], ...], count: int, allowed: frozenset[int] | None
    ) -> list[Pick] | None:
        """`count` slots, each where it is best."""
        policy = self._policy
        scored = policy.order != 0 and not policy.node_weight
        mask = self._mask(allowed, not scored)
        picks: list[Pick] = []
        undo: list[tuple[int, int]] = []
        for _ in range(count):
            shape = self._shape(parts, 0)
            n = self._best_scored(shape, mask) if scored else self._best_ranked(shape.can & mask)
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
        return picks or None

    def _best_scored(self, shape: _Shape, mask: int) -> int:
        for score in sorted(shape.buckets, reverse=self._policy.order > 0):
            bits = shape.buckets[score] & mask
            if bits:
                return (bits & -bits).bit_length() - 1
        return -1

    def _best_ranked(self, bits: int) -> int:
        if not bits:
            return -1
        if self._policy.stops:
            return self._by_rank[self._order.first(self._graph.root, bits)]
        return self._by_rank[(bits & -bits).bit_length() - 1]

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
    ) -> list[Pick] | None:
        """`count` nodes with `slots` slots each."""
        shape = self._shape(parts, slots)
        bits = shape.can & self._mask(allowed, True)
        if bits.bit_count() < count:
            return None
        picks = []
        for _ in range(count):
            n = self._best_ranked(bits)
            bits ^= 1 << self._rank[n]
            below = self._slots_of(parts, slots, n)
            picks.append(Pick(self._nodes[n], 1, False, False, below))
        return picks

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
