"""Real links between brokers in one process: who may enter, how a child goes, and what is said of it."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from typing import Any

import zmq

from headrace.engine.broker.boot import boot
from headrace.engine.broker.tbon.overlay import Overlay
from headrace.formats.spec import message as m
from headrace.formats.spec.topology import Topology
from waiting import PATIENCE, stays_in_loop

Run = Callable[..., None]


async def until(done: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < limit
        await asyncio.sleep(0.002)


def linked(broker: Any, info: boot.BootInfo) -> Any:
    """Give a little broker a life in the tree; `members` is what its overlay reported."""
    broker.rank, broker.uuid, broker.stopping = info.rank, f"uuid-{info.rank}", False
    broker.router.rank = info.rank
    broker.context = broker.context("broker")
    broker.members, broker.ready, broker.lost = [], [], []
    overlay = broker.overlay = Overlay(broker, info)
    overlay.answer_hello = lambda: {"hosts": info.hosts, "state": "join"}
    overlay.on_ready = broker.ready.append
    overlay.on_parent_lost = broker.lost.append
    overlay.on_members = lambda *ranks: broker.members.append(tuple(map(str, ranks)))
    return broker


async def pair(lead: Any, folder: Any, follower_key: bytes | None = None) -> tuple[Any, Any]:
    """A parent and its child, with the child's hello on its way."""
    infos = boot.on_one_machine(2, str(folder), Topology(2, "kary:2"), ["a", "b"])
    if follower_key is not None:
        infos[1].public_key, infos[1].secret_key = boot.new_keys()
    parent, child = linked(lead, infos[0]), linked(type(lead)(1, 2, {}), infos[1])
    parent.overlay.start()
    child.overlay.start()
    return parent, child


def test_a_child_that_goes_in_order_is_offline_and_not_lost(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path)
        await until(lambda: child.ready)
        assert child.ready[0]["hosts"] == ["a", "b"]
        child.overlay.report(online=[1])
        await until(lambda: ("1", "", "") in parent.members)
        # Its goodbye is in the socket when the parent finds that it cannot be reached.
        parent.loop.remove_reader(parent.overlay._bound.get(zmq.FD))
        child.overlay.close()
        entry = parent.overlay.children[1]
        await until(lambda: parent.overlay._probe(entry) or not entry.alive)
        assert (entry.status, entry.error) == ("offline", "")
        await until(lambda: ("", "1", "") in parent.members)
        assert not [line for line in parent.log.ring if "lost" in line]
        parent.overlay.close()

    in_broker(scenario, size=2)


def test_a_child_that_is_torn_off_is_lost_and_what_it_owes_is_answered(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path)
        await until(lambda: child.ready)
        peer = parent.owner_peer()
        msg = m.request("some.thing", {}, 1, 7, 0, peer.userid, peer.rolemask)
        msg.routes.append(peer.uuid.encode())
        parent.router.request(msg)
        await until(lambda: len(parent.overlay.children[1].sent_requests))
        parent.overlay.since -= 100.0
        assert parent.overlay.health()["duration"] > 100.0
        child.overlay.parent = None
        child.overlay.close()
        await until(lambda: peer.got)
        assert (peer.got[0].matchtag, peer.got[0].errnum) == (7, errno.EHOSTUNREACH)
        assert parent.overlay.children[1].status == "lost"
        assert parent.overlay.health()["status"] == "degraded"
        await until(lambda: parent.overlay.health()["duration"] < 50.0)
        assert any("rank 1 (b) was lost" in line for line in parent.log.ring)
        parent.overlay.close()

    in_broker(scenario, size=2)


def test_a_child_that_was_cut_off_is_lost_even_when_zeromq_connects_it_again(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path)
        await until(lambda: child.ready)
        entry = parent.overlay.children[1]
        # The child was told of the end of a connection, and the parent, which was busy, finds the next one.
        child.overlay._parent_lost("connection closed")
        assert child.lost == ["connection closed"]
        # It takes a while to end its jobs, and is lost before.
        await until(lambda: not entry.alive)
        assert (entry.status, entry.error) == ("lost", "lost connection: connection closed")
        assert not child.overlay.send_up(m.request("some.thing", {}))
        child.overlay.close()
        await until(lambda: parent.members)
        await stays_in_loop(lambda: entry.status == "lost", 0.2)
        assert parent.members == [("", "1", "1")]
        parent.overlay.close()

    in_broker(scenario, size=2)


def test_a_child_that_leaves_out_of_order_is_lost(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path)
        await until(lambda: child.ready)
        child.overlay.close(in_order=False)
        await until(lambda: not parent.overlay.children[1].alive)
        assert parent.overlay.children[1].status == "lost"
        parent.overlay.close()

    in_broker(scenario, size=2)


def test_a_key_that_is_no_members_never_gets_to_say_hello(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path, follower_key=b"another")
        await stays_in_loop(lambda: child.ready == [] and not parent.overlay.children[1].alive, 0.2)
        child.overlay.close()
        parent.overlay.close()

    in_broker(scenario, size=2)


def test_a_second_broker_of_a_rank_is_refused_while_the_first_lives(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child = await pair(lead, tmp_path)
        await until(lambda: child.ready)
        second = linked(type(lead)(1, 2, {}), child.overlay.boot)
        second.overlay.uuid = "uuid-second"
        second.overlay.start()
        await until(lambda: second.lost)
        assert "rank 1 is already here" in second.lost[0]
        text = f"hello of b at process {os.getpid()} refused: rank 1 is already here as uuid-1"
        assert [line for line in parent.log.ring if line.endswith(text)]
        assert parent.overlay.child_of("uuid-1") == 1
        for broker in (second, child, parent):
            broker.overlay.close()

    in_broker(scenario, size=2)


async def late_parent(lead: Any, folder: Any) -> list[Any]:
    """A leader that does not listen yet, its child and its grandchild, whose hello has come to the child."""
    infos = boot.on_one_machine(3, str(folder), Topology(3, "kary:1"), ["a", "b", "c"])
    brokers = [linked(lead if not rank else type(lead)(rank, 3, {}), info) for rank, info in enumerate(infos)]
    for broker in brokers[1:]:
        broker.overlay.start()
    await until(lambda: brokers[1].overlay._early)
    return brokers


def test_a_hello_waits_until_the_parent_knows_what_it_answers(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child, grandchild = await late_parent(lead, tmp_path)
        child.overlay.answer_hello = lambda: {"knows": list(child.ready)}
        assert not child.overlay.children[2].alive
        parent.overlay.start()
        await until(lambda: grandchild.ready)
        assert grandchild.ready[0]["knows"] == child.ready
        assert child.overlay.children[2].alive
        for broker in (grandchild, child, parent):
            broker.overlay.close()

    in_broker(scenario, size=3)


def test_who_has_gone_before_it_was_let_in_is_not_lost(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        parent, child, grandchild = await late_parent(lead, tmp_path)
        grandchild.overlay.close()
        await until(lambda: not child.overlay._early)
        parent.overlay.start()
        await until(lambda: child.ready)
        assert child.overlay.children[2].status == "offline"
        assert not [line for line in child.log.ring if "lost" in line]
        for broker in (child, parent):
            broker.overlay.close()

    in_broker(scenario, size=3)


def test_a_rank_that_is_no_child_of_ours_is_refused_and_logged_with_its_address(in_broker: Run, tmp_path: Any) -> None:
    async def scenario(lead: Any) -> None:
        infos = boot.on_one_machine(2, str(tmp_path), Topology(2, "kary:2"), ["a", "b"], tcp="127.0.0.1")
        parent, child = linked(lead, infos[0]), linked(type(lead)(1, 2, {}), infos[1])
        parent.overlay.start()
        # As one that has another list of hosts.
        child.overlay.rank = 7
        child.overlay.start()
        await until(lambda: child.lost)
        text = "refused: rank 7 is not a child of rank 0, or its uuid is not its own"
        assert child.lost == [f"hello {text}"]
        assert [line for line in parent.log.ring if line.endswith(f"hello of b at 127.0.0.1 {text}")]
        child.overlay.close()
        parent.overlay.close()

    in_broker(scenario, size=2)
