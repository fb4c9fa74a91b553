"""The nodes that can serve a demand, and their scores, computed at its first request and then updated.

The jobs of a queue have few shapes, so most requests repeat a known one, and only the nodes that changed since then are
evaluated. There are few kinds of nodes, so the first request of a shape evaluates one idle node of each kind and the
nodes in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.sched.graph.free import FreeState
from headrace.sched.graph.layout import Demand

_MAX_SHAPES = 64
# Shapes that have missed more changes than this are evaluated again.
_MAX_CHANGES = 8192
_FEW = 8


class Shape:
    """A demand with the nodes that `can` serve it (by rank), or, if it is `scored`, their scores.

    Demands for one slot at a time are scored under a policy that compares resources, not nodes: `buckets` has the
    nodes, by number, by the score of their best slot.
    """

    __slots__ = ("buckets", "can", "demand", "idle_scores", "scored", "scores", "seen", "size")

    def __init__(self, demand: Demand, scored: bool) -> None:
        self.demand = demand
        # The number of vertices of a slot.
        self.size = len(demand.parts) if demand.units else sum([count for _, count in demand.parts])
        self.scored = scored
        self.can = 0
        # The score of the best slot: of an idle node by kind, of a node in use by its number; None if nothing fits.
        self.idle_scores: list[int | None] = []
        self.scores: dict[int, int | None] = {}
        self.buckets: dict[int, int] = {}
        # The number of changes of the state that are included; -1: the shape must be evaluated again.
        self.seen = -1


class Shapes:
    """The shapes of the demands on a state."""

    def __init__(self, state: FreeState) -> None:
        self._state = state
        self._layout = state.layout
        self._shapes: dict[Demand, Shape] = {}
        # The number of changes that were dropped from the front of the state's list.
        self._dropped = 0
        # The nodes that may be in use; the first `_noted` changes are included.
        self._used: set[int] = set()
        self._noted = 0
        policy = state.layout.policy
        self._order = policy.order
        self._by_score = not policy.stops and (not policy.node_weight or bool(policy.node_property))

    def get(self, demand: Demand) -> Shape:
        """The shape of a demand, with all changes of the state included."""
        shape = self._shapes.get(demand)
        changes = self._state.changes
        if len(changes) > _MAX_CHANGES:
            self._drop_changes()
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

    def changed_since(self, seen: int) -> tuple[Iterable[int], int]:
        """The nodes that may have changed since `seen`, and the number of all changes (the next `seen`).

        `seen` is -1 for a first look, which gets the nodes that may be in use.
        """
        changes = self._state.changes
        end = self._dropped + len(changes)
        if seen >= self._dropped:
            return set(changes[seen - self._dropped :]), end
        if seen < 0:
            self._note_used()
            return self._used, end
        return range(len(self._layout.nodes)), end

    def _drop_changes(self) -> None:
        changes = self._state.changes
        self._note_used()
        self._used = {n for n in self._used if not self._state.is_idle(n)}
        self._dropped += len(changes)
        changes.clear()
        for other in self._shapes.values():
            # The dropped changes are lost to these shapes.
            if other.seen < self._dropped:
                other.seen = -1

    def _note_used(self) -> None:
        """Add the nodes of all changes to `_used`."""
        changes = self._state.changes
        self._used.update(changes[self._noted - self._dropped :])
        self._noted = self._dropped + len(changes)

    def _weigh_all(self, shape: Shape) -> None:
        """Evaluate one node of each kind as if it were idle, and then the nodes in use."""
        layout, demand = self._layout, shape.demand
        if shape.scored:
            shape.scores.clear()
            shape.buckets.clear()
            shape.idle_scores = [
                self._score(shape, kind.example, layout.every, layout.sizes, {}, None) for kind in layout.node_kinds
            ]
            for score, kind in zip(shape.idle_scores, layout.node_kinds, strict=True):
                if score is not None:
                    shape.buckets[score] = shape.buckets.get(score, 0) | kind.number_bits
        else:
            shape.can = 0
            for kind in layout.node_kinds:
                if layout.serves(demand, kind.example, layout.every, layout.sizes):
                    shape.can |= kind.rank_bits
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
        # For a few nodes, a table of scores costs more than it saves.
        known: dict[tuple[int, ...], int | None] | None = {} if len(changed) > _FEW else None
        for n in changed:
            score = self._score(shape, n, state.free, state.room, state.blocked, known)
            old = shape.scores[n] if n in shape.scores else shape.idle_scores[layout.node_kind[n]]
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
        room: Mapping[int, int],
        blocked: Mapping[int, int],
        known: dict[tuple[int, ...], int | None] | None,
    ) -> int | None:
        """The score of the best slot of a node; None for no slot.

        `known` caches the scores of holders, for equal holders.
        """
        layout, order, parts = self._layout, self._order, shape.demand.parts
        if blocked and blocked.get(layout.nodes[n]):
            return None
        if shape.demand.units:
            return layout.score_of_units(parts, n) if layout.fit_units(parts, n, room) else None
        best: int | None = None
        for h in layout.holders[n]:
            if blocked and blocked.get(h):
                continue
            if known is None:
                found = layout.next_slot(parts, h, free[h])
                score = None if found is None else found[1]
            else:
                # Most holders are alike. A holder without `shift` is like no other.
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
