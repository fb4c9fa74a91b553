"""What a job was given: nodes, as the status of its FluxJob names them, and on each of them a slot for one pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from . import resources


class Assignment(Struct, frozen=True):
    """The nodes that a job was given, in order, as `status.nodes` has them; the names of the sets for whose pods these
    are; and the indexes of those that it has given back.
    """

    nodes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    freed: frozenset[int] = frozenset()

    @property
    def kept(self) -> list[int]:
        """The indexes of the nodes that are not given back."""
        return [index for index in range(len(self.nodes)) if index not in self.freed]

    def with_nodes(self, own: str, given: Sequence[str]) -> tuple[Assignment, list[int]]:
        """Further nodes for pods of a set, at the first indexes of that set that are given back; and these indexes."""
        nodes, sets, indexes = list(self.nodes), list(self.sets), []
        reused = sorted(index for index in self.freed if sets[index] == own)[: len(given)]
        for index, node in zip(reused, given, strict=False):
            nodes[index] = node
        nodes += given[len(reused) :]
        indexes = [*reused, *range(len(sets), len(nodes))]
        sets += [own] * (len(nodes) - len(sets))
        return Assignment(tuple(nodes), tuple(sets), self.freed.difference(reused)), indexes

    def moved(self, index: int, node: str) -> Assignment:
        """With another node at an index."""
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def without(self, indexes: Iterable[int], shrinks: bool) -> Assignment:
        """Without the nodes at some indexes; if it `shrinks`, the last of them are forgotten."""
        freed, size = self.freed.union(indexes), len(self.nodes)
        while shrinks and size - 1 in freed:
            size -= 1
        return Assignment(self.nodes[:size], self.sets[:size], frozenset(one for one in freed if one < size))


class Slot(Struct, eq=False):
    """Room for a pod of a set on a node of a queue, which stands at `index` in the job's nodes; `pod` is the uid of the
    pod that has it, "" while there is none, and `beyond` what that has of the node beside `amounts`, as it was resized.
    The pods of its set waited for it `since` that time.
    """

    index: int
    node: str
    set: str
    hold: int
    amounts: resources.Amounts
    queue: str
    since: float = 0
    pod: str = ""
    beyond: resources.Amounts = {}
