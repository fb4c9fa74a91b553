"""Output on its way to the lead shell has a bound, and what is held is let go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shell.job_output import Credits, SendWindow, size_of


@given(st.lists(st.integers(1, 65536), max_size=200))
def test_what_a_node_prints_arrives_and_never_more_than_a_window_is_on_its_way(sizes: list[int]) -> None:
    held: list[bool] = [False]
    window = SendWindow(held.append)
    way: list[int] = []
    credits = Credits(lambda _nodeid, size: window.taken(size))
    most = 0
    for size in sizes:
        # A held task is read again only after the lead took something.
        while held[-1]:
            assert way, "held for ever"
            credits.passed(3, way.pop(0))
        way.append(size)
        window.sent(size)
        most = max(most, sum(way))
    assert most < 1 << 20


def test_a_job_that_ends_is_not_held_by_a_lead_that_is_gone() -> None:
    held: list[bool] = []
    window = SendWindow(held.append)
    window.sent(1 << 20)
    assert held == [True]
    window.open()
    window.sent(1 << 20)
    assert held == [True, False]


def test_the_size_of_a_message_is_that_of_its_output() -> None:
    entries = [[1.0, "data", {"data": "four"}], [1.0, "data", {"eof": True}], [1.0, "log", {"message": "no"}]]
    assert size_of({"kind": "output", "entries": entries}) == 4
    assert size_of({"kind": "file", "path": "x", "data": "three"}) == 5
