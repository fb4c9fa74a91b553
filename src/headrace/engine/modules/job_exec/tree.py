"""A job's part of the tree at one broker: the subtrees, the replies so far, and their combination in one reply. Pure.

A start is sent once over each link, from rank 0 down to the ranks of the job. Each broker on the way counts the replies
that it expects (from its own shell, and from each child with ranks of the job below), and replies once it has all. A
1,000-node job costs a broker with 32 children 33 small messages, not 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.formats.spec.idset import Idset

# Stands for the broker's own shell among the ranks of children.
HERE = -1
# Wait status of a shell that was lost with its broker, as after SIGKILL.
LOST_STATUS = 9


class Finish(NamedTuple):
    """The largest wait status in a subtree, and (rank, status) of every shell that did not end with 0."""

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
        """The shells of a subtree run; returns whether this was the last subtree."""
        if source in self.heard_start:
            return False
        self.heard_start.add(source)
        return len(self.heard_start) == self.expected

    def finished(self, source: int, status: int, bad: Iterable[list[int]]) -> bool:
        """The shells of a subtree have ended; returns whether this was the last subtree, and `finish` is complete."""
        if source in self.heard_finish:
            return False
        self.heard_finish.add(source)
        self.finish = Finish(max(self.finish.status, status), [*self.finish.bad, *bad])
        return len(self.heard_finish) == self.expected

    def barrier(self, source: int, seq: int, pairs: dict[str, Any]) -> dict[str, Any] | None:
        """A subtree has entered barrier `seq`; returns all pairs below if this was the last subtree, otherwise None."""
        heard, merged = self.barriers.setdefault(seq, (set(), {}))
        heard.add(source)
        merged.update(pairs)
        if len(heard) < self.expected:
            return None
        del self.barriers[seq]
        return merged


def split(targets: int, rank: int, subtrees: dict[int, int]) -> tuple[bool, dict[int, int]]:
    """Divide a job's ranks at broker `rank`: whether it is one of them, and which are below each child."""
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
