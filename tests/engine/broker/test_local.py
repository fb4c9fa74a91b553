"""A connection at the local socket that ends leaves nothing, at once, and every service it asked hears of it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pwd
import socket
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.budget import Budget
from headrace.engine.broker.events import Events
from headrace.engine.broker.local import GUEST_FRAME, SHARE, LocalServer, link_command
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m
from waiting import until_in_loop


class Box:
    """A service that keeps what it gets."""

    uuid = "box"

    def __init__(self) -> None:
        self.got: list[m.Message] = []

    def send(self, msg: m.Message) -> None:
        self.got.append(msg)


class LittleBroker:
    """What a local socket needs of its broker."""

    def __init__(self) -> None:
        self.connector = SimpleNamespace(debug=0)
        self.loop = asyncio.get_running_loop()
        self.router = Router(0, self.loop)
        self.owner = os.getuid()
        self.events = Events(0, self.router, self.owner)
        self.config: dict[str, Any] = {}
        self.receive_buffer = memoryview(bytearray(1 << 16))
        self.spawn = self.loop.create_task
        self.told: list[str] = []
        self.budget = Budget(lambda _level, text: self.told.append(text))

    def log(self, _level: int, _name: str, text: str) -> None:
        self.told.append(text)


async def connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, str(path))
    assert await asyncio.get_running_loop().sock_recv(sock, 1) == b"\0"
    return sock


def server_of(broker: Any, path: str) -> LocalServer:
    server = LocalServer(broker, path)
    server.connector = broker.connector
    return server


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("guest", [False, True])
def test_a_closed_connection_is_freed_without_the_collector(tmp_path: Path, guest: bool):
    async def main() -> None:
        server = server_of(LittleBroker(), str(tmp_path / "local"))
        server.start()
        server.connector.debug = 4 if guest else 0
        sock = await connected(tmp_path / "local")
        await turns()
        (client,) = server.clients
        left = [weakref.ref(client), weakref.ref(client._transport)]
        del client
        gc.collect()
        gc.disable()
        try:
            sock.close()
            await turns()
            assert not server.clients
            assert [ref() for ref in left] == [None, None]
        finally:
            gc.enable()
            server.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("guest", "size"), [(True, GUEST_FRAME), (True, GUEST_FRAME + 1), (False, GUEST_FRAME + 1)])
def test_a_guest_that_begins_a_message_which_is_too_large_is_dropped(tmp_path: Path, guest: bool, size: int):
    async def main() -> None:
        broker = LittleBroker()
        # The debug bit of connector-local by which the next client is a guest.
        broker.connector.debug = 4 if guest else 0
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "local"))
        server.start()
        sock = await connected(tmp_path / "local")
        whole = m.frame(m.request("box.ask", matchtag=1, payload=bytes(size - 100)))
        whole = m.frame(m.request("box.ask", matchtag=1, payload=bytes(size - 100 - (len(whole) - 8 - size))))
        assert len(whole) == 8 + size
        await asyncio.get_running_loop().sock_sendall(sock, whole[:8])
        if guest and size > GUEST_FRAME:
            await until_in_loop(lambda: not server.clients)
            limit = f"a frame of {size} bytes is over the limit of {GUEST_FRAME}"
            assert broker.told == [f"client of uid {os.getuid()} dropped: {limit}"]
        else:
            await asyncio.get_running_loop().sock_sendall(sock, whole[8:])
            await until_in_loop(lambda: box.got)
        sock.close()
        server.stop()
        await turns()

    asyncio.run(main())


async def guest_at(server: LocalServer, path: Path) -> socket.socket:
    """A connection that counts as a guest's by the debug bit of connector-local."""
    server.connector.debug = 4
    return await connected(path)


async def answers(sock: socket.socket, count: int) -> list[m.Message]:
    deframer = m.Deframer()
    found: list[m.Message] = []
    while len(found) < count:
        deframer.feed(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
        found += deframer
    return found


def test_what_a_guest_holds_is_counted_and_given_back_when_it_goes(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        broker.budget.limits.update({"connections": 2, "streams": 1})
        box = broker.router.services["box"] = Box()
        path = tmp_path / "s"
        server = server_of(broker, str(path))
        server.start()
        one, two = await guest_at(server, path), await guest_at(server, path)
        with socket.socket(socket.AF_UNIX) as third:
            third.setblocking(False)
            server.connector.debug = 4
            await broker.loop.sock_connect(third, str(path))
            assert await broker.loop.sock_recv(third, 1) == bytes((errno.EAGAIN,))
        for tag in (1, 2):
            await broker.loop.sock_sendall(
                one, m.frame(m.request("box.watch", {}, matchtag=tag, flags=m.FLAG_STREAMING))
            )
        (refused,) = await answers(one, 1)
        assert (refused.matchtag, refused.errnum) == (2, errno.EAGAIN)
        assert "access.limits.streams" in refused.text
        begun = m.frame(m.request("box.ask", matchtag=1, payload=bytes(1 << 20)))
        await broker.loop.sock_sendall(two, begun[:1000])
        uid = os.getuid()
        await until_in_loop(lambda: broker.budget.used(uid, "bytes") > 1 << 20)
        assert [broker.budget.used(uid, name) for name in ("connections", "streams")] == [2, 1]
        assert len(box.got) == 1
        # The end of the stream makes room for another.
        broker.router.response(m.error_response(box.got[0], errno.ENODATA))
        assert [msg.errnum for msg in await answers(one, 1)] == [errno.ENODATA]
        ask = m.request("box.watch", {}, matchtag=1, flags=m.FLAG_STREAMING)
        await broker.loop.sock_sendall(one, m.frame(ask))
        await until_in_loop(lambda: len(box.got) == 2)
        one.close()
        two.close()
        await until_in_loop(lambda: not broker.budget.stats()["users"][str(uid)]["connections"])
        assert not broker.budget._used
        # The owner has no limits.
        owners = [await connected(path) for _ in range(3)]
        for sock in owners:
            for tag in (1, 2):
                ask = m.request("box.watch", {}, matchtag=tag, flags=m.FLAG_STREAMING)
                await broker.loop.sock_sendall(sock, m.frame(ask))
        await until_in_loop(lambda: len([msg for msg in box.got if msg.topic == "box.watch"]) == 8)
        for sock in owners:
            sock.close()
        await turns()
        server.stop()

    asyncio.run(main())


def test_a_guest_speaks_neither_as_another_client_nor_for_a_service(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        owners = await connected(tmp_path / "s")
        await broker.loop.sock_sendall(owners, m.frame(m.request("box.watch", matchtag=1, flags=m.FLAG_STREAMING)))
        await until_in_loop(lambda: len(box.got) == 1)
        victim = box.got[0].sender
        guests = await guest_at(server, tmp_path / "s")
        # The uuid of the owner's client, which a guest may have seen somewhere.
        for topic, flags in (
            ("box.disconnect", m.FLAG_NORESPONSE),
            ("box.cancel", m.FLAG_NORESPONSE),
            ("box.ask", 0),
        ):
            ask = m.request(topic, {"matchtag": 1}, matchtag=0 if flags else 7, flags=flags)
            ask.routes = [victim.encode(), b"proxy"]
            await broker.loop.sock_sendall(guests, m.frame(ask))
        forged = m.response(box.got[0], {"forged": True})
        await broker.loop.sock_sendall(guests, m.frame(forged))
        await broker.loop.sock_sendall(guests, m.frame(m.request("box.last", matchtag=8)))
        await until_in_loop(lambda: box.got[-1].topic == "box.last")
        assert victim not in {msg.sender for msg in box.got[1:]}
        # What a proxy has written is there again in the answer.
        broker.router.response(m.response(box.got[-2]))
        (answer,) = await answers(guests, 1)
        assert (answer.routes, answer.matchtag) == ([victim.encode(), b"proxy"], 7)
        # The owner's client has got nothing but what the service says.
        broker.router.response(m.response(box.got[0], {"forged": False}))
        assert [one.obj for one in await answers(owners, 1)] == [{"forged": False}]
        owners.close()
        guests.close()
        await turns()
        server.stop()

    asyncio.run(main())


def test_a_message_beyond_a_guests_budget_is_refused_and_what_follows_is_taken(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        broker.budget.limits["bytes"] = 100_000
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await guest_at(server, tmp_path / "s")
        for tag, size in ((1, 500_000), (2, 60_000), (3, 10)):
            ask = m.request("box.ask", matchtag=tag, payload=b"x" * size)
            await broker.loop.sock_sendall(sock, m.frame(ask))
        refused = await answers(sock, 2)
        assert [(msg.matchtag, msg.errnum) for msg in refused] == [(1, errno.E2BIG), (2, errno.E2BIG)]
        await until_in_loop(lambda: [msg.matchtag for msg in box.got] == [3])
        sock.close()
        await turns()
        server.stop()

    asyncio.run(main())


def test_a_response_beyond_a_guests_budget_is_an_error_and_an_unread_stream_ends_the_connection(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        broker.budget.limits["bytes"] = 1 << 20
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await guest_at(server, tmp_path / "s")
        await turns()
        (client,) = server.clients
        for tag, flags in ((1, 0), (2, m.FLAG_STREAMING)):
            ask = m.request("box.ask", matchtag=tag, flags=flags)
            await broker.loop.sock_sendall(sock, m.frame(ask))
        await until_in_loop(lambda: len(box.got) == 2)
        client.send(m.response(box.got[0], {"x": "y" * (2 << 20)}))
        (answer,) = await answers(sock, 1)
        assert (answer.matchtag, answer.errnum) == (1, errno.E2BIG)
        for _ in range(20):
            msg = m.response(box.got[1], {"x": "y" * 100_000})
            client.send(msg)
            await turns(2)
        await until_in_loop(lambda: not server.clients)
        assert any("dropped: user" in text and "access.limits.bytes" in text for text in broker.told)
        assert not broker.budget._used
        sock.close()
        server.stop()

    asyncio.run(main())


def test_services_hear_once_that_a_client_left_wherever_it_asked_them(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Box()
        upward: list[m.Message] = []
        broker.router.up = lambda msg: upward.append(msg) is None
        server = server_of(broker, str(tmp_path / "local"))
        server.start()
        sock = await connected(tmp_path / "local")
        for tag in (1, 2):
            sock.send(m.frame(m.request("box.ask", {}, matchtag=tag)))
        sock.send(m.frame(m.request("box.tell", {})))
        sock.send(m.frame(m.request("other.ask", {}, nodeid=0, matchtag=3, flags=m.FLAG_UPSTREAM)))
        await turns()
        sock.close()
        await turns()
        assert [msg.topic for msg in box.got] == ["box.ask", "box.ask", "box.tell", "box.disconnect"]
        assert box.got[-1].sender == box.got[0].sender
        assert [(msg.topic, bool(msg.flags & m.FLAG_UPSTREAM)) for msg in upward] == [
            ("other.ask", True),
            ("other.disconnect", True),
        ]
        server.stop()

    asyncio.run(main())


class Asker(Box):
    uuid = "asker"

    def asks(self, broker: LittleBroker, tag: int, flags: int = 0) -> None:
        msg = m.request("mine.ask", {"tag": tag}, matchtag=tag, flags=flags)
        msg.routes.append(b"asker")
        broker.router.request(msg)


def test_what_a_client_that_provides_a_service_owes_is_refused_when_it_goes(tmp_path: Path):
    async def main() -> None:
        broker, asker = LittleBroker(), Asker()
        broker.router.add_peer(asker)
        server = server_of(broker, str(tmp_path / "local"))
        server.start()
        sock = await connected(tmp_path / "local")
        await turns()
        (client,) = server.clients
        broker.router.provide("mine", client)
        asker.asks(broker, 1)
        asker.asks(broker, 2)
        for tag in (3, 4):
            asker.asks(broker, tag, m.FLAG_STREAMING)
        await turns()
        broker.router.forget("mine.ask", b"asker", 4)
        deframer = m.Deframer()
        deframer.feed(await broker.loop.sock_recv(sock, 1 << 16))
        first, *_ = asked = list(deframer)
        assert [msg.matchtag for msg in asked] == [1, 2, 3, 4]
        await broker.loop.sock_sendall(sock, m.frame(m.response(first, {"is": "answered"})))
        await turns()
        # Queued when the client has gone, before the broker knows.
        asker.asks(broker, 5)
        client.connection_lost(None)
        await turns()
        assert [(msg.matchtag, msg.errnum) for msg in asker.got] == [
            (1, 0),
            (2, errno.ENOSYS),
            (3, errno.ENOSYS),
            (5, errno.ENOSYS),
        ]
        assert asker.got[1].text == "the client that provided service mine has disconnected"
        sock.close()
        server.stop()

    asyncio.run(main())


def test_who_may_enter_and_as_what(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        server = server_of(broker, str(tmp_path / "local"))
        broker.owner = 1000
        owner, guest = m.ROLE_OWNER | m.ROLE_LOCAL, m.ROLE_USER | m.ROLE_LOCAL
        for access, roles in (
            ({}, (owner, 0, 0)),
            ({"allow-root-owner": True}, (owner, owner, 0)),
            ({"allow-guest-user": True}, (owner, guest, guest)),
            ({"allow-guest-user": True, "allow-root-owner": True}, (owner, owner, guest)),
            # What is no boolean opens no door.
            ({"allow-guest-user": "true", "allow-root-owner": 1}, (owner, 0, 0)),
        ):
            broker.config = {"access": access}
            assert tuple(map(server.role_of, (1000, 0, 1001))) == roles, access
        # A guest, not the owner, and not where guests may not enter.
        admin = {"roles": {"admin": {"users": [pwd.getpwuid(0).pw_name]}}}
        broker.config = {"access": {"allow-guest-user": True, **admin}}
        assert tuple(map(server.role_of, (1000, 0, 1001))) == (owner, guest | m.ROLE_ADMIN, guest)
        broker.config = {"access": admin}
        assert tuple(map(server.role_of, (1000, 0, 1001))) == (owner, 0, 0)

    asyncio.run(main())


def test_messages_are_counted_by_type_until_that_is_cleared(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await connected(tmp_path / "s")
        for msg in (m.request("nosuch.call"), m.event("a"), m.event("b")):
            await broker.loop.sock_sendall(sock, m.frame(msg))
        await turns()
        assert server.stats()["tx"] == {"request": 1, "response": 0, "event": 2, "control": 0}
        next(iter(server.clients)).send(m.event("c"))
        assert server.stats()["rx"] == {"request": 0, "response": 0, "event": 1, "control": 0}
        server.clear_stats()
        assert server.stats()["tx"]["event"] == 0
        sock.close()
        server.stop()

    asyncio.run(main())


def test_requests_are_read_while_streams_wait_for_the_client_but_not_without_end(tmp_path: Path):
    """Who writes and does not read meanwhile would wait for us, and we for him."""

    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await connected(tmp_path / "s")
        (client,) = server.clients
        answered = 0

        async def ask(count: int) -> None:
            nonlocal answered
            for tag in range(count):
                sock.send(m.frame(m.request("box.ask", {}, matchtag=tag + 1)))
            await turns(30)
            for msg in box.got[answered:]:
                client.send(m.response(msg, {"text": "x" * 500_000}))
            answered = len(box.got)
            await turns()

        drained: list[int] = []
        await ask(4)
        client.when_drained(lambda: drained.append(1))
        await ask(40)
        assert (len(box.got), drained) == (44, [])
        await ask(10)
        assert len(box.got) == 44
        loop = asyncio.get_running_loop()
        while len(box.got) < 54:
            await loop.sock_recv(sock, 1 << 20)
        assert drained == [1]
        sock.close()
        await turns()
        server.stop()

    asyncio.run(main())


def test_who_sends_a_thousand_requests_at_once_delays_another_by_a_share_of_them(tmp_path: Path):
    class Slow(Box):
        def send(self, msg: m.Message) -> None:
            super().send(msg)
            time.sleep(0.001)

    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Slow()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        many, one = await connected(tmp_path / "s"), await connected(tmp_path / "s")
        many.send(b"".join(m.frame(m.request("box.many", {}, matchtag=tag)) for tag in range(1, 401)))
        while not box.got:
            await asyncio.sleep(0)
        before = len(box.got)
        one.send(m.frame(m.request("box.one", {}, matchtag=1)))
        while len(box.got) < 401:
            await asyncio.sleep(0)
        topics = [msg.topic for msg in box.got]
        assert topics.index("box.one") - before <= 3 * SHARE
        assert [msg.matchtag for msg in box.got if msg.topic == "box.many"] == list(range(1, 401))
        server.stop()

    asyncio.run(main())


def test_what_a_client_sent_before_it_left_is_routed_though_it_is_more_than_its_share(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await connected(tmp_path / "s")
        sock.send(b"".join(m.frame(m.request("box.tell", {}, matchtag=tag)) for tag in range(1, 5 * SHARE)))
        sock.close()
        await turns()
        assert [msg.matchtag for msg in box.got[:-1]] == list(range(1, 5 * SHARE))
        assert box.got[-1].topic == "box.disconnect"
        server.stop()

    asyncio.run(main())


def test_answers_to_its_own_requests_may_be_large_and_what_else_it_does_not_read_has_a_bound(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        box = broker.router.services["box"] = Box()
        server = server_of(broker, str(tmp_path / "s"))
        server.start()
        sock = await connected(tmp_path / "s")
        (client,) = server.clients
        for tag in range(1, 11):
            sock.send(m.frame(m.request("box.ask", {}, matchtag=tag)))
        await turns()
        for msg in box.got:
            client.send(m.response(msg, payload=bytes(10 << 20)))
            await turns(2)
        assert (len(server.clients), broker.told) == (1, [])
        client.send(m.event("heartbeat"))
        await turns()
        assert (len(server.clients), broker.told) == (
            0,
            [f"client of uid {os.getuid()} dropped: it left 64 MiB unread"],
        )
        server.stop()

    asyncio.run(main())


def test_our_command_is_linked_in_the_run_directory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inst").mkdir()
    command = tmp_path / "inst" / "flux"
    command.touch(0o755)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "inst" / "headrace")])
    assert link_command(str(tmp_path)) == str(tmp_path / "bin" / "flux")
    assert (tmp_path / "bin" / "flux").resolve() == command
    assert link_command(str(tmp_path)) == ""


def test_without_a_known_command_there_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/nosuch/flux"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert link_command(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []


def test_debug_bits_of_the_connector_are_for_one_client(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        server = server_of(broker, str(tmp_path / "local"))
        owner = m.ROLE_OWNER | m.ROLE_LOCAL
        broker.connector.debug = 1 | 2 | 4
        roles = [server.role_of(broker.owner) for _ in range(3)]
        assert roles == [m.ROLE_NONE, m.ROLE_USER | m.ROLE_LOCAL, owner]
        assert broker.connector.debug == 2
        assert f"connect by uid={broker.owner} denied by debug flag" in broker.told

    asyncio.run(main())
