"""The static part of the index of free resources: single resources as bits, and pools.

A vertex that directly holds single resources (cores, GPUs) is a holder; bit i of a set of its resources is its child at
place i. Nodes are bits too, in two numberings. The number is the graph's order. The rank is the policy's preference, if
it prefers by node: the lowest bit of a set is the node to take. A pool is counted in units, if nodes contain at most
one of its type. A layout is valid until the graph changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.sched.graph import bitsets
from headrace.sched.graph.bitsets import numbers
from headrace.sched.graph.matcher import class_of, measured_by
from headrace.sched.graph.model import Graph
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.selection import Run

# The types and counts of a slot of single resources, or of units of pools.
Parts = tuple[tuple[str, int], ...]


class Demand(NamedTuple):
    """The free resources that a node must have."""

    # The types and counts of the resources in a slot.
    parts: Parts
    # The number of slots. With 0, the caller takes slots one by one, each from the node with the best slot, and a node
    # satisfies the demand if one slot fits.
    slots: int
    # If above 0: the number of holders (sockets) of the node that must have `slots` slots each.
    holders: int = 0
    # True if no other job may use these holders.
    alone: bool = False
    # True if the job gets these holders with all their contents; False if it gets only the parts of its slots.
    whole: bool = False
    # True if the slots take units of the node's pools.
    units: bool = False


class NodeKind(NamedTuple):
    """Nodes with the same contents: the number of one of them, and all as bits, by rank and by number."""

    example: int
    rank_bits: int
    number_bits: int


class Layout:
    """The holders of a graph and their nodes, for one match policy.

    `usable` is True if the index can choose by these bits as a search does. If it is False, nothing else here is valid.
    """

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self.graph = graph
        self.policy = policy

        # By type of single resource that the index serves: the holders. Equal sets are one object (`is` compares them).
        self.types: dict[str, frozenset[int]] = {}
        # By type of single resource: the type of its holders, if all have the same one, are of size 1 and are children
        # of nodes.
        self.held_by: dict[str, str] = {}

        # By holder: the bits of all its resources.
        self.every: dict[int, int] = {}
        # By holder: the bits of its resources of each type. Equal maps are one object.
        self.masks: dict[int, dict[str, int]] = {}
        # By holder: for each type, the id of a resource minus its place. Only holders have it where that difference is
        # the same for all resources of a type. Equal maps are one object.
        self.shift: dict[int, dict[str, int]] = {}
        # By holder: the number of its node.
        self.node_of: dict[int, int] = {}

        # By type of pool that the index serves: the pool in each node, by the node's number; -1 in a node without one.
        self.pools: dict[str, list[int]] = {}
        # By pool in one of `pools`: its size (units).
        self.sizes: dict[int, int] = {}
        # By holder: the bits of the pools in `sizes`, which were single resources while their size was 1.
        self.pool_bits: dict[int, int] = {}

        # By number of a node: its vertex.
        self.nodes: list[int] = []
        # By vertex of a node: its number.
        self.number: dict[int, int] = {}
        # By number of a node: the holders in it.
        self.holders: list[list[int]] = []
        # By number of a node: what the policy's `node_property` adds to the score of each vertex in it; empty for a
        # policy without one.
        self.grade: list[int] = []
        # By number of a node: its rank.
        self.rank: list[int] = []
        # By rank: the number of the node.
        self.by_rank: list[int] = []
        # The kinds of nodes.
        self.node_kinds: list[NodeKind] = []
        # By number of a node: the place of its kind in `node_kinds`.
        self.node_kind: list[int] = []

        self.usable = _serves(policy)
        if self.usable:
            self.nodes = [v for v in graph.preorder(graph.root) if graph.type[v] == "node"]
            self.number = {v: n for n, v in enumerate(self.nodes)}
            if policy.node_property:
                self.grade = [policy.node_weight * class_of(graph, v, policy.node_property) for v in self.nodes]
            self.usable = self._ranks_give_the_order()
        if self.usable:
            self._find_holders()
            self._find_holder_types()
            self._find_pools()
            self.usable = not policy.by_use or self._counts_use()
        if self.usable:
            self._rank_nodes()
            self._find_node_kinds()

    def _ranks_give_the_order(self) -> bool:
        """Whether one rank per node is enough to express which node the policy prefers."""
        graph, policy, nodes = self.graph, self.policy, self.nodes
        if policy.stops and any(graph.parent[v] != graph.root for v in nodes):
            # The search tries children in a separate order at each level; ranks express only that of one level.
            return False
        if any(graph.size[v] != 1 for v in nodes):
            # A vertex that represents several nodes cannot be one bit.
            return False
        if policy.node_property or not policy.node_weight:
            # The ids of nodes do not matter: slots are compared by their scores, or taken in the order of the search.
            return True
        if len({graph.id[v] for v in nodes}) < len(nodes):
            # The policy prefers neither of two nodes with the same id, so a search mixes their slots by their own ids.
            return False
        if max(graph.id, default=0) < policy.node_weight:
            return True
        # A leaf's id must be below `node_weight`, or a core of one node may outscore a core of the next. Ids of other
        # vertices do not matter, because a slot consists of leaves.
        return len(nodes) > 0 and all(
            graph.id[v] < policy.node_weight for v, kids in enumerate(graph.children) if not kids
        )

    def _find_holders(self) -> None:
        """Find the types of resources that the index serves, and their holders.

        A type is served if all resources of it are single, are held by vertices in nodes, and have rising ids in each
        holder; and if none of its holders is inside another holder of it.
        """
        totals = self.graph.totals[self.graph.root]
        # The types not ruled out by any holder so far.
        served_types = {kind for kind, amount in totals.items() if amount}
        # By type: the holders, and the number of resources in them.
        holders_of: dict[str, set[int]] = {}
        counted: dict[str, int] = {}
        # Each map of bits or shifts found so far, as one object shared by all equal ones.
        interned: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for n, node in enumerate(self.nodes):
            holders = self._read_node(node, served_types, interned)
            self.holders.append(holders)
            for h in holders:
                self.node_of[h] = n
                for kind, bits in self.masks[h].items():
                    counted[kind] = counted.get(kind, 0) + bits.bit_count()
                    holders_of.setdefault(kind, set()).add(h)
        same: dict[frozenset[int], frozenset[int]] = {}
        for kind in served_types:
            # Otherwise some resources of the type are outside nodes.
            if counted.get(kind) == totals[kind]:
                found = frozenset(holders_of[kind])
                self.types[kind] = same.setdefault(found, found)

    def _counts_use(self) -> bool:
        """Whether pools, or bits of holders, are all resources by which the policy measures use."""
        graph, measured = self.graph, measured_by(self.graph)
        if measured != "core":
            return measured in self.pools or not graph.totals[graph.root].get(measured)
        sizes = [graph.size[v] for v, kind in enumerate(graph.type) if kind == measured]
        bits = sum([masks.get(measured, 0).bit_count() for masks in self.masks.values()])
        return bits == len(sizes) and sizes.count(1) == bits

    def _read_node(
        self, node: int, served_types: set[str], interned: dict[tuple[tuple[str, int], ...], dict[str, int]]
    ) -> list[int]:
        """The holders in a node, in the graph's order.

        Fills in `masks`, `every` and `shift` of each, and removes types that the index cannot serve from
        `served_types`.
        """
        holders: list[int] = []
        stack = [node]
        while stack:
            h = stack.pop()
            inner, masks = self._read_holder(h, served_types, interned)
            stack.extend(reversed(inner))
            if not masks:
                continue
            for above in self.graph.ancestors(h):
                if above in self.masks:
                    # A slot would take resources of both holders, and would be assembled at the upper one.
                    served_types.difference_update(masks.keys() & self.masks[above].keys())
            holders.append(h)
            self.masks[h] = interned.setdefault(tuple(masks.items()), masks)
        return holders

    def _read_holder(
        self, h: int, served_types: set[str], interned: dict[tuple[tuple[str, int], ...], dict[str, int]]
    ) -> tuple[list[int], dict[str, int]]:
        """The children of a vertex that have children themselves, and the others as bits by type.

        Fills in `every` and `shift` of the vertex, and removes types from `served_types` that are not single resources
        in the order of their ids.
        """
        graph = self.graph
        types, size, ids, uniq, children = graph.type, graph.size, graph.id, graph.uniq, graph.children
        inner: list[int] = []
        masks: dict[str, int] = {}
        last_id: dict[str, int] = {}
        shift: dict[str, int] = {}
        even = True
        every = 0
        before = -1
        for i, child in enumerate(children[h]):
            if children[child]:
                inner.append(child)
                before = child
                continue
            kind, child_id = types[child], ids[child]
            if size[child] != 1 or child_id <= last_id.get(kind, -1):
                served_types.discard(kind)
            if self.policy.stops and i and uniq[child] <= uniq[before]:
                # A search would try them in an order other than that of their places.
                served_types.discard(kind)
            last_id[kind] = child_id
            before = child
            if shift.setdefault(kind, child_id - i) != child_id - i:
                even = False
            bit = 1 << i
            masks[kind] = masks.get(kind, 0) | bit
            every |= bit
        if masks:
            self.every[h] = every
            if even:
                self.shift[h] = interned.setdefault(tuple(shift.items()), shift)
        return inner, masks

    def _find_holder_types(self) -> None:
        """Fill in `held_by`."""
        graph = self.graph
        for kind, holders in self.types.items():
            types = {graph.type[h] for h in holders}
            if len(types) == 1 and all(graph.size[h] == 1 and graph.parent[h] in self.number for h in holders):
                self.held_by[kind] = types.pop()

    def _find_pools(self) -> None:
        """Fill in `pools`, `sizes` and `pool_bits`.

        A type is served if all its units are in pools that nodes directly contain, one in each node at most.
        """
        graph = self.graph
        found: dict[str, list[int]] = {}
        several: set[str] = set()
        for n, node in enumerate(self.nodes):
            for v in graph.children[node]:
                if not graph.children[v]:
                    pools = found.setdefault(graph.type[v], [-1] * len(self.nodes))
                    if pools[n] >= 0:
                        several.add(graph.type[v])
                    pools[n] = v
        totals = graph.totals[graph.root]
        for kind, pools in found.items():
            sizes = {v: graph.size[v] for v in pools if v >= 0}
            if kind not in several and sum(sizes.values()) == totals.get(kind, 0):
                self.pools[kind] = pools
                self.sizes.update(sizes)
        for v in self.sizes:
            h = graph.parent[v]
            self.pool_bits[h] = self.pool_bits.get(h, 0) | 1 << graph.position[v]

    def fit_units(self, parts: Parts, n: int, room: Mapping[int, int]) -> int:
        """The number of slots that fit into the pools of a node, given the free units by pool."""
        most = -1
        for kind, count in parts:
            v = self.pools[kind][n]
            fit = room[v] // count if v >= 0 else 0
            if fit <= 0:
                return 0
            if most < 0 or fit < most:
                most = fit
        return most

    def score_of_units(self, parts: Parts, n: int) -> int:
        """The score of each slot of units of a node's pools: the sum of their ids, plus the grade of the node."""
        score = sum([self.graph.id[self.pools[kind][n]] for kind, _ in parts])
        return score + self.grade[n] * len(parts) if self.grade else score

    def _rank_nodes(self) -> None:
        """Fill in `rank` and `by_rank`: rank 0 is the node that the policy prefers."""
        graph, nodes, order = self.graph, self.nodes, self.policy.order
        if self.policy.stops:
            # `ChildOrder` numbers the children of the root in this order.
            by_rank = sorted(range(len(nodes)), key=lambda n: -graph.uniq[nodes[n]])
        else:
            grade = self.grade or [0] * len(nodes)
            by_rank = sorted(range(len(nodes)), key=lambda n: -order * (grade[n] + graph.id[nodes[n]]))
        self.by_rank = by_rank
        self.rank = [0] * len(nodes)
        for rank, n in enumerate(by_rank):
            self.rank[n] = rank

    def _find_node_kinds(self) -> None:
        """Fill in `node_kinds` and `node_kind`."""
        masks, shift, grade = self.masks, self.shift, self.grade
        places: dict[tuple[int, ...], int] = {}
        members: list[list[int]] = []
        for n, holders in enumerate(self.holders):
            # Equal maps are one object, so ids compare them. A holder without `shift` is like no other.
            alike = [x for h in holders for x in (id(masks[h]), id(shift[h]) if h in shift else -1 - h)]
            alike += [self.sizes.get(pools[n], -1) for pools in self.pools.values()]
            place = places.setdefault((grade[n] if grade else 0, *alike), len(members))
            if place == len(members):
                members.append([])
            members[place].append(n)
            self.node_kind.append(place)
        self.node_kinds = [NodeKind(some[0], self.set_of(some, True), self.set_of(some, False)) for some in members]

    def set_of(self, members: Iterable[int], ranked: bool) -> int:
        """The bits of nodes that are given by number. With `ranked`, the bits are ranks, else numbers."""
        bits = bytearray(len(self.nodes) // 8 + 1)
        rank = self.rank
        for n in members:
            i = rank[n] if ranked else n
            bits[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(bits, "little")

    def serves(self, demand: Demand, n: int, free: Mapping[int, int], room: Mapping[int, int]) -> bool:
        """Whether a node satisfies a demand, given the free resources by holder, and the free units by pool."""
        parts, slots, holders, _, _, units = demand
        if units:
            return self.fit_units(parts, n, room) >= (slots or 1)
        # The holders that must still be found, or else the slots.
        left = holders or slots or 1
        for h in self.holders[n]:
            fit = bitsets.fit(parts, free[h], self.masks[h])
            if not holders:
                left -= fit
            elif fit >= slots:
                left -= 1
            if left <= 0:
                return True
        return False

    def next_slot(self, parts: Parts, h: int, free: int) -> tuple[int, int] | None:
        """The best slot of a holder from its free resources: its bits, and the sum of its ids; None for none."""
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

    def slot_scores(self, parts: Parts, h: int, free: int) -> tuple[int, ...]:
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
        """Resources of a holder in the form of a selection."""
        if not bits & (bits - 1):
            v = self.graph.children[h][bits.bit_length() - 1]
            return Run((v,), bits, {parts[0][0]: 1 << self.graph.id[v]})
        children, masks, shift = self.graph.children[h], self.masks[h], self.shift.get(h)
        vertices: list[int] = []
        ids: dict[str, int] = {}
        # The place after the last resource of the types so far.
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
                # Bit i of `some` is place i, and bit i of the set of ids is id i. Ids may be lower than places: GPU 0
                # may come after 64 cores.
                by = shift[kind]
                ids[kind] = some << by if by >= 0 else some >> -by
            vertices += found
            if first < end:
                # The types alternate, or the request names them in another order than the graph. A run is in the
                # graph's order.
                vertices.sort(key=self.graph.position.__getitem__)
            end = last if last > end else end
        return Run(vertices, bits, ids)


def _serves(policy: Policy) -> bool:
    """Whether the index chooses as a search does by this policy, on graphs that allow it.

    By other policies every request is searched. `tests/sched/graph/test_index.py` compares the two for all combinations
    of a policy's fields for which this is True.
    """
    close, stops, whole = policy.close, policy.stops, policy.whole
    if policy.order == 0:
        # A search takes resources in the order in which it finds them, which neither ranks nor scores express.
        return False
    if not whole <= {"node"}:
        # The index knows which nodes are allocated whole, but no vertices of another type.
        return False
    if stops and (policy.order < 0 or policy.node_weight):
        # A search that stops may have found more slots than it takes. The index leaves out those with the lowest sums
        # of ids, which are the worst only if the highest score comes first and does not depend on the node.
        return False
    if whole and not (stops or policy.node_weight):
        # Without a weight the ids of the cores decide which nodes are taken, but the index takes whole nodes by rank.
        return False
    if policy.by_use and (
        policy.order > 0 or not policy.node_weight or stops or whole or close or policy.node_property
    ):
        # Of nodes in the same class of use, the index takes the one with the lowest id, whatever resources it gives.
        return False
    if close and (policy.order > 0 or stops or whole or policy.node_weight or policy.node_property):
        # The index takes the closest of all free slots by the sums of their ids, and of several such choices the one
        # with the lowest ids.
        return False
    if policy.node_property and whole:
        # The index takes whole nodes by property and their ids, but a search compares the slots in them, by property
        # and the ids of cores.
        return False
    # No policy prefers the highest property yet, so the index has not been tested with one.
    return not (policy.node_property and policy.order > 0)
