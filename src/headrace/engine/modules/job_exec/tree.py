"""A job's state at one broker of the tree: its subtrees, and their replies, combined into one. Pure.

A start is sent once over each link, from rank 0 down to the ranks of the job. Each broker on the path expects replies
from its own shell and from each child with ranks of the job. Once it has all replies, it sends one reply to its parent.
So a 1,000-node job costs a broker with 32 children 33 small messages instead of 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.formats.spec.idset import Idset

# Used in place of a child's rank for the broker's own shell.
HERE = -1
# The wait status of a shell that was lost with its broker: killed by SIGKILL.
LOST_STATUS = 9


class Finish(NamedTuple):
    """The largest wait status in a subtree, and [rank, status] of every shell with a status other than 0."""

    status: int
    bad: list[list[int]]


class Part:
    """One job at one broker. `children` maps a child to the job's ranks at and below it (a bit set)."""

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
        """Record that the shells of a subtree run. True if this was the last subtree."""
        if source in self.heard_start:
            return False
        self.heard_start.add(source)
        return len(self.heard_start) == self.expected

    def finished(self, source: int, status: int, bad: Iterable[list[int]]) -> bool:
        """Record the end of a subtree's shells. True if this was the last subtree: `finish` is complete."""
        if source in self.heard_finish:
            return False
        self.heard_finish.add(source)
        self.finish = Finish(max(self.finish.status, status), [*self.finish.bad, *bad])
        return len(self.heard_finish) == self.expected

    def barrier(self, source: int, seq: int, pairs: dict[str, Any]) -> dict[str, Any] | None:
        """Record that a subtree has entered barrier `seq`.

        Returns the pairs of all subtrees if this was the last subtree, else None.
        """
        heard, merged = self.barriers.setdefault(seq, (set(), {}))
        heard.add(source)
        merged.update(pairs)
        if len(heard) < self.expected:
            return None
        del self.barriers[seq]
        return merged


def split(targets: int, rank: int, subtrees: dict[int, int]) -> tuple[bool, dict[int, int]]:
    """Split a job's ranks at broker `rank`: (True if it is one of them, the ranks below each child)."""
    below = {child: targets & members for child, members in subtrees.items()}
    return bool(targets >> rank & 1), {child: ranks for child, ranks in below.items() if ranks}


def ranks_of(r: dict[str, Any]) -> list[int]:
    """The ranks in R (RFC 20), in ascending order."""
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
