"""What a parent knows of a child before anything is sent: its life, and what it is called."""

from __future__ import annotations

import pytest

from headrace.engine.broker.boot.boot import BootInfo
from headrace.engine.broker.budget import Budget
from headrace.engine.broker.tbon.child import Child, Hello, read_hello, refusal
from headrace.formats.spec.topology import Topology


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


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (Hello(1, "uuid", "b"), ""),
        (Hello(2, "uuid", "c"), "rank 2 is not a child of rank 0, or its uuid is not its own"),
        (Hello("1", "uuid", "b"), "rank 1 is not a child of rank 0, or its uuid is not its own"),
        (Hello(1, "another", "b"), "rank 1 is not a child of rank 0, or its uuid is not its own"),
        (Hello(1, "uuid", "c"), "rank 1 is b here, and c is rank 2"),
        (Hello(1, "uuid", "elsewhere"), ""),
    ],
)
def test_a_hello_must_name_a_child_its_own_uuid_and_the_host_of_the_table(hello: Hello, why: str) -> None:
    boot = BootInfo(0, 3, "config", Topology(3, "kary:1"), "a", ["a", "b", "c"])
    assert refusal(hello, "uuid", {1}, boot) == why


def test_a_hello_is_read_as_it_was_sent() -> None:
    assert read_hello(Hello(1, "uuid", "b").request()) == Hello(1, "uuid", "b")
