"""What a parent knows of a child before anything is sent: its life, and what it is called."""

from __future__ import annotations

import pytest

from headrace.engine.broker.budget import Budget
from headrace.engine.broker.tbon.child import Child


@pytest.mark.parametrize(("status", "alive"), [("offline", False), ("partial", True), ("full", True), ("lost", False)])
def test_a_child_lives_from_its_hello_until_it_goes_or_is_lost(status: str, alive: bool) -> None:
    child = Child(3, Budget(print))
    assert not child.alive
    child.become(status)
    assert (child.status, child.alive) == (status, alive)


def test_a_status_that_is_reported_again_is_as_old_as_before() -> None:
    child = Child(3, Budget(print))
    child.become("full")
    child.since -= 100.0
    since = child.since
    child.become("full")
    assert child.since == since
    child.become("partial")
    assert child.since > since


def test_the_log_names_the_host_once_it_is_known() -> None:
    child = Child(3, Budget(print))
    assert child.title == "rank 3"
    child.host = "node3"
    assert child.title == "rank 3 (node3)"


def test_who_follows_a_child_is_told_of_each_change_once() -> None:
    child = Child(3, Budget(print))
    told = []
    child.changed = lambda child: told.append(child.monitored())
    for status in ("full", "full", "lost"):
        child.become(status)
    assert told == [{"rank": 3, "status": status, "torpid": False} for status in ("full", "lost")]
