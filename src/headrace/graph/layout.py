"""The single resources of a graph as bits: the part of the index of free resources that does not change with use.

A vertex that directly holds single resources (cores, GPUs) is a holder; bit i of a set of its resources is its child at
place i. Nodes are bits too: by number, which is the graph's order, and by rank, which is the policy's preference if it
prefers by node: the lowest bit of a set is the node to take. A layout is valid until the graph changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.graph import bitsets
from headrace.graph.bitsets import numbers
from headrace.graph.matcher import class_of
from headrace.graph.model import Graph
from headrace.graph.policies.policy import Policy
from headrace.graph.selection import Run

# The types and counts of a slot of single resources.
Parts = tuple[tuple[str, int], ...]


class Demand(NamedTuple):
    """A demand on a node: `slots` slots of `parts`; 0 slots: one slot at a time, wherever it is best.

    Unless `holders` is 0, that many vertices that hold the resources must each have `slots` of them; with `alone` no
    other job may use these vertices, which are given `whole` or with the slots' parts alone.
    """

    parts: Parts
    slots: int
    holders: int = 0
    alone: bool = False
    whole: bool = False


class Kind(NamedTuple):
    """Nodes with the same contents: the number of an `example`, and all of them as bits, by rank and by number."""

    example: int
    ranks: int
    numbers: int


class Layout:
    """The holders of a graph and their nodes, for one match policy.

    `usable` is False where a search could choose otherwise than by these bits.

    By type of single resource: `types` has the holders (equal sets are one object), `held_by` the type of the holders
    if all have the same one, are of size 1 and lie directly in their nodes. By holder: `every` has the bits of all
    resources, `masks` those of each type, `node_of` the number of the node. By number of a node: `nodes` has the
    vertex, `holders` the holders, `rank` the rank, `grade` what the policy's property of the node adds to the score of
    each vertex in it (empty without such a property), `kind_of` the place of its kind in `kinds`. `by_rank` has the
    numbers by rank, `number` the number by vertex.
    """

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self.graph = graph
        self.policy = policy
        self.types: dict[str, frozenset[int]] = {}
        self.held_by: dict[str, str] = {}
        self.nodes: list[int] = []
        self.number: dict[int, int] = {}
        self.holders: list[list[int]] = []
        self.node_of: dict[int, int] = {}
        self.every: dict[int, int] = {}
        self.masks: dict[int, dict[str, int]] = {}
        # By holder and type: id of a resource minus its place, for holders where this difference is the same for all of
        # a type.
        self.shift: dict[int, dict[str, int]] = {}
        self.rank: list[int] = []
        self.by_rank: list[int] = []
        self.grade: list[int] = []
        self.kinds: list[Kind] = []
        self.kind_of: list[int] = []
        self.usable = policy.whole <= {"node"} and policy.order != 0
        if policy.close or policy.node_property:
            self.usable = policy.order < 0 and not (
                policy.stops or policy.whole or (policy.node_property and policy.close)
            )
        if self.usable:
            self.nodes = [v for v in graph.preorder(graph.root) if graph.type[v] == "node"]
            self.number = {v: n for n, v in enumerate(self.nodes)}
            if policy.node_property:
                self.grade = [policy.node_weight * class_of(graph, v, policy.node_property) for v in self.nodes]
            self.usable = self._nodes_compare()
        if self.usable:
            self._find_holders()
            self._rank_nodes()
            self._find_kinds()

    def _nodes_compare(self) -> bool:
        """Whether the policy's order among nodes is the order of the ranks."""
        graph, policy, nodes = self.graph, self.policy, self.nodes
        if policy.stops and any(graph.parent[v] != graph.root for v in nodes):
            return False
        if any(graph.size[v] != 1 for v in nodes):
            return False
        if policy.node_property:
            # The score includes the node's grade, so nodes need no distinct ids.
            return True
        known = {graph.id[v] for v in nodes}
        if policy.node_weight and (len(known) < len(nodes) or max(graph.id, default=0) >= policy.node_weight):
            # Vertices of different nodes could have equal scores.
            small = all(graph.id[v] < policy.node_weight for v, kids in enumerate(graph.children) if not kids)
            return len(nodes) > 0 and len(known) == len(nodes) and small
        return True

    def _find_holders(self) -> None:
        graph = self.graph
        totals = graph.totals[graph.root]
        spread = {kind for kind, amount in totals.items() if amount}
        holding: dict[str, set[int]] = {}
        seen: dict[str, int] = {}
        # Equal maps are stored as one object.
        shapes: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for n, node in enumerate(self.nodes):
            holders: list[int] = []
            stack = [node]
            while stack:
                h = stack.pop()
                inner, masks = self._read_holder(h, spread, shapes)
                stack.extend(reversed(inner))
                if not masks:
                    continue
                for above in (u for u in graph.ancestors(h) if u in self.masks):
                    # A slot would take resources of both holders and is put together at the upper one.
                    spread.difference_update(masks.keys() & self.masks[above].keys())
                holders.append(h)
                self.masks[h] = shapes.setdefault(tuple(masks.items()), masks)
                self.node_of[h] = n
                for kind, bits in masks.items():
                    seen[kind] = seen.get(kind, 0) + bits.bit_count()
                    holding.setdefault(kind, set()).add(h)
            self.holders.append(holders)
        known: dict[frozenset[int], frozenset[int]] = {}
        for kind in spread:
            if seen.get(kind) == totals.get(kind):
                found = frozenset(holding[kind])
                self.types[kind] = known.setdefault(found, found)
        for found in known:
            types = {graph.type[h] if graph.size[h] == 1 and graph.parent[h] in self.number else "" for h in found}
            if len(types) == 1:
                self.held_by.update(dict.fromkeys([kind for kind in self.types if self.types[kind] is found], *types))

    def _read_holder(
        self, h: int, spread: set[str], shapes: dict[tuple[tuple[str, int], ...], dict[str, int]]
    ) -> tuple[list[int], dict[str, int]]:
        """The children of a vertex that hold others, and its single resources as bits by type; types whose resources
        are not in order of their ids leave `spread`.
        """
        graph = self.graph
        types, size, ids, uniq, children = graph.type, graph.size, graph.id, graph.uniq, graph.children
        inner: list[int] = []
        masks: dict[str, int] = {}
        last: dict[str, int] = {}
        shift: dict[str, int] = {}
        even = True
        every = 0
        before = -1
        for i, child in enumerate(children[h]):
            if children[child]:
                inner.append(child)
                before = child
                continue
            kind, number = types[child], ids[child]
            if size[child] != 1 or number <= last.get(kind, -1):
                spread.discard(kind)
            if self.policy.stops and i and uniq[child] <= uniq[before]:
                # A search would try them in another order than that of their places.
                spread.discard(kind)
            last[kind] = number
            before = child
            if shift.setdefault(kind, number - i) != number - i:
                even = False
            bit = 1 << i
            masks[kind] = masks.get(kind, 0) | bit
            every |= bit
        if masks:
            self.every[h] = every
            if even:
                self.shift[h] = shapes.setdefault(tuple(shift.items()), shift)
        return inner, masks

    def _rank_nodes(self) -> None:
        graph, nodes, order = self.graph, self.nodes, self.policy.order
        if self.policy.stops:
            by_rank = sorted(range(len(nodes)), key=lambda n: -graph.uniq[nodes[n]])
        else:
            grade = self.grade or [0] * len(nodes)
            by_rank = sorted(range(len(nodes)), key=lambda n: -order * (grade[n] + graph.id[nodes[n]]))
        self.by_rank = by_rank
        self.rank = [0] * len(nodes)
        for rank, n in enumerate(by_rank):
            self.rank[n] = rank

    def _find_kinds(self) -> None:
        masks, shift, grade = self.masks, self.shift, self.grade
        places: dict[tuple[int, ...], int] = {}
        members: list[list[int]] = []
        for n, holders in enumerate(self.holders):
            # Equal maps are one object, so ids compare them. A holder without `shift` is like no other.
            alike = [x for h in holders for x in (id(masks[h]), id(shift[h]) if h in shift else -1 - h)]
            place = places.setdefault((grade[n] if grade else 0, *alike), len(members))
            if place == len(members):
                members.append([])
            members[place].append(n)
            self.kind_of.append(place)
        self.kinds = [Kind(some[0], self.set_of(some, True), self.set_of(some, False)) for some in members]

    def set_of(self, members: Iterable[int], ranked: bool) -> int:
        """The bits of nodes that are given by number: by rank, or by number."""
        bits = bytearray(len(self.nodes) // 8 + 1)
        rank = self.rank
        for n in members:
            i = rank[n] if ranked else n
            bits[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(bits, "little")

    def serves(self, demand: Demand, n: int, free: Mapping[int, int]) -> bool:
        """Whether a node satisfies a demand, given the free resources by holder."""
        parts, slots, wanted, _, _ = demand
        left = wanted or slots or 1
        for h in self.holders[n]:
            fit = bitsets.fit(parts, free[h], self.masks[h])
            left -= fit >= slots if wanted else fit
            if left <= 0:
                return True
        return False

    def next_slot(self, parts: Parts, h: int, free: int) -> tuple[int, int] | None:
        """The best slot of a holder from its free resources: its bits, and the sum of its ids; None for no slot."""
        if len(parts) == 1 and parts[0][1] == 1:
            # Most slots are one core.
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

    def ladder(self, parts: Parts, h: int, free: int) -> tuple[int, ...]:
        """The score (sum of ids) of each slot that fits into the free resources of a holder, best slot first."""
        masks = self.masks[h]
        if len(parts) == 1 and parts[0][1] == 1:
            children, ids = self.graph.children[h], self.graph.id
            return tuple([ids[children[i]] for i in numbers(free & masks.get(parts[0][0], 0))])
        scores = []
        for _ in range(bitsets.fit(parts, free, masks)):
            bits = self.best(parts, h, 1, free)
            scores.append(self.sum_of(parts, h, bits))
            free ^= bits
        return tuple(scores)

    def sum_of(self, parts: Parts, h: int, bits: int) -> int:
        """The sum of the ids of some resources of a holder."""
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

    def best(self, parts: Parts, h: int, slots: int, free: int) -> int:
        """The resources of the `slots` best slots of a holder, taken from `free`, which has enough of them."""
        masks = self.masks[h]
        pick = bitsets.lowest if self.policy.order < 0 else bitsets.highest
        out = 0
        for kind, count in parts:
            out |= pick(free & masks[kind], count * slots)
        return out

    def run(self, parts: Parts, h: int, bits: int) -> Run:
        """Resources of a holder, as a selection stores them."""
        if not bits & (bits - 1):
            v = self.graph.children[h][bits.bit_length() - 1]
            return Run((v,), bits, {parts[0][0]: 1 << self.graph.id[v]})
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
