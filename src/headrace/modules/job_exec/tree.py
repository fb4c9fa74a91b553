"""A job's part of the tree at one broker: what is below, what has been heard, and what goes up as one reply. Pure.

A start travels once per edge, from rank 0 down to the ranks of the job; each broker on the way counts how many replies
it expects (its own shell and one for each child with ranks of the job below), and answers upward once, when it has
them all. A 1,000-node job costs a broker with 32 children 33 small messages, not 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.spec.idset import Idset

# The broker's own shell, as a source of replies next to child ranks.
HERE = -1
# Wait status of a shell that went down with its broker: as if killed.
LOST_STATUS = 9


class Finish(NamedTuple):
    """The largest wait status below, and (rank, status) of every shell that did not end with 0."""

    status: int
    bad: list[list[int]]


class Part:
    """One job at one broker. `children` maps a child's rank to the job's ranks at and below it (a bit set)."""

    __slots__ = ("barriers", "children", "finish", "heard_finish", "heard_start", "here", "job", "nodeid", "rank")

    def __init__(self, job: dict[str, Any], rank: int, nodeid: int | None, children: dict[int, int]) -> None:
        self.job = job
        self.rank = rank
        self.nodeid = nodeid
        self.here = nodeid is not None
        self.children = children
        self.heard_start: set[int] = set()
        self.heard_finish: set[int] = set()
        self.finish = Finish(0, [])
        self.barriers: dict[int, tuple[set[int], dict[str, Any]]] = {}

    @property
    def expected(self) -> int:
        return len(self.children) + self.here

    def started(self, source: int) -> bool:
        """A subtree's shells run; True when this was the last one."""
        if source in self.heard_start:
            return False
        self.heard_start.add(source)
        return len(self.heard_start) == self.expected

    def finished(self, source: int, status: int, bad: Iterable[list[int]]) -> bool:
        """A subtree's shells are gone; True when this was the last one, `finish` is then complete."""
        if source in self.heard_finish:
            return False
        self.heard_finish.add(source)
        self.finish = Finish(max(self.finish.status, status), [*self.finish.bad, *bad])
        return len(self.heard_finish) == self.expected

    def barrier(self, source: int, seq: int, pairs: dict[str, Any]) -> dict[str, Any] | None:
        """A subtree entered barrier `seq`; all pairs below when this was the last one, else None."""
        heard, merged = self.barriers.setdefault(seq, (set(), {}))
        heard.add(source)
        merged.update(pairs)
        if len(heard) < self.expected:
            return None
        del self.barriers[seq]
        return merged


def split(targets: int, rank: int, subtrees: dict[int, int]) -> tuple[bool, dict[int, int]]:
    """Divide a job's ranks at broker `rank`: is it one of them, and which lie below which child."""
    below = {child: targets & members for child, members in subtrees.items()}
    return bool(targets >> rank & 1), {child: ranks for child, ranks in below.items() if ranks}


def ranks_of(r: dict[str, Any]) -> list[int]:
    """The ranks of R (RFC 20), ascending."""
    groups = r["execution"]["R_lite"]
    if len(groups) == 1 and groups[0]["rank"].isdigit():
        return [int(groups[0]["rank"])]
    ranks = Idset()
    for group in groups:
        ranks |= Idset.parse(group["rank"])
    return list(ranks)


def bits_of(ranks: list[int]) -> int:
    bits = 0
    for rank in ranks:
        bits |= 1 << rank
    return bits
