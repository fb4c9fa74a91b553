"""The topology of the TBON: the parent of each rank, and the next hop of a message to a rank.

All functions are arithmetic on ranks, without I/O.

- `kary:K` numbers ranks breadth first. `kary:0` is flat: rank 0 is the parent of every other rank.
- `custom` trees (a `[bootstrap]` table with `parent` names) are given as a list of parents.
- `mincrit:K` has K routers between rank 0 and all other ranks, so that few ranks are critical. Without K, it has as
  many routers as are needed for a fanout of at most 1024.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# The largest fanout of `mincrit` without a number of routers, as in real Flux.
_MOST_CHILDREN = 1024


class TopologyError(ValueError):
    """An invalid `tbon.topo` or parent list, which does not describe a tree."""


class Topology:
    """A tree over ranks 0..size-1. Raises TopologyError for an invalid description."""

    __slots__ = ("_children", "_given", "_parents", "_subtree", "fanout", "max_level", "routers", "size", "uri")

    def __init__(self, size: int, uri: str = "kary:32", parents: Sequence[int] | None = None) -> None:
        if size < 1:
            raise TopologyError(f"size {size}: an instance has at least one broker")
        self.size = size
        self.uri = uri
        self.fanout = 0
        # True if the parents are listed, and are not computed from `uri`.
        self._given = parents is not None or uri == "custom"
        if parents is None:
            scheme, _, arg = uri.partition(":")
            if scheme == "kary":
                if not arg.isdigit():
                    raise TopologyError(f"tbon.topo={uri}: write kary:K with K a number, 0 for a flat tree")
                self.fanout = int(arg) or max(size - 1, 1)
            elif uri == "custom":
                parents = [-1] + [0] * (size - 1)
            elif scheme == "binomial":
                parents = [-1] + [rank & (rank - 1) for rank in range(1, size)]
            elif scheme == "mincrit":
                if arg and not arg.isdigit():
                    raise TopologyError(f"tbon.topo={uri}: write mincrit:K with K a number of routers, or mincrit")
                parents = _few_critical(size, int(arg) if arg else None)
            else:
                text = f"unknown topology scheme '{scheme}', give kary:K, mincrit:K, binomial or custom"
                raise TopologyError(f"tbon.topo={uri}: {text}")
        if parents is None:
            parents = [-1] + [(rank - 1) // self.fanout for rank in range(1, size)]
        if len(parents) != size or parents[0] != -1:
            raise TopologyError("rank 0 has no parent and every other rank has one")
        self._parents = list(parents)
        self._children: list[list[int]] = [[] for _ in range(size)]
        for rank in range(1, size):
            parent = self._parents[rank]
            if not 0 <= parent < size or parent == rank:
                raise TopologyError(f"rank {rank}: parent {parent} is not another rank of this instance")
            self._children[parent].append(rank)
        # The ranks that other ranks depend on.
        self.routers = [rank for rank in range(size) if not rank or self._children[rank]]
        self._subtree: dict[int, frozenset[int]] = {}
        # Hops from rank 0 to the farthest rank.
        self.max_level = max(self._depth(rank) for rank in range(size))

    def _depth(self, rank: int) -> int:
        depth = 0
        while rank:
            rank = self._parents[rank]
            depth += 1
            if depth > self.size:
                raise TopologyError("the parents form a cycle")
        return depth

    def grown(self, size: int) -> Topology:
        """Return the tree with `size` ranks, in which the ranks of this tree keep their parents.

        If parents were listed, rank 0 is the parent of each new rank. Raises TopologyError if a parent would change.
        """
        if size < self.size:
            raise TopologyError(f"size {size}: an instance of {self.size} brokers does not get smaller")
        if self._given:
            return Topology(size, self.uri, [*self._parents, *[0] * (size - self.size)])
        tree = Topology(size, self.uri)
        if tree._parents[: self.size] != self._parents:
            raise TopologyError(f"tbon.topo={self.uri}: with {size} brokers, brokers that run would have other parents")
        return tree

    def parent(self, rank: int) -> int:
        """The parent's rank, -1 for rank 0."""
        return self._parents[rank]

    def children(self, rank: int) -> list[int]:
        return self._children[rank]

    def level(self, rank: int) -> int:
        """Hops from rank 0."""
        return self._depth(rank)

    def subtree(self, rank: int) -> frozenset[int]:
        """The ranks at and below `rank`."""
        found = self._subtree.get(rank)
        if found is None:
            found = frozenset(self._walk(rank))
            self._subtree[rank] = found
        return found

    def _walk(self, rank: int) -> Iterator[int]:
        stack = [rank]
        while stack:
            here = stack.pop()
            yield here
            stack.extend(self._children[here])

    def next_hop(self, here: int, target: int) -> int:
        """The neighbour of `here` on the way to `target`: a child's rank, or the parent's."""
        walk = target
        while walk > 0:
            parent = self._parents[walk]
            if parent == here:
                return walk
            walk = parent
        return self._parents[here]


def _few_critical(size: int, routers: int | None) -> list[int]:
    """The parents for `mincrit`: rank 0 for routers; routers, evenly, for the other ranks."""
    others = size - 1
    if routers is None:
        routers = 0 if others <= _MOST_CHILDREN else -(-others // (_MOST_CHILDREN + 1))
    if not 0 < routers < others:
        return [-1] + [0] * others
    leaves = others - routers
    return [-1] + [0] * routers + [1 + leaf * routers // leaves for leaf in range(leaves)]
