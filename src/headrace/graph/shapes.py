"""Which nodes can serve a demand, and how well: worked out once for each that is asked for, then kept up.

A queue's jobs come in few shapes, so a question is mostly about one that is known, and all there is to look at are the
nodes that changed since it was last asked about. Nodes come in few kinds, so the first question about a shape looks at
one idle node of each kind, and at the nodes that are used.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.graph.free import FreeState
from headrace.graph.layout import Demand

_MAX_SHAPES = 64
# How many changes are remembered for shapes that are asked for rarely, before those are weighed anew.
_MAX_CHANGES = 8192
_FEW = 8


class Shape:
    """One kind of demand: which nodes `can` serve it (by rank), or, if it is `scored`, which serve it how well.

    Scored are slots that are each wherever it is best, under a policy that prefers by the resources themselves:
    `buckets` has the nodes, by number, by the score of their best slot.
    """

    __slots__ = ("buckets", "can", "demand", "idle_scores", "scored", "scores", "seen", "size")

    def __init__(self, demand: Demand, scored: bool) -> None:
        self.demand = demand
        # How many vertices a slot has.
        self.size = sum([count for _, count in demand.parts])
        self.scored = scored
        self.can = 0
        # Best scores: of unused nodes by kind of node, of used ones by node as they are looked at.
        self.idle_scores: list[int | None] = []
        self.scores: dict[int, int | None] = {}
        self.buckets: dict[int, int] = {}
        # How many changes of the state are taken into account; -1: too few to catch up.
        self.seen = -1


class Shapes:
    """The shapes that were asked for of a state."""

    def __init__(self, state: FreeState) -> None:
        self._state = state
        self._layout = state.layout
        self._shapes: dict[Demand, Shape] = {}
        # How many changes were dropped from the front of the state's list.
        self._dropped = 0
        # The nodes that may be other than idle, as far as `_noted` changes tell.
        self._used: set[int] = set()
        self._noted = 0
        policy = state.layout.policy
        self._order = policy.order
        self._by_score = not policy.stops and (not policy.node_weight or bool(policy.by))

    def get(self, demand: Demand) -> Shape:
        """The shape of a demand, as things stand."""
        shape = self._shapes.get(demand)
        changes = self._state.changes
        if len(changes) > _MAX_CHANGES:
            self._note_used()
            self._used = {n for n in self._used if not self._state.is_idle(n)}
            self._dropped += len(changes)
            changes.clear()
            for other in self._shapes.values():
                # Nothing tells these what they missed.
                if other.seen < self._dropped:
                    other.seen = -1
        if shape is None:
            if len(self._shapes) >= _MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[demand] = Shape(demand, self._by_score and not demand.slots)
        if shape.seen < 0:
            self._weigh_all(shape)
        elif shape.seen < self._dropped + len(changes):
            self._refresh(shape, set(changes[shape.seen - self._dropped :]))
        shape.seen = self._dropped + len(changes)
        return shape

    def _note_used(self) -> None:
        """Know of every change which node it was of."""
        changes = self._state.changes
        self._used.update(changes[self._noted - self._dropped :])
        self._noted = self._dropped + len(changes)

    def _weigh_all(self, shape: Shape) -> None:
        """Weigh one node of each kind as if nobody used any, and then those that are used."""
        layout, demand = self._layout, shape.demand
        if shape.scored:
            shape.scores.clear()
            shape.buckets.clear()
            shape.idle_scores = [self._score(shape, kind.example, layout.every, {}, None) for kind in layout.kinds]
            for score, kind in zip(shape.idle_scores, layout.kinds, strict=True):
                if score is not None:
                    shape.buckets[score] = shape.buckets.get(score, 0) | kind.numbers
        else:
            shape.can = 0
            for kind in layout.kinds:
                if layout.serves(demand, kind.example, layout.every):
                    shape.can |= kind.ranks
        self._note_used()
        self._refresh(shape, self._used)

    def _refresh(self, shape: Shape, changed: set[int]) -> None:
        layout, state = self._layout, self._state
        if not shape.scored:
            rank = layout.rank
            for n in changed:
                bit = 1 << rank[n]
                if state.serves(shape.demand, n):
                    shape.can |= bit
                elif shape.can & bit:
                    shape.can ^= bit
            return
        # Few nodes are not worth remembering what they have in common.
        known: dict[tuple[int, ...], int | None] | None = {} if len(changed) > _FEW else None
        for n in changed:
            score = self._score(shape, n, state.free, state.blocked, known)
            old = shape.scores[n] if n in shape.scores else shape.idle_scores[layout.kind_of[n]]
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

    def _score(
        self,
        shape: Shape,
        n: int,
        free: Mapping[int, int],
        blocked: Mapping[int, int],
        known: dict[tuple[int, ...], int | None] | None,
    ) -> int | None:
        """How good the best slot of a node is; None where there is none. `known` are scores of holders that were looked
        at before.
        """
        layout, order, parts = self._layout, self._order, shape.demand.parts
        if blocked and blocked.get(layout.nodes[n]):
            return None
        best: int | None = None
        for h in layout.holders[n]:
            if blocked and blocked.get(h):
                continue
            if known is None:
                found = layout.next_slot(parts, h, free[h])
                score = None if found is None else found[1]
            else:
                # Most holders are alike; one without a map of shifts is like no other.
                shift = layout.shift.get(h)
                key = id(layout.masks[h]), -1 - h if shift is None else id(shift), free[h]
                if key in known:
                    score = known[key]
                else:
                    found = layout.next_slot(parts, h, free[h])
                    score = known[key] = None if found is None else found[1]
            if score is not None and (best is None or score * order > best * order):
                best = score
        if best is not None and layout.grade:
            best += layout.grade[n] * shape.size
        return best
