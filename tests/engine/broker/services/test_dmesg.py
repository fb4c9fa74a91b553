"""The log service: the ring and what follows, guests, and what a follower sends to the leader."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.logbook import format_line, parse_line
from headrace.engine.broker.services import dmesg
from headrace.formats.spec import message as m

Run = Callable[..., None]


def served(broker: Any) -> Any:
    """The broker with its log service, and `overlay.drained` answered at once."""
    ctx = broker.context("broker")
    dmesg.register(broker, ctx)
    broker.context("overlay").service("overlay", {"drained": lambda _msg: {}})
    return broker


def texts(replies: list[m.Message]) -> list[str]:
    return [parse_line(reply.text)[4] for reply in replies if not reply.errnum]


def test_the_ring_is_answered_line_by_line_and_ends(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        wanted = [f"line {number}" for number in range(3 * dmesg.PORTION)]
        for text in wanted:
            broker.log(logging.INFO, "test", text)
        replies = await broker.owner_peer().ask("log.dmesg", {}, m.FLAG_STREAMING)
        while not replies[-1].errnum:
            await asyncio.sleep(0)
            replies = [*broker.router.peers[b"owner"].got]
        assert texts(replies) == wanted
        assert replies[-1].errnum == errno.ENODATA

    in_broker(scenario)


def test_who_follows_gets_new_lines_once_and_in_order(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        broker.log(logging.INFO, "test", "old")
        peer = broker.owner_peer()
        assert texts(await peer.ask("log.dmesg", {"follow": True}, m.FLAG_STREAMING)) == ["old"]
        other = broker.owner_peer("other")
        assert await other.ask("log.dmesg", {"follow": True, "nobacklog": True}, m.FLAG_STREAMING, 2) == []
        line = format_line(6, "0", "client", "new", 0.0)
        await broker.guest().ask("log.append", payload=line.encode() + b"\0")
        new = f"{broker.owner + 1} client: new"
        assert texts(peer.got) == ["old", new]
        assert texts(other.got) == [new]

    in_broker(scenario)


def test_a_guest_may_append_a_line_but_not_read_clear_or_speak_for_a_broker(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        guest = broker.guest()
        assert (await guest.ask("log.append", payload=b"no line\0"))[0].errnum == errno.EPROTO
        assert (await guest.ask("log.clear", tag=2))[0].errnum == errno.EPERM
        assert (await guest.ask("log.dmesg", {}, m.FLAG_STREAMING, tag=4))[0].errnum == errno.EPERM
        assert (await guest.ask("log.forward", tag=3, payload=b"x\0"))[0].errnum == errno.EPERM

    in_broker(scenario)


def test_a_guest_has_so_many_bytes_a_minute_here_and_at_the_leader(in_broker: Run) -> None:
    line = format_line(6, "0", "x", "y" * 1000, 0.0).encode() + b"\0"

    async def leader(broker: Any) -> None:
        served(broker)
        broker.budget.limits["log-bytes"] = 2500
        guest = broker.guest()
        answers = [(await guest.ask("log.append", tag=tag, payload=line))[0] for tag in (1, 2, 3)]
        assert [answer.errnum for answer in answers] == [0, 0, errno.ENOSPC]
        assert "access.limits.log-bytes" in answers[2].text
        # Of another guest, from a follower, which is an owner's request in that guest's name.
        sender = broker.owner_peer()
        for tag, code in ((4, 0), (5, 0), (6, errno.ENOSPC)):
            sender.userid = broker.owner + 2
            assert (await sender.ask("log.forward", tag=tag, payload=line))[0].errnum == code
        sender.userid = broker.owner
        assert [(await sender.ask("log.append", tag=tag, payload=line))[0].errnum for tag in (7, 8, 9)] == [0, 0, 0]
        # A guest of another broker could not be told from one of this.
        away = m.request("log.append", None, matchtag=1, userid=guest.userid, rolemask=m.ROLE_USER, payload=line)
        away.routes += [b"client", b"child"]
        child = broker.guest("child")
        broker.router.add_neighbour(child)
        broker.router.request(away)
        await broker.settle()
        assert child.got[0].errnum == errno.EPROTO

    async def follower(broker: Any) -> None:
        served(broker)
        await broker.guest().ask("log.append", payload=line)
        broker.log(logging.ERROR, "test", "urgent")
        await broker.settle()
        assert [(msg.topic, msg.userid) for msg in broker.up] == [
            ("log.forward", broker.owner + 1),
            ("log.forward", broker.owner),
        ]

    in_broker(leader)
    in_broker(follower, rank=1, **{"log-forward-level": "7"})


def test_a_follower_sends_its_lines_together_and_urgent_ones_take_the_others_along(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        broker.log(logging.INFO, "test", "one")
        broker.log(logging.DEBUG, "test", "two\nthree")
        await asyncio.sleep(0)
        assert broker.up == []
        broker.log(logging.ERROR, "test", "urgent")
        for _ in range(5):
            await asyncio.sleep(0)
        (msg,) = broker.up
        assert (msg.topic, msg.nodeid, msg.noresponse) == ("log.forward", 0, True)
        assert [parse_line(line)[4] for line in msg.text.split("\n")] == ["one", "two", "three", "urgent"]
        broker.log(logging.INFO, "test", "later")
        while len(broker.up) == 1:
            await asyncio.sleep(0.005)
        assert parse_line(broker.up[1].text)[4] == "later"

    in_broker(scenario, rank=2)


def test_the_last_lines_of_a_broker_leave_together_when_it_says_so(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        for text in ("last", "words"):
            broker.log(logging.INFO, "test", text)
        broker.log.flush()
        (msg,) = broker.up
        assert [parse_line(line)[4] for line in msg.text.split("\n")] == ["last", "words"]

    in_broker(scenario, rank=2)


def test_the_leader_keeps_what_was_forwarded_as_lines_of_its_sender(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        lines = [format_line(6, "3", "test", text, 0.0) for text in ("a", "b")]
        await broker.owner_peer().ask("log.forward", payload="\n".join(lines).encode() + b"\0")
        assert list(broker.log.ring) == lines

    in_broker(scenario)
