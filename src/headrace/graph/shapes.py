"""Which nodes can serve a kind of slot, and how well: worked out once for each kind that is asked for, then kept up.

A queue's jobs come in few shapes, so a question is mostly about one that is known, and all there is to look at are the
nodes that changed since it was last asked about.
"""

from __future__ import annotations

from headrace.graph.free import FreeState
from headrace.graph.layout import Parts

_MAX_SHAPES = 64
# How many changes are remembered for shapes that are asked for rarely, before those are weighed anew.
_MAX_CHANGES = 8192


class Shape:
    """One kind of slot: which nodes `can` serve it (by rank), or, if it is `scored`, which serve it how well.

    Scored are slots that are each wherever it is best, under a policy that prefers by the resources themselves:
    `buckets` has the nodes, by number, by the score of their best slot, and `scores` the reverse of it.
    """

    __slots__ = ("buckets", "can", "parts", "per_node", "scored", "scores", "seen", "size")

    def __init__(self, parts: Parts, per_node: int, scored: bool) -> None:
        self.parts = parts
        # 0: each slot for itself, wherever it is best; else so many on one node.
        self.per_node = per_node
        # How many vertices a slot has.
        self.size = sum([count for _, count in parts])
        self.scored = scored
        self.can = 0
        self.scores: list[int | None] = []
        self.buckets: dict[int, int] = {}
        # How many changes of the state are taken into account; -1: too few to catch up.
        self.seen = -1


class Shapes:
    """The shapes that were asked for of a state."""

    def __init__(self, state: FreeState) -> None:
        self._state = state
        self._layout = state.layout
        self._shapes: dict[tuple[Parts, int], Shape] = {}
        # How many changes were dropped from the front of the state's list.
        self._dropped = 0
        policy = state.layout.policy
        self._order = policy.order
        self._by_score = not policy.stops and (not policy.node_weight or bool(policy.by))

    def get(self, parts: Parts, per_node: int) -> Shape:
        """The shape of `per_node` slots of these parts on a node (0: any), as things stand."""
        key = (parts, per_node)
        shape = self._shapes.get(key)
        changes = self._state.changes
        if len(changes) > _MAX_CHANGES:
            self._dropped += len(changes)
            changes.clear()
            for other in self._shapes.values():
                # Nothing tells these what they missed.
                if other.seen < self._dropped:
                    other.seen = -1
        if shape is None:
            if len(self._shapes) >= _MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[key] = Shape(parts, per_node, self._by_score and not per_node)
        if shape.seen < 0:
            self._weigh_all(shape)
        elif shape.seen < self._dropped + len(changes):
            self._refresh(shape, set(changes[shape.seen - self._dropped :]))
        shape.seen = self._dropped + len(changes)
        return shape

    def _weigh_all(self, shape: Shape) -> None:
        count = len(self._layout.nodes)
        if not shape.scored:
            shape.can = self._layout.able(shape.parts, shape.per_node or 1, self._state.free)
            for u in self._state.blocked:
                n = self._layout.number.get(u, self._layout.node_of.get(u))
                if n is not None and not self.can(shape, n):
                    shape.can &= ~(1 << self._layout.rank[n])
            return
        shape.scores = [self._score(shape, n) for n in range(count)]
        buckets: dict[int, list[int]] = {}
        for n, score in enumerate(shape.scores):
            if score is not None:
                buckets.setdefault(score, []).append(n)
        shape.buckets = {score: self._layout.set_of(numbers, False) for score, numbers in buckets.items()}

    def _refresh(self, shape: Shape, changed: set[int]) -> None:
        if not shape.scored:
            rank = self._layout.rank
            for n in changed:
                bit = 1 << rank[n]
                if self.can(shape, n):
                    shape.can |= bit
                elif shape.can & bit:
                    shape.can ^= bit
            return
        for n in changed:
            score, old = self._score(shape, n), shape.scores[n]
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

    def can(self, shape: Shape, n: int) -> bool:
        """Whether a node, by number, can serve a shape as things stand."""
        state, layout = self._state, self._layout
        if state.blocked and state.blocked.get(layout.nodes[n]):
            return False
        wanted = shape.per_node or 1
        for h in layout.holders[n]:
            wanted -= state.fit(shape.parts, h)
            if wanted <= 0:
                return True
        return False

    def _score(self, shape: Shape, n: int) -> int | None:
        """How good the best slot of a node is; None where there is none."""
        state, layout, order = self._state, self._layout, self._order
        if state.blocked and state.blocked.get(layout.nodes[n]):
            return None
        best: int | None = None
        for h in layout.holders[n]:
            if state.blocked and state.blocked.get(h):
                continue
            found = layout.next_slot(shape.parts, h, state.free[h])
            if found is not None and (best is None or found[1] * order > best * order):
                best = found[1]
        if best is not None and layout.grade:
            best += layout.grade[n] * shape.size
        return best
