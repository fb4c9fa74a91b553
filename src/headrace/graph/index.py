"""Answers from what is free: the common requests, without a search.

The common requests are slots of cores and GPUs, alone or on one node, and whole nodes: they make up nearly all jobs of
a busy system. A match is a few integer operations on sets of nodes, whatever their number. The answers are those of the
matcher: which of the two found a job cannot be seen, and requests or graphs out of the ordinary (`None`) go to the
matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import repeat
from operator import or_

from headrace.graph.candidates import ChildOrder, lowest
from headrace.graph.free import FreeState, Nodes, Shape
from headrace.graph.matcher import Pick
from headrace.graph.model import Graph
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request

_EVERY_NODE = Nodes(-1, -1)


class FreeIndex:
    """The answering side of a `FreeState`, for one policy and its order among children."""

    def __init__(self, graph: Graph, policy: Policy, order: ChildOrder) -> None:
        self.state = FreeState(graph, policy)
        self._graph = graph
        self._policy = policy
        self._order = order
        self._allowed: dict[bool, tuple[frozenset[int], int]] = {}

    def forget(self) -> None:
        """The graph or its status changed: build anew when next asked."""
        self.state.forget()
        self._allowed.clear()

    def match(self, requests: Sequence[Request], allowed: frozenset[int] | None) -> list[Pick] | None:
        """Picks for the requests; empty if there are none; None where this index cannot tell."""
        whole = self._whole(requests)
        if whole is not None:
            count, inner, slots = whole
            can = self.state.shape(inner, slots).can if inner else -1
            return self._whole_nodes(count, self.state.idle & can & self._mask(allowed, True))
        if len(requests) != 1:
            return None
        top = requests[0]
        count = top.count.low
        if count != top.count.high:
            return None
        if top.type == "node":
            if len(top.with_) != 1 or top.exclusive or self._policy.whole:
                return None
            slot = top.with_[0]
            parts = self._parts(slot)
            return self._match_nodes(parts, slot.count.low, count, allowed) if parts else None
        parts = self._parts(top)
        if not parts:
            return None
        if self._policy.whole:
            return self._nodes_for_slots(parts, count, allowed)
        if self._policy.stops and count > 1:
            return None
        return self._match_slots(parts, count, allowed)

    def candidates(self, requests: Sequence[Request]) -> Nodes:
        """No other nodes than these will be looked at for the requests, as things stand; every node if in doubt."""
        top = requests[0]
        slot = top.with_[0] if top.type == "node" and top.with_ else top
        parts = self._parts(slot) if len(requests) == 1 else None
        if not parts:
            return _EVERY_NODE
        per_node = slot.count.low if top.type == "node" else 1 if self._policy.whole else 0
        shape = self.state.shape(parts, per_node)
        if shape.buckets or shape.scores:
            return Nodes(0, reduce(or_, shape.buckets.values(), 0))
        return Nodes(shape.can, 0)

    def match_untouched(
        self, requests: Sequence[Request], allowed: frozenset[int] | None, touched: Callable[[], int]
    ) -> list[Pick] | None:
        """As `match`, for whole nodes alone (else None), where all that is used is the nodes of `touched`."""
        whole = self._whole(requests)
        if whole is None:
            return None
        count, parts, slots = whole
        bits = self.state.sound & ~touched()
        if bits.bit_count() < count:
            return []
        if parts:
            bits &= self.state.can_unused(parts, slots)
        if allowed is not None:
            bits &= self._allowed_ranks(allowed, True)
        return self._whole_nodes(count, bits)

    def _whole(self, requests: Sequence[Request]) -> tuple[int, tuple[tuple[str, int], ...], int] | None:
        """How many whole nodes are asked for, and what slots each must have (none: no matter), if that is all."""
        top = requests[0]
        count, inner = top.count.low, top.with_
        if len(requests) > 1 or count != top.count.high:
            return None
        if top.type == "slot":
            if len(inner) != 1 or inner[0].type != "node":
                return None
            node = inner[0]
            return None if node.with_ or node.count.low != 1 or node.count.high != 1 else (count, (), 0)
        if top.type != "node" or not (top.exclusive or self._policy.whole):
            return None
        if not inner:
            return count, (), 0
        parts = self._parts(inner[0]) if len(inner) == 1 else None
        return (count, parts, inner[0].count.low) if parts else None

    def _parts(self, slot: Request) -> tuple[tuple[str, int], ...] | None:
        """The types and counts of a slot that this index can serve: single resources, all held by the same vertices."""
        if slot.type != "slot" or slot.count.low != slot.count.high:
            return None
        parts = []
        holding = None
        for part in slot.with_:
            found = self.state.types.get(part.type)
            if found is None or part.with_ or part.count.low != part.count.high:
                return None
            if holding is None:
                holding = found
            elif holding is not found:
                return None
            parts.append((part.type, part.count.low))
        if len(parts) > 1 and len({kind for kind, _ in parts}) != len(parts):
            return None
        return tuple(parts)

    def _whole_nodes(self, count: int, bits: int) -> list[Pick]:
        """`count` of a set of nodes by preference."""
        if bits.bit_count() < count:
            return []
        nodes, size = self.state.nodes, self._graph.size
        return [Pick(nodes[n], size[nodes[n]], True, True, ()) for n in self._best_ranked(bits, count)]

    def _nodes_for_slots(
        self, parts: tuple[tuple[str, int], ...], count: int, allowed: frozenset[int] | None
    ) -> list[Pick]:
        """As many whole nodes as `count` slots fill."""
        bits = self.state.idle & self.state.shape(parts, 1).can & self._mask(allowed, True)
        picks = []
        for n in self._best_ranked(bits, count):
            node = self.state.nodes[n]
            picks.append(Pick(node, self._graph.size[node], True, True, ()))
            count -= sum(self.state.fit(parts, h) for h in self.state.holders[n])
            if count <= 0:
                return picks
        return []

    def _allowed_bits(self, allowed: frozenset[int], ranked: bool) -> int:
        bits = bytearray((len(self.state.nodes) + 7) // 8)
        for n, node in enumerate(self.state.nodes):
            if node in allowed:
                i = self.state.rank[n] if ranked else n
                bits[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(bits, "little")

    def _mask(self, allowed: frozenset[int] | None, ranked: bool) -> int:
        """The nodes that may be looked at: allowed, and not given whole to anybody."""
        taken = (
            self.state.whole.ranks | self.state.over.ranks
            if ranked
            else self.state.whole.numbers | self.state.over.numbers
        )
        return ~taken if allowed is None else self._allowed_ranks(allowed, ranked) & ~taken

    def _allowed_ranks(self, allowed: frozenset[int], ranked: bool) -> int:
        known = self._allowed.get(ranked)
        if known is None or known[0] is not allowed:
            known = self._allowed[ranked] = (allowed, self._allowed_bits(allowed, ranked))
        return known[1]

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
            shape = self.state.shape(parts, 0)
            best = [self._best_scored(shape, mask)] if scored else self._best_ranked(shape.can & mask, 1)
            n = best[0] if best else -1
            if n < 0:
                picks = []
                break
            h, positions = self._best_slot(parts, n)
            self._pick(h, positions, picks)
            if count > 1:
                undo.append((h, self.state.free[h]))
                bits = 0
                for i in positions:
                    bits |= 1 << i
                self.state.free[h] ^= bits
                self.state.touch(n)
        for h, bits in reversed(undo):
            self.state.free[h] = bits
            self.state.touch(self.state.node_of[h])
        return picks

    def _best_scored(self, shape: Shape, mask: int) -> int:
        for score in sorted(shape.buckets, reverse=self._policy.order > 0):
            bits = shape.buckets[score] & mask
            if bits:
                return (bits & -bits).bit_length() - 1
        return -1

    def _best_ranked(self, bits: int, count: int) -> list[int]:
        """The `count` nodes to prefer among a set of ranks, or all if there are fewer."""
        ranks = self._order.first(self._graph.root, bits, count) if self._policy.stops else lowest(bits, count)
        return [self.state.by_rank[rank] for rank in ranks]

    def _pick(self, h: int, positions: Sequence[int], picks: list[Pick]) -> None:
        """Single resources of a holder, each a pick of its own; a large job has thousands, so no frame for each."""
        children = self._graph.children[h]
        single = zip([children[i] for i in positions], repeat(1), repeat(True), repeat(True), repeat(()))
        picks.extend(map(tuple.__new__, repeat(Pick), single))

    def _best_slot(self, parts: tuple[tuple[str, int], ...], n: int) -> tuple[int, list[int]]:
        """The holder in a node to take a slot from, and the places of what is taken."""
        state = self.state
        holders = state.holders[n]
        order = self._policy.order
        if len(holders) > 1:
            if order == 0:
                holders = self._in_order(state.nodes[n], holders)
                holders = [next(h for h in holders if state.fit(parts, h))]
            else:
                holders = [h for h in holders if state.fit(parts, h)]
        found: tuple[int, list[int]] = holders[0], []
        if len(holders) == 1:
            return holders[0], state.best(parts, holders[0])
        children, ids = self._graph.children, self._graph.id
        most = None
        # Of equal scores the first in the graph's order.
        for h in holders:
            positions = state.best(parts, h)
            kids = children[h]
            score = order * sum([ids[kids[i]] for i in positions])
            if most is None or score > most:
                most, found = score, (h, positions)
        return found

    def _in_order(self, node: int, holders: list[int]) -> list[int]:
        """Holders in the order in which a search would come to them."""
        if all([self._graph.parent[h] == node for h in holders]):
            return self._order.sorted(node, holders)
        out: list[int] = []
        stack = [node]
        while stack:
            v = stack.pop()
            if v in self.state.free:
                out.append(v)
            stack.extend(reversed([c for c in self._order(v) if self._graph.children[c]]))
        return out

    def _match_nodes(
        self, parts: tuple[tuple[str, int], ...], slots: int, count: int, allowed: frozenset[int] | None
    ) -> list[Pick]:
        """`count` nodes with `slots` slots each."""
        shape = self.state.shape(parts, slots)
        bits = shape.can & self._mask(allowed, True)
        if bits.bit_count() < count:
            return []
        nodes = self.state.nodes
        return [
            Pick(nodes[n], 1, False, False, self._slots_of(parts, slots, n)) for n in self._best_ranked(bits, count)
        ]

    def _slots_of(self, parts: tuple[tuple[str, int], ...], slots: int, n: int) -> list[Pick]:
        """The best `slots` slots of a node that has them."""
        picks: list[Pick] = []
        undo: list[tuple[int, int]] = []
        for i in range(slots):
            h, positions = self._best_slot(parts, n)
            self._pick(h, positions, picks)
            if i + 1 < slots:
                undo.append((h, self.state.free[h]))
                for p in positions:
                    self.state.free[h] ^= 1 << p
        for h, free in reversed(undo):
            self.state.free[h] = free
        return picks
