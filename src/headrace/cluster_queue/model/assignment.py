"""The assignment of a job: its nodes, as in the status of its FluxJob, and a slot for one pod on each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from . import resources


class Assignment(Struct, frozen=True):
    """The nodes that a job was given, in the order of `status.nodes`.

    `sets` has for each node the name of the set whose pod it is for, `freed` the indexes of nodes that were freed.
    """

    nodes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    freed: frozenset[int] = frozenset()

    @property
    def kept(self) -> list[int]:
        """The indexes of the nodes that were not freed."""
        return [index for index in range(len(self.nodes)) if index not in self.freed]

    def with_nodes(self, own: str, given: Sequence[str]) -> tuple[Assignment, list[int]]:
        """Add nodes for pods of a set; returns their indexes, too. Freed indexes of the set are reused first."""
        nodes, sets, indexes = list(self.nodes), list(self.sets), []
        reused = sorted(index for index in self.freed if sets[index] == own)[: len(given)]
        for index, node in zip(reused, given, strict=False):
            nodes[index] = node
        nodes += given[len(reused) :]
        indexes = [*reused, *range(len(sets), len(nodes))]
        sets += [own] * (len(nodes) - len(sets))
        return Assignment(tuple(nodes), tuple(sets), self.freed.difference(reused)), indexes

    def moved(self, index: int, node: str) -> Assignment:
        """The assignment with another node at an index."""
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def without(self, indexes: Iterable[int], shrinks: bool) -> Assignment:
        """The assignment without the nodes at some indexes; if it `shrinks`, freed nodes at its end go, too."""
        freed, size = self.freed.union(indexes), len(self.nodes)
        while shrinks and size - 1 in freed:
            size -= 1
        return Assignment(self.nodes[:size], self.sets[:size], frozenset(one for one in freed if one < size))


class Slot(Struct, eq=False):
    """Room for one pod of a set on a node of a queue.

    `index` is the slot's index among the job's nodes. `pod` is the uid of its pod, "" while there is none. `beyond` has
    the amounts that the pod uses in addition to `amounts` after a resize. `since` is when the set's pods began to wait
    for the slot.
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
