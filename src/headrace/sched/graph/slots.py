"""The policy's choice among slots of holders, if there are more than a request needs.

Slots are scored by the ids of their resources, as in a search. The holders are those of one node, or of several nodes
that the policy does not compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import sub

from headrace.sched.graph.bitsets import lowest_numbers, numbers
from headrace.sched.graph.candidates import ChildOrder
from headrace.sched.graph.free import FreeState
from headrace.sched.graph.layout import Demand, Parts
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.selection import Run

# The most entries of `Slots._scores`.
_MAX_SCORES = 16384


class Slots:
    """Chooses from the free slots of holders."""

    def __init__(self, state: FreeState, order: ChildOrder) -> None:
        self._state = state
        self._layout = state.layout
        self._graph = state.layout.graph
        self._policy = state.layout.policy
        self._order = order
        # The scores of all slots of a holder, by (demand, layout of the holder, free bits).
        self._scores: dict[tuple[object, ...], tuple[int, ...]] = {}

    def take(self, parts: Parts, n: int, most: int, runs: dict[int, Run]) -> int:
        """Add up to `most` best slots of a node to `runs`; returns how many were added."""
        layout, state = self._layout, self._state
        holders = layout.holders[n]
        if self._policy.close and most > 1:
            for h, bits in self.closest(parts, holders, most).items():
                runs[h] = layout.run(parts, h, bits)
            return most
        if len(holders) > 1:
            if self._policy.stops:
                found = self.until_enough(parts, self.in_order(n), most)
                for h, slots in found.items():
                    runs[h] = layout.run(parts, h, layout.best(parts, h, slots, state.free[h]))
                return most
            holders = [h for h in holders if state.fit(parts, h)]
            if len(holders) > 1:
                return self._share_out(parts, holders, most, runs)
        h = holders[0]
        slots = min(state.fit(parts, h), most)
        runs[h] = layout.run(parts, h, layout.best(parts, h, slots, state.free[h]))
        return slots

    def until_enough(self, parts: Parts, holders: Iterable[int], count: int) -> dict[int, int]:
        """How many slots to take from each holder, in the given order, for `count` slots; empty for too few.

        The search ends with the holder that completes the count. Of the slots found by then, those with the lowest
        scores are not taken.
        """
        state = self._state
        found: dict[int, int] = {}
        left = count
        for h in holders:
            fit = min(state.fit(parts, h), count)
            if fit:
                found[h] = fit
                left -= fit
                if left <= 0:
                    break
        if left > 0:
            return {}
        if left < 0 and len(found) > 1:
            least = [(self._score_of(parts, h, fit), -place, h) for place, (h, fit) in enumerate(found.items())]
            heapify(least)
            for _ in range(-left):
                _, place, h = heappop(least)
                found[h] -= 1
                if found[h]:
                    heappush(least, (self._score_of(parts, h, found[h]), place, h))
                else:
                    del found[h]
        elif left < 0:
            found = dict.fromkeys(found, count)
        return found

    def _score_of(self, parts: Parts, h: int, slots: int) -> int:
        """The score of the last of the `slots` best slots of a holder."""
        layout, free = self._layout, self._state.free[h]
        bits = layout.best(parts, h, slots, free)
        if len(parts) == 1 and parts[0][1] == 1:
            return self._graph.id[self._graph.children[h][(bits & -bits).bit_length() - 1]]
        return layout.sum_of(parts, h, bits ^ layout.best(parts, h, slots - 1, free) if slots > 1 else bits)

    def _share_out(self, parts: Parts, holders: Sequence[int], most: int, runs: dict[int, Run]) -> int:
        """As `take`, from several holders with free slots: the slots with the best scores are taken.

        Of equal scores, the first holder in the graph's order is preferred.
        """
        layout, state, order = self._layout, self._state, self._policy.order
        if most == 1:
            best: tuple[int, int, int] | None = None
            for h in holders:
                found = layout.next_slot(parts, h, state.free[h])
                if found is not None and (best is None or order * found[1] > best[0]):
                    best = order * found[1], h, found[0]
            if best is None:
                return 0
            _, h, bits = best
            runs[h] = layout.run(parts, h, bits)
            return 1
        fits = [state.fit(parts, h) for h in holders]
        total = sum(fits)
        if total > most:
            scores: list[tuple[int, int]] = []
            for place, h in enumerate(holders):
                free = state.free[h]
                for _ in range(min(fits[place], most)):
                    bits = layout.best(parts, h, 1, free)
                    scores.append((-order * layout.sum_of(parts, h, bits), place))
                    free ^= bits
            scores.sort()
            places = [place for _, place in scores[:most]]
            fits = [places.count(place) for place in range(len(holders))]
        for h, slots in zip(holders, fits, strict=True):
            if slots:
                runs[h] = layout.run(parts, h, layout.best(parts, h, slots, state.free[h]))
        return min(total, most)

    def closest(self, parts: Parts, holders: Iterable[int], count: int) -> dict[int, int]:
        """The `count` slots whose scores are closest together, as bits by holder; empty for too few.

        `holders` are in the graph's order.
        """
        state, blocked = self._state, self._state.blocked
        # Most holders are alike; each is listed with its place in the order.
        alike: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for place, h in enumerate(holders):
            if not (blocked and blocked.get(h)):
                alike.setdefault(self._all_scores(parts, h), []).append((place, h))
        amounts: dict[int, int] = {}
        for scores, some in alike.items():
            for score in scores:
                amounts[score] = amounts.get(score, 0) + len(some)
        ends = run_of_scores(sorted(amounts.items()), count)
        if ends is None:
            return {}
        taken: dict[int, int] = {}
        for score in sorted(amounts):
            if ends[0] <= score <= ends[1]:
                found = [(place, h, scores) for scores, some in alike.items() if score in scores for place, h in some]
                for _, h, scores in sorted(found)[:count]:
                    step, free = scores.index(score), state.free[h]
                    below = self._layout.best(parts, h, step, free) if step else 0
                    taken[h] = taken.get(h, 0) | self._layout.best(parts, h, step + 1, free) ^ below
                count -= len(found)
                if count <= 0:
                    break
        return taken

    def _all_scores(self, parts: Parts, h: int) -> tuple[int, ...]:
        layout, free = self._layout, self._state.free[h]
        # Holders with the same resources at the same places give the same scores.
        shift = layout.shift.get(h)
        key = parts, id(layout.masks[h]), h if shift is None else -id(shift), free
        found = self._scores.get(key)
        if found is None:
            if len(self._scores) >= _MAX_SCORES:
                self._scores.clear()
            found = self._scores[key] = layout.slot_scores(parts, h, free)
        return found

    def take_scored(
        self, parts: Parts, h: int, score: int, taken: dict[int, int], last: bool
    ) -> tuple[int, int | None]:
        """Take the best slot of a holder if it has exactly this score.

        Returns the number of slots taken, and the score of the holder's next slot. Slots of a holder differ in score.
        With `last`, no other score will be visited, and the next score is None.
        """
        layout, state = self._layout, self._state
        if state.blocked and state.blocked.get(h):
            return 0, None
        gone = taken.get(h, 0)
        free = state.free[h] ^ gone
        found = layout.next_slot(parts, h, free)
        if found is None or found[1] != score:
            return 0, None if found is None else found[1]
        taken[h] = gone | found[0]
        following = None if last else layout.next_slot(parts, h, free ^ found[0])
        return 1, None if following is None else following[1]

    def in_order(self, n: int) -> list[int]:
        """The holders of a node in the order in which a search would reach them."""
        node, holders = self._layout.nodes[n], self._layout.holders[n]
        if len(holders) < 2:
            return holders
        if all([self._graph.parent[h] == node for h in holders]):
            return self._order.sorted(node, holders)
        out: list[int] = []
        among = set(holders)
        stack = [node]
        while stack:
            v = stack.pop()
            if v in among:
                out.append(v)
            stack.extend(reversed([c for c in self._order(v) if self._graph.children[c]]))
        return out

    def take_holders(self, demand: Demand, n: int, runs: dict[int, Run]) -> list[Pick]:
        """Pick the best holders of a node for a demand; their resources are added to `runs`."""
        layout, state, policy, parts = self._layout, self._state, self._policy, demand.parts
        ids = self._graph.id
        if policy.stops:
            able = [h for h in self.in_order(n) if state.holder_serves(demand, h)]
        else:
            able = [h for h in layout.holders[n] if state.holder_serves(demand, h)]
            if len(able) > demand.holders:
                able.sort(key=ids.__getitem__, reverse=policy.order > 0)
                if policy.close:
                    scores = [ids[h] for h in able]
                    places = run_of_places((1 << len(able)) - 1, demand.holders, scores, False)
                    able = [able[place] for place in places]
        picks = []
        for h in able[: demand.holders]:
            picks.append(Pick(h, 1, demand.alone, demand.whole, ()))
            if demand.whole:
                continue
            if not policy.close:
                bits = layout.best(parts, h, demand.slots, state.free[h])
            elif demand.alone:
                bits = self._closest_resources(parts, h)
            else:
                bits = self.closest(parts, (h,), demand.slots)[h]
            runs[h] = layout.run(parts, h, bits)
        return picks

    def _closest_resources(self, parts: Parts, h: int) -> int:
        """The resources of a holder for one slot: for each type, those with the closest ids."""
        layout = self._layout
        free, masks, children = self._state.free[h], layout.masks[h], self._graph.children[h]
        out = 0
        for kind, count in parts:
            places = list(numbers(free & masks[kind]))
            scores = [self._graph.id[children[place]] for place in places]
            for i in run_of_places((1 << len(places)) - 1, count, scores, False):
                out |= 1 << places[i]
        return out


def run_of_places(bits: int, count: int, scores: Sequence[int], dense: bool) -> list[int]:
    """The places of the `count` closest members of a set, or of all if there are fewer.

    `scores` by place never decrease. They are `dense` if each is one more than its predecessor.
    """
    if count == 1 or bits.bit_count() <= count:
        return lowest_numbers(bits, count)
    if dense:
        # Bit i stays set while the `width` members from i on have no gap.
        runs, width = bits, 1
        while width < count and runs:
            step = min(width, count - width)
            runs &= runs >> step
            width += step
        if runs:
            first = (runs & -runs).bit_length() - 1
            return list(range(first, first + count))
    places = list(numbers(bits))
    known = [scores[place] for place in places]
    spreads = list(map(sub, known[count - 1 :], known))
    first = spreads.index(min(spreads))
    return places[first : first + count]


def run_of_scores(counts: Sequence[tuple[int, int]], count: int) -> tuple[int, int] | None:
    """The first and the last score of the `count` closest candidates; None for too few candidates.

    `counts` are pairs (score, number of candidates with it), by rising score.
    """
    best: tuple[int, int] | None = None
    end = have = 0
    for first, number in counts:
        while have < count:
            if end == len(counts):
                return best
            have += counts[end][1]
            end += 1
        last = counts[end - 1][0]
        if best is None or last - first < best[1] - best[0]:
            best = first, last
        have -= number
    return best
