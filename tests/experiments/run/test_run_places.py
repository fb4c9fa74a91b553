"""The pool of places: reuse by shape, room for other shapes, and removal after the last run."""

from __future__ import annotations

import threading

from headrace.experiments.run.places import Lease, Pool


class Closed:
    """A place that stands for an instance."""

    def run(self, *_: object) -> object:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def pool(nodes: int, one: bool = False) -> Pool:
    return Pool(nodes, one, threading.Condition(threading.RLock()))


def reserved(one: Pool, shape: str, size: int) -> tuple[Lease, list[object]] | None:
    """A place, opened at once, or None if a run would wait."""
    with one._condition:
        waits = threading.Event()
        one._condition.wait = lambda *_: waits.set()  # type: ignore[method-assign]
        found = one.reserve((shape,), size, waits.is_set)
        if found and found[0].place is None:
            found[0].place = Closed()  # type: ignore[assignment]
        return found  # type: ignore[return-value]


def freed(one: Pool, lease: Lease) -> None:
    with one._condition:
        one.free(lease)


def test_a_free_place_of_the_shape_is_used_again() -> None:
    one = pool(4)
    first = reserved(one, "a", 2)
    assert first and first[1] == []
    freed(one, first[0])
    again = reserved(one, "a", 2)
    assert again and again[0] is first[0]


def test_another_place_of_the_shape_is_opened_if_there_is_room() -> None:
    one = pool(4)
    first, second = reserved(one, "a", 2), reserved(one, "a", 2)
    assert first and second and first[0] is not second[0]
    assert reserved(one, "a", 2) is None


def test_with_one_place_for_each_shape_a_run_waits_for_it() -> None:
    one = pool(4, one=True)
    first = reserved(one, "a", 2)
    assert first and reserved(one, "a", 2) is None
    assert reserved(one, "b", 2) is not None


def test_idle_places_make_room_the_longest_unused_first() -> None:
    one = pool(4)
    a, b = reserved(one, "a", 1), reserved(one, "b", 2)
    assert a and b
    assert reserved(one, "c", 3) is None
    freed(one, b[0])
    freed(one, a[0])
    c = reserved(one, "c", 3)
    assert c and c[1] == [b[0].place]
    again = reserved(one, "a", 1)
    assert again and again[0] is a[0]


def test_places_of_shapes_that_no_run_needs_are_removed() -> None:
    one = pool(4)
    a, b = reserved(one, "a", 1), reserved(one, "b", 1)
    assert a and b
    freed(one, a[0])
    assert one.take_idle(frozenset([("b",)])) == [a[0].place]
    assert one.take_idle(frozenset()) == [] and one.take_all() == [b[0].place]
