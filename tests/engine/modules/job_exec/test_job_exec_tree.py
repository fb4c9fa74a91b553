"""Reducing a job's replies in a tree of brokers: each hears of its subtree once, whatever the order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_exec.tree import HERE, Part, bits_of, ranks_of, split
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.topology import Topology


class Tree:
    """The parts of one job at all brokers of a tree, and what comes out at rank 0."""

    def __init__(self, size: int, shape: str, ranks: list[int]) -> None:
        topology = Topology(size, shape)
        self.parent = topology.parent
        self.parts: dict[int, Part] = {}
        self.started = 0
        self.finish: Any = None
        self.pairs: dict[str, Any] | None = None
        todo = [(0, bits_of(ranks))]
        while todo:
            rank, targets = todo.pop()
            subtrees = {child: bits_of(sorted(topology.subtree(child))) for child in topology.children(rank)}
            here, below = split(targets, rank, subtrees)
            assert bits_of([rank] if here else []) + sum(below.values()) == targets, "every rank goes one way"
            self.parts[rank] = Part({}, rank, ranks.index(rank) if here else None, below)
            todo.extend(below.items())

    def say_started(self, rank: int, source: int = HERE) -> None:
        if self.parts[rank].started(source):
            if rank == 0:
                self.started += 1
            else:
                self.say_started(self.parent(rank), rank)

    def say_finished(self, rank: int, status: int, bad: list[list[int]], source: int = HERE) -> None:
        if self.parts[rank].finished(source, status, bad):
            whole = self.parts[rank].finish
            if rank == 0:
                assert self.finish is None, "the end was said twice"
                self.finish = whole
            else:
                self.say_finished(self.parent(rank), whole.status, whole.bad, rank)

    def enter(self, rank: int, seq: int, pairs: dict[str, Any], source: int = HERE) -> None:
        merged = self.parts[rank].barrier(source, seq, pairs)
        if merged is not None:
            if rank == 0:
                self.pairs = merged
            else:
                self.enter(self.parent(rank), seq, merged, rank)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Tree, list[int]]:
    size = draw(st.integers(1, 20))
    ranks = sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)))
    return Tree(size, draw(st.sampled_from(["kary:1", "kary:2", "kary:3", "kary:32"])), ranks), ranks


@given(jobs(), st.randoms(use_true_random=False), st.data())
def test_the_end_has_the_largest_status_and_each_bad_rank_once(
    made: tuple[Tree, list[int]], chance: Any, data: st.DataObject
) -> None:
    tree, ranks = made
    order = ranks * 2
    chance.shuffle(order)
    statuses = {rank: data.draw(st.sampled_from([0, 0, 256, 9])) for rank in ranks}
    heard: set[int] = set()
    for rank in order:
        assert (tree.finish is None) == (heard != set(ranks))
        heard.add(rank)
        tree.say_started(rank)
        tree.say_finished(rank, statuses[rank], [[rank, statuses[rank]]] if statuses[rank] else [])
    assert tree.started == 1
    assert tree.finish.status == max(statuses.values())
    assert sorted(tree.finish.bad) == [[rank, status] for rank, status in sorted(statuses.items()) if status]


@given(jobs(), st.randoms(use_true_random=False))
def test_a_barrier_is_over_when_all_are_in_and_has_everybodys_pairs(made: tuple[Tree, list[int]], chance: Any) -> None:
    tree, ranks = made
    for seq in range(2):
        chance.shuffle(ranks)
        tree.pairs = None
        for rank in ranks:
            assert tree.pairs is None
            tree.enter(rank, seq, {f"{seq}.{rank}": rank})
        assert tree.pairs == {f"{seq}.{rank}": rank for rank in ranks}
    assert all(part.barriers == {} for part in tree.parts.values())


@given(st.lists(st.sets(st.integers(0, 50), min_size=1), min_size=1, max_size=3))
def test_the_ranks_of_r_are_those_of_all_its_groups(groups: list[set[int]]) -> None:
    r = {"execution": {"R_lite": [{"rank": str(Idset(group)), "children": {}} for group in groups]}}
    assert ranks_of(r) == sorted(set().union(*groups))
