"""Trees: parents, children, subtrees and the next hop agree with each other in every shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.topology import Topology, TopologyError


@given(
    st.integers(1, 200),
    st.sampled_from(["kary:1", "kary:2", "kary:3", "kary:32", "kary:0", "binomial", "mincrit", "mincrit:3"]),
)
def test_every_rank_is_reached_hop_by_hop(size, uri):
    tree = Topology(size, uri)
    assert tree.subtree(0) == frozenset(range(size))
    for rank in range(size):
        assert all(tree.parent(child) == rank for child in tree.children(rank))
        here, hops = 0, 0
        while here != rank:
            here = tree.next_hop(here, rank)
            hops += 1
        assert hops == tree.level(rank) <= tree.max_level
        while here:
            here = tree.next_hop(here, 0)


def test_a_message_for_another_branch_goes_up_first():
    tree = Topology(7, "kary:2")
    assert tree.next_hop(3, 6) == 1
    assert tree.next_hop(1, 6) == 0
    assert tree.next_hop(0, 6) == 2


@pytest.mark.parametrize("uri", ["", "kary", "kary:x", "kary:-1", "mincrit:x", "ring:3"])
def test_an_unknown_shape_is_refused(uri):
    with pytest.raises(TopologyError):
        Topology(4, uri)


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-1, 2, 1], [-1, 5], [-1]])
def test_a_parent_list_must_be_a_tree(parents):
    with pytest.raises(TopologyError):
        Topology(max(2, len(parents)), "kary:2", parents)


@pytest.mark.parametrize(
    ("size", "uri", "routers"),
    [
        (9, "mincrit:2", [3, 3]),
        (1, "mincrit:2", []),
        (3, "mincrit:2", []),
        (10, "mincrit", []),
        (2051, "mincrit", [1024] * 2),
    ],
)
def test_mincrit_has_few_routers_with_as_many_leaves_each(size, uri, routers):
    tree = Topology(size, uri)
    assert [len(tree.children(rank)) for rank in range(1, size) if tree.children(rank)] == routers
    assert len(tree.children(0)) == (len(routers) or size - 1)


@given(st.integers(1, 80), st.integers(0, 80), st.sampled_from(["kary:1", "kary:3", "kary:0", "binomial", "custom"]))
def test_a_tree_that_grows_is_the_tree_of_its_new_size_and_nobody_changes_parents(size, more, uri):
    small = Topology(size, uri)
    large, whole = small.grown(size + more), Topology(size + more, uri)
    everyone = range(size + more)
    assert [large.parent(rank) for rank in everyone] == [whole.parent(rank) for rank in everyone]
    assert [large.children(rank) for rank in everyone] == [whole.children(rank) for rank in everyone]
    assert [large.parent(rank) for rank in range(size)] == [small.parent(rank) for rank in range(size)]
    assert large.subtree(0) == frozenset(range(size + more))


def test_parents_that_were_named_stay_and_others_are_under_the_first():
    tree = Topology(4, "custom", [-1, 0, 1, 1]).grown(6)
    assert [tree.parent(rank) for rank in range(6)] == [-1, 0, 1, 1, 0, 0]


def test_a_tree_that_cannot_grow_without_new_parents_says_so():
    with pytest.raises(TopologyError, match="mincrit:2: with 9 brokers, brokers that run would have other parents"):
        Topology(5, "mincrit:2").grown(9)
    with pytest.raises(TopologyError, match="does not get smaller"):
        Topology(5, "kary:2").grown(4)
