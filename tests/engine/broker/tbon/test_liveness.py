"""Torpid children: who says nothing for long enough, and when that is over. Time is the test's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.budget import Budget
from headrace.engine.broker.tbon.child import Child
from headrace.engine.broker.tbon.liveness import ALIVE, Liveness, Probes
from headrace.formats.spec.topology import Topology


class Timer:
    """As asyncio.TimerHandle."""

    def __init__(self, world: World, due: float, fn: Callable[[], None]) -> None:
        self.world, self.due, self.fn = world, due, fn

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.world.timers.remove(self)


class World:
    """A broker of rank 0 or 1 with its children, a clock, and what it did."""

    def __init__(self, rank: int = 0, **attrs: str) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.logged: list[str] = []
        self.sent: list[Any] = []
        self.updates: list[Any] = []
        self.reports = 0
        loop = SimpleNamespace(time=lambda: self.now, call_later=self.later)
        call = lambda topic, body, nodeid: self.updates.append(body["update"]["broker.torpid"])  # noqa: E731
        self.attrs = AttrTable({"tbon.torpid_min": "5s", "tbon.torpid_max": "30s", **attrs})
        log = lambda _level, _who, text: self.logged.append(text)  # noqa: E731
        broker = SimpleNamespace(attrs=self.attrs, loop=loop, log=log, context=SimpleNamespace(call=call))
        topology = Topology(7, "kary:2")
        self.children = {child: Child(child, Budget(print)) for child in topology.children(rank)}
        for child in self.children.values():
            child.heard = self.now
            child.become("full")
        self.overlay: Any = SimpleNamespace(
            broker=broker,
            rank=rank,
            topology=topology,
            children=self.children,
            closing=False,
            parent=SimpleNamespace(quiet=False, transmit=self.sent.append),
            report=lambda: setattr(self, "reports", self.reports + 1),
        )
        self.liveness = Liveness(self.overlay)
        self.liveness.start()

    def later(self, seconds: float, fn: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self, self.now + seconds, fn))
        return self.timers[-1]

    def pass_time(self, until: float) -> None:
        while due := sorted((timer for timer in self.timers if timer.due <= until), key=Timer.when):
            self.timers.remove(due[0])
            self.now = due[0].due
            due[0].fn()
        self.now = until


def test_a_silent_child_and_all_below_it_become_torpid_once() -> None:
    world = World()
    for moment in range(100, 200, 10):
        world.pass_time(moment)
        world.children[2].heard = world.now
    assert world.updates == [{"add": "1,3-4"}]
    assert (world.children[1].torpid, world.children[2].torpid) == (True, False)
    world.liveness.heard(world.children[1])
    assert world.updates[1:] == [{"remove": "1,3-4"}]
    assert world.reports == 2
    assert world.logged == ["rank 1 is torpid: no message for 30s", "rank 1 is not torpid any more"]


def test_a_child_that_is_not_there_is_not_torpid() -> None:
    world = World()
    world.children[1].status = "lost"
    world.children[2].status = "offline"
    world.pass_time(300)
    assert world.updates == []


def test_a_broker_that_was_stopped_itself_blames_nobody_at_once() -> None:
    world = World()
    # Nothing ran for a minute: what the children said is in the socket.
    world.now = 160.0
    world.timers.pop().fn()
    assert world.updates == []


@pytest.mark.parametrize("busy", [False, True])
def test_who_has_nothing_to_say_says_so(busy: bool) -> None:
    world = World(rank=1, **{"tbon.torpid_max": "inf"})
    for moment in range(105, 131, 5):
        if busy:
            world.overlay.parent.quiet = False
        world.pass_time(moment)
    assert [msg.aux1 for msg in world.sent] == ([] if busy else [ALIVE] * 5)


@pytest.mark.parametrize("value", ["0", "inf"])
def test_it_can_be_switched_off(value: str) -> None:
    assert World(rank=1, **{"tbon.torpid_min": value, "tbon.torpid_max": value}).timers == []


def test_the_times_may_change_while_it_runs() -> None:
    world = World(rank=1)
    world.pass_time(101)
    world.attrs.update("tbon.torpid_max", "2s")
    world.attrs.update("tbon.torpid_min", "1s")
    world.pass_time(104.5)
    assert [msg.aux1 for msg in world.sent] == [ALIVE] * 2
    assert world.updates == [{"add": "3"}, {"add": "4"}]
    world.attrs.update("tbon.torpid_max", "0")
    world.attrs.update("tbon.torpid_min", "inf")
    world.attrs.update("log-stderr-level", "7")
    assert world.timers == []


def test_nothing_is_said_or_seen_after_the_end() -> None:
    world = World(rank=1)
    world.overlay.closing = True
    world.pass_time(1000)
    assert (world.sent, world.updates, world.timers) == ([], [], [])


def test_children_are_probed_at_once_and_later_when_zeromq_has_forgotten_the_peer() -> None:
    world = World(**{"tbon.torpid_max": "0"})
    times: list[float] = []
    probes = Probes(world.overlay.broker.loop, lambda: times.append(world.now))
    probes.connection_ended()
    probes.connection_ended()
    assert times == [100.0]
    # The second connection ended after the first probe, so there are two more for it.
    world.pass_time(101)
    assert times == pytest.approx([100.0, 100.05, 100.1])
    probes.connection_ended()
    probes.close()
    assert world.timers == []
