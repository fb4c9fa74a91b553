"""The nodes that a job was given: further ones, other ones, and those that it gives back."""

from __future__ import annotations

from headrace.cluster_queue.model.assignment import Assignment

GIVEN = Assignment(("a", "b", "c", "d"), ("x", "y", "x", "x"), frozenset({1, 2}))


def test_further_nodes_come_first_to_what_was_given_back_of_their_set() -> None:
    assert GIVEN.kept == [0, 3]
    found, indexes = GIVEN.with_nodes("x", ["e", "f"])
    assert indexes == [2, 4]
    assert found == Assignment(("a", "b", "e", "d", "f"), ("x", "y", "x", "x", "x"), frozenset({1}))
    assert Assignment().with_nodes("y", ["a", "b"]) == (Assignment(("a", "b"), ("y", "y")), [0, 1])


def test_a_pod_may_get_another_node() -> None:
    assert GIVEN.moved(3, "z").nodes == ("a", "b", "c", "z")


def test_the_last_nodes_are_forgotten_if_the_assignment_shrinks() -> None:
    assert GIVEN.without([3], shrinks=False) == Assignment(GIVEN.nodes, GIVEN.sets, frozenset({1, 2, 3}))
    assert GIVEN.without([3], shrinks=True) == Assignment(("a",), ("x",))
    assert GIVEN.without([0], shrinks=True).freed == {0, 1, 2}
