"""Matches of the common requests from the index of free resources, without a search.

The common requests are slots of cores and GPUs, or of units of pools, alone or on one node, and whole nodes: nearly all
jobs of a busy system make them. Such a match takes a few integer operations on sets of nodes, however many nodes there
are. Its result equals the matcher's, so that a job's resources do not depend on which of the two chose them. The index
returns None for other requests; the matcher serves those, and graphs for which there is no index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import NamedTuple

from headrace.sched.graph.bitsets import lowest_numbers, numbers
from headrace.sched.graph.candidates import ChildOrder
from headrace.sched.graph.demands import Demands
from headrace.sched.graph.free import NO_NODES, FreeState
from headrace.sched.graph.layout import Demand, Layout, Parts
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.model import Graph
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.request import Request
from headrace.sched.graph.reservations import Window
from headrace.sched.graph.selection import Run
from headrace.sched.graph.shapes import Shape, Shapes
from headrace.sched.graph.slots import Slots, run_of_places, run_of_scores
from headrace.sched.graph.use_order import UseOrder


class Answer(NamedTuple):
    """The resources to take: vertices, and single resources by their holder."""

    picks: Sequence[Pick]
    runs: Mapping[int, Run]


NOTHING = Answer((), {})


def index_of(graph: Graph, policy: Policy, order: ChildOrder) -> FreeIndex | None:
    """The index of a graph as it is now; None if a search could choose other resources."""
    if not graph.plain:
        return None
    layout = Layout(graph, policy)
    return FreeIndex(layout, order) if layout.usable else None


class FreeIndex:
    """Matches requests against a `FreeState`, with a usable layout and the order among children.

    It is valid as long as the graph has the same vertices.
    """

    def __init__(self, layout: Layout, order: ChildOrder) -> None:
        self.layout = layout
        self.state = FreeState(layout)
        self._shapes = Shapes(self.state)
        self._use = UseOrder(self.state, self._shapes) if layout.policy.by_use else None
        self._demands = Demands(layout)
        self._graph = layout.graph
        self._policy = layout.policy
        self._order = order
        self._slots = Slots(self.state, order)
        # The ids of the nodes by rank, and whether they are consecutive; only `locality` needs them.
        ids = [layout.graph.id[layout.nodes[n]] for n in layout.by_rank] if layout.policy.close else []
        self._ids = ids
        self._dense = bool(ids) and ids == list(range(ids[0], ids[0] + len(ids)))
        self._allowed: dict[bool, tuple[frozenset[int], int]] = {}
        # The span of time of the request; None if no reservation falls into it.
        self._window: Window | None = None

    def match(
        self, requests: Sequence[Request], allowed: frozenset[int] | None, window: Window | None = None
    ) -> Answer | None:
        """The resources for the requests; NOTHING if they do not fit; None if the index cannot serve them.

        With a window, requests for whole nodes get None; `match_untouched` serves them.
        """
        self._window = window
        whole = self._demands.whole(requests) if window is None else None
        if whole is not None:
            can = self._shapes.get(whole.inside).can if whole.inside is not None else -1
            return self._whole_nodes(whole.amount, self.state.idle & can & self._mask(allowed, True))
        if len(requests) != 1:
            return None
        top = requests[0]
        count = top.count.low
        if count != top.count.high:
            return None
        if top.type == "node":
            if top.exclusive or self._policy.whole:
                return None
            demand = self._demands.of_node(top.with_)
            if demand is None:
                return None
            if demand.alone and (window is not None or (self._policy.close and demand.holders > 1)):
                # The window knows the single resources of reservations, but not the holders that they use. And the
                # closest slots are not the slots of the closest holders.
                return None
            return self._match_nodes(demand, count, allowed)
        parts = self._demands.parts(top)
        if not parts:
            units = self._demands.units(top)
            return self._match_units(units, count, allowed) if units else None
        if self._policy.whole:
            return self._nodes_for_slots(parts, count, allowed)
        return self._match_slots(parts, count, allowed)

    def match_untouched(
        self, requests: Sequence[Request], allowed: frozenset[int] | None, touched: Callable[[], int]
    ) -> Answer | None:
        """As `match`, only for whole nodes (None for other requests), taken from outside `touched`."""
        whole = self._demands.whole(requests)
        if whole is None:
            return None
        bits = self.state.sound & ~touched()
        if bits.bit_count() < whole.amount:
            return NOTHING
        if whole.inside is not None:
            bits &= self.state.able_unused(whole.inside)
        if allowed is not None:
            bits &= self._allowed_ranks(allowed, True)
        return self._whole_nodes(whole.amount, bits)

    def _whole_nodes(self, count: int, bits: int) -> Answer:
        """Answer with the `count` preferred nodes of a set of ranks."""
        if bits.bit_count() < count:
            return NOTHING
        nodes, size = self.layout.nodes, self._graph.size
        return Answer([Pick(nodes[n], size[nodes[n]], True, True, ()) for n in self._best_ranked(bits, count)], {})

    def _nodes_for_slots(self, parts: Parts, count: int, allowed: frozenset[int] | None) -> Answer:
        """Answer with as many whole nodes as `count` slots need."""
        shape = self._shapes.get(self._demands.of_slots(parts, 1))
        bits = self.state.idle & shape.can & self._mask(allowed, True)
        if self._window is not None:
            bits &= ~self._window.touched()
        ranked = self._able(shape, bits)
        picks = []
        if self._policy.stops:
            found = self._slots.until_enough(parts, (h for n in ranked for h in self._slots.in_order(n)), count)
            chosen = dict.fromkeys(self.layout.nodes[self.layout.node_of[h]] for h in found)
            return Answer([Pick(v, self._graph.size[v], True, True, ()) for v in chosen], {}) if found else NOTHING
        for n in ranked:
            node = self.layout.nodes[n]
            picks.append(Pick(node, self._graph.size[node], True, True, ()))
            count -= sum([self.state.fit(parts, h) for h in self.layout.holders[n]])
            if count <= 0:
                return Answer(picks, {})
        return NOTHING

    def _match_units(self, parts: Parts, count: int, allowed: frozenset[int] | None) -> Answer:
        """Answer with `count` slots of units of pools, or with whole nodes if the policy gives whole nodes."""
        picks: list[Pick] = []
        for n, slots in self._share_of_units(parts, count, allowed):
            node = self.layout.nodes[n]
            if self._policy.whole:
                picks.append(Pick(node, self._graph.size[node], True, True, ()))
            else:
                picks += self._unit_picks(parts, n, slots)
        return Answer(picks, {}) if picks else NOTHING

    def _share_of_units(self, parts: Parts, count: int, allowed: frozenset[int] | None) -> list[tuple[int, int]]:
        """The nodes of the `count` best slots of units, each with its number of slots; empty for too few.

        Nodes are given by number. All slots of a node have the same score.
        """
        policy, room = self._policy, self.state.room
        shape = self._shapes.get(self._demands.of_slots(parts, 1 if policy.whole else 0, True))
        mask = self._mask(allowed, not shape.scored)
        if policy.whole:
            mask &= self.state.idle if self._window is None else self.state.idle & ~self._window.touched()
        closest_ones = policy.close and count > 1
        found: list[tuple[int, int]] = []
        left = count
        for n in self._able(shape, shape.can & mask) if not shape.scored else self._by_score(shape, mask):
            slots = self.layout.fit_units(parts, n, room)
            found.append((n, slots))
            left -= slots
            if left <= 0 and not closest_ones:
                break
        if left > 0:
            return []
        if policy.stops and len(found) > 1:
            # The search ends with the node that completes the count, and takes the best of those found by then.
            found.sort(key=lambda share: self.layout.score_of_units(parts, share[0]), reverse=policy.order > 0)
        elif closest_ones:
            found = self._closest_share(parts, found, count)
        taken: list[tuple[int, int]] = []
        for n, slots in found:
            taken.append((n, min(slots, count)))
            count -= slots
            if count <= 0:
                break
        return taken

    def _closest_share(self, parts: Parts, found: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
        """The nodes from the start of the closest run of `count` slots by score.

        `found` are nodes and their slots, by rising score.
        """
        amounts: dict[int, int] = {}
        for n, slots in found:
            score = self.layout.score_of_units(parts, n)
            amounts[score] = amounts.get(score, 0) + slots
        ends = run_of_scores(list(amounts.items()), count)
        return [share for share in found if ends and self.layout.score_of_units(parts, share[0]) >= ends[0]]

    def _by_score(self, shape: Shape, mask: int) -> Iterator[int]:
        """The nodes, by number, that serve a scored shape: best score first, ties in the graph's order."""
        window = self._window
        for score in sorted(shape.buckets, reverse=self._policy.order > 0):
            for n in numbers(shape.buckets[score] & mask):
                if window is None or (window.subtract(n) and self.state.serves(shape.demand, n)):
                    yield n

    def _unit_picks(self, parts: Parts, n: int, slots: int) -> list[Pick]:
        """The units of a node's pools for a number of slots."""
        pools = self.layout.pools
        return [Pick(pools[kind][n], units * slots, True, False, ()) for kind, units in parts]

    def _mask(self, allowed: frozenset[int] | None, ranked: bool) -> int:
        """The nodes not excluded by the constraint or by whole allocations, as bits by rank or by number."""
        whole, over = self.state.whole, NO_NODES if self._window is None else self._window.over
        taken = whole.ranks | over.ranks if ranked else whole.numbers | over.numbers
        return ~taken if allowed is None else self._allowed_ranks(allowed, ranked) & ~taken

    def _allowed_ranks(self, allowed: frozenset[int], ranked: bool) -> int:
        known = self._allowed.get(ranked)
        if known is None or known[0] is not allowed:
            nodes = self.layout.nodes
            places = self.layout.by_rank if ranked else range(len(nodes))
            digits = ["1" if nodes[n] in allowed else "0" for n in reversed(places)]
            known = self._allowed[ranked] = (allowed, int("0" + "".join(digits), 2))
        return known[1]

    def _match_slots(self, parts: Parts, count: int, allowed: frozenset[int] | None) -> Answer:
        """Answer with the `count` best slots."""
        policy, layout, free = self._policy, self.layout, self.state.free
        if policy.close and count > 1:
            among = self._mask(allowed, False) & ((1 << len(layout.nodes)) - 1)
            chosen = self._slots.closest(parts, self._holders_of(among), count)
            return Answer((), {h: layout.run(parts, h, bits) for h, bits in chosen.items()}) if chosen else NOTHING
        shape = self._shapes.get(self._demands.of_slots(parts, 0))
        mask = self._mask(allowed, not shape.scored)
        runs: dict[int, Run] = {}
        if shape.scored:
            if count == 1 and self._window is None:
                n = self._best_scored(shape, mask)
                if n < 0:
                    return NOTHING
                self._slots.take(parts, n, 1, runs)
                return Answer((), runs)
            for h, bits in self._best_slots(shape, count, mask).items():
                runs[h] = layout.run(parts, h, bits)
            return Answer((), runs) if runs else NOTHING
        if count == 1:
            for n in self._best_able(shape, shape.can & mask, 1):
                self._slots.take(parts, n, 1, runs)
            return Answer((), runs) if runs else NOTHING
        ranked = self._able(shape, shape.can & mask)
        if policy.stops:
            found = self._slots.until_enough(parts, (h for n in ranked for h in self._slots.in_order(n)), count)
            for h, slots in found.items():
                runs[h] = layout.run(parts, h, layout.best(parts, h, slots, free[h]))
            return Answer((), runs) if runs else NOTHING
        # Policies that compare nodes first fill one node before the next.
        for n in ranked:
            count -= self._slots.take(parts, n, count, runs)
            if not count:
                return Answer((), runs)
        return NOTHING

    def _best_scored(self, shape: Shape, mask: int) -> int:
        """The number of the node with the best slot; -1 for none."""
        for score in sorted(shape.buckets, reverse=self._policy.order > 0):
            bits = shape.buckets[score] & mask
            if bits:
                return (bits & -bits).bit_length() - 1
        return -1

    def _by_preference(self, bits: int) -> Iterable[int]:
        """The numbers of the nodes in a set of ranks, in order of preference."""
        if self._use is not None:
            ranks: Iterable[int] = self._use.among(bits, self._window)
        else:
            ranks = self._order.among(self._graph.root, bits) if self._policy.stops else numbers(bits)
        return map(self.layout.by_rank.__getitem__, ranks)

    def _able(self, shape: Shape, bits: int) -> Iterable[int]:
        """As `_by_preference`, without nodes that cannot serve the shape during the whole window."""
        ranked, window = self._by_preference(bits), self._window
        if window is None:
            return ranked
        return (n for n in ranked if window.subtract(n) and self.state.serves(shape.demand, n))

    def _best_able(self, shape: Shape, bits: int, count: int) -> list[int]:
        """The first `count` nodes of `_able`, or all if there are fewer."""
        if self._window is None and self._use is None:
            return self._best_ranked(bits, count)
        able = self._able(shape, bits)
        return self._best_ranked(self.layout.set_of(able, True), count) if self._ids else list(islice(able, count))

    def _best_ranked(self, bits: int, count: int) -> list[int]:
        """The `count` preferred nodes of a set of ranks, or all if there are fewer; by number.

        All of them are idle if the policy compares use.
        """
        if self._policy.stops:
            ranks = self._order.first(self._graph.root, bits, count)
        elif self._ids:
            ranks = run_of_places(bits, count, self._ids, self._dense)
        else:
            ranks = lowest_numbers(bits, count)
        return [self.layout.by_rank[rank] for rank in ranks]

    def _best_slots(self, shape: Shape, count: int, mask: int) -> dict[int, int]:
        """The `count` slots with the best scores, as bits by holder; empty for too few.

        Scores are visited from the best on. A node whose best slot was taken is visited again at the score of its next
        slot.
        """
        order, holders, window = self._policy.order, self.layout.holders, self._window
        due: dict[int, list[int]] = {}
        taken: dict[int, int] = {}
        scores = [-order * score for score in shape.buckets]
        heapify(scores)
        while scores:
            score = -order * heappop(scores)
            revisited = due.pop(score, [])
            fresh, last = numbers(shape.buckets.get(score, 0) & mask), False
            if window is not None:
                fresh = filter(window.subtract, fresh)
            else:
                # Every one of these nodes has a slot of this score, so `count` nodes are enough.
                nodes = list(islice(fresh, count))
                fresh, last = iter(nodes), len(nodes) + len(revisited) >= count
            for n in merge(fresh, sorted(revisited)) if revisited else fresh:
                later = None
                grade = self.layout.grade[n] * shape.size if self.layout.grade else 0
                for h in holders[n]:
                    took, rest = self._slots.take_scored(shape.demand.parts, h, score - grade, taken, last)
                    count -= took
                    if not count:
                        return taken
                    if rest is not None and (later is None or order * rest > order * later):
                        later = rest
                if later is not None and not last:
                    later += grade
                    if later not in due and later not in shape.buckets:
                        heappush(scores, -order * later)
                    due.setdefault(later, []).append(n)
        return {}

    def _holders_of(self, bits: int) -> Iterable[int]:
        """The available holders of a set of nodes by number, in the graph's order."""
        window, blocked = self._window, self.state.blocked
        for n in numbers(bits):
            if window is not None and not window.subtract(n):
                continue
            if not (blocked and blocked.get(self.layout.nodes[n])):
                yield from self.layout.holders[n]

    def _match_nodes(self, demand: Demand, count: int, allowed: frozenset[int] | None) -> Answer:
        """Answer with `count` nodes that satisfy the demand."""
        shape = self._shapes.get(demand)
        bits = shape.can & self._mask(allowed, True)
        if bits.bit_count() < count:
            return NOTHING
        nodes = self.layout.nodes
        picks: list[Pick] = []
        runs: dict[int, Run] = {}
        for n in self._best_able(shape, bits, count):
            if demand.units:
                picks.append(Pick(nodes[n], 1, False, False, self._unit_picks(demand.parts, n, demand.slots)))
            elif demand.holders:
                picks.append(Pick(nodes[n], 1, False, False, self._slots.take_holders(demand, n, runs)))
            else:
                picks.append(Pick(nodes[n], 1, False, False, ()))
                self._slots.take(demand.parts, n, demand.slots, runs)
        return Answer(picks, runs) if len(picks) == count else NOTHING
