"""The sockets between brokers, without brokers: who may enter, what is too much, and how an end is noticed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.boot import boot
from headrace.engine.broker.boot.boot import BootInfo
from headrace.engine.broker.tbon.sockets import TreeSockets, receive, send
from headrace.formats.spec.topology import Topology
from waiting import PATIENCE

_ATTRS = {"tbon.tcp_user_timeout": "20s", "tbon.connect_timeout": "30s"}


async def until(done: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < limit
        await asyncio.sleep(0.002)


class End:
    """One broker's sockets, and what came in on the one that is watched."""

    def __init__(self, info: Any, **attrs: str) -> None:
        table = AttrTable({**_ATTRS, **attrs})
        self.tree = TreeSockets(asyncio.get_running_loop(), table, info, 2, self._log)
        self.got: list[list[bytes]] = []
        self.log: list[str] = []
        self.ends: list[str] = []
        self.socket: Any = None
        self.info = info

    def watch(self, socket: Any) -> None:
        self.socket = socket
        self.tree.watch(socket, self._read, self._gone)

    def _read(self) -> None:
        while True:
            try:
                self.got.append(receive(self.socket))
            except zmq.Again:
                return

    def _gone(self, why: str) -> None:
        self.ends.append(why)

    def _log(self, _level: int, _name: str, text: str) -> None:
        self.log.append(text)

    def close(self) -> None:
        if not self.socket.closed:
            self.tree.close()


def with_parent(folder: Any, scenario: Callable[[End, Callable[..., End]], Any]) -> None:
    """Run `scenario(parent, join)`; `join(own, key)` is a child that has connected, by default with a member's keys and
    the parent's. They meet in `folder`, or by TCP if there is none."""

    async def main() -> None:
        keys = [boot.new_keys() for _ in range(2)]
        members = {public for public, _ in keys}
        ends = []

        def end(public: bytes, secret: bytes) -> End:
            info = BootInfo(len(ends), 2, "test", Topology(2, "kary:2"), "here")
            info.public_key, info.secret_key, info.parent_key, info.members = public, secret, keys[0][0], members
            ends.append(End(info))
            return ends[-1]

        parent = end(*keys[0])
        info = parent.info
        info.bind = f"ipc://{folder}/parent" if folder else "tcp://127.0.0.1:*"
        parent.watch(parent.tree.below())
        parent.socket.bind(info.bind)
        uri = parent.socket.get(zmq.LAST_ENDPOINT).decode()

        def join(own: tuple[bytes, bytes] = keys[1], key: bytes = keys[0][0]) -> End:
            child = end(*own)
            child.info.parent_uri, child.info.parent_key = uri, key
            child.watch(child.tree.above("uuid-1"))
            child.socket.connect(uri)
            return child

        try:
            await scenario(parent, join)
        finally:
            for one in reversed(ends):
                one.close()

    asyncio.run(main())


def test_members_talk_and_are_known_by_their_uuid(tmp_path: Any) -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        child = join()
        send(child.socket, [b"up", b"x" * 100_000])
        await until(lambda: parent.got)
        assert parent.got == [[b"uuid-1", b"up", b"x" * 100_000]]
        send(parent.socket, [b"uuid-1", b"down"])
        await until(lambda: child.got)
        assert child.got == [[b"down"]]

    with_parent(tmp_path, scenario)


def test_events_of_connections_are_logged_where_that_is_asked_for(tmp_path: Any) -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        assert parent.log == []
        shown = End(parent.info, **{"tbon.zmqdebug": "1"})
        shown.watch(shown.tree.below())
        shown.socket.bind(f"ipc://{tmp_path}/shown")
        shown.info.parent_uri = f"ipc://{tmp_path}/shown"
        child = join()
        try:
            child.socket.connect(shown.info.parent_uri)
            await until(lambda: any("child socket: handshake-succeeded " in line for line in shown.log))
            assert shown.ends == []
        finally:
            shown.close()

    with_parent(tmp_path, scenario)


def test_a_key_that_is_no_members_gets_no_byte_through(tmp_path: Any) -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        stranger = join(boot.new_keys())
        send(stranger.socket, [b"let me in"])
        await until(lambda: stranger.ends)
        assert parent.got == []
        send(join().socket, [b"hello"])
        await until(lambda: parent.got)
        assert parent.got == [[b"uuid-1", b"hello"]]

    with_parent(tmp_path, scenario)


def test_the_end_of_a_connection_is_noticed_and_nothing_is_sent_to_who_is_not_there(tmp_path: Any) -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        child = join()
        send(child.socket, [b"hello"])
        await until(lambda: parent.got)
        assert parent.ends == []
        child.close()
        await until(lambda: parent.ends)
        with pytest.raises(zmq.ZMQError) as refused:
            send(parent.socket, [b"uuid-1", b"down"])
        assert refused.value.errno == errno.EHOSTUNREACH

    with_parent(tmp_path, scenario)


@pytest.mark.parametrize(
    ("tcp", "knocking", "misled"),
    [(True, "127.0.0.1", "127.0.0.1"), (False, f"process {os.getpid()}", "this host")],
    ids=["tcp", "ipc"],
)
def test_both_ends_say_why_a_handshake_failed(tmp_path: Any, tcp: bool, knocking: str, misled: str) -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        first = join()
        send(first.socket, [b"hello"])
        await until(lambda: parent.got)
        stranger = join(boot.new_keys())
        await until(lambda: stranger.ends and parent.log)
        assert " refused our key" in stranger.ends[0]
        assert parent.log == [f"connection from {knocking} refused: its key does not belong to a member"]
        stranger.close()
        other = boot.new_keys()
        child = join(other, other[0])
        await until(lambda: child.ends and len(parent.log) > 1)
        assert " ended the handshake: no broker with the key that we were told answers there" in child.ends[0]
        assert parent.log[1:] == [
            f"connection from {misled} refused: its certificate is not ours, or it is not a broker"
        ]
        child.close()
        # A connection that has worked ends without such a reason.
        parent.close()
        await until(lambda: first.ends)
        assert first.ends[0] == ""

    with_parent("" if tcp else tmp_path, scenario)


def test_who_speaks_nonsense_is_told_and_who_only_looks_is_not() -> None:
    async def scenario(parent: End, join: Callable[..., End]) -> None:
        uri = parent.socket.get(zmq.LAST_ENDPOINT).decode()
        address = ("127.0.0.1", int(uri.rpartition(":")[2]))
        with socket.create_connection(address) as passer:
            # Who leaves before it is greeted was not there for ZeroMQ.
            assert passer.recv(1)
        await until(lambda: parent.ends)
        # A greeting of ZMTP 3.1 (RFC 23 of ZeroMQ), and a HELLO of CURVE (RFC 26) that nobody can read.
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
        hello = b"\x05HELLO\x01\x00".ljust(200, b"\0")
        with socket.create_connection(address) as stranger:
            stranger.sendall(greeting + b"\x04" + bytes([len(hello)]) + hello)
            await until(lambda: parent.log)
        why = "refused: its certificate is not ours, or it is not a broker"
        assert parent.log == [f"connection from 127.0.0.1 {why}"]

    with_parent("", scenario)


@pytest.mark.parametrize(
    ("timeout", "told"), [("20s", 20_000), ("1ms", 1), ("2h", 7_200_000), ("0s", 0), ("30d", 0), ("infinity", 0)]
)
def test_the_kernel_is_told_how_long_to_wait_for_a_neighbour(timeout: str, told: int) -> None:
    """What is longer than it can wait is for ever."""

    async def main() -> None:
        public, secret = boot.new_keys()
        info = BootInfo(1, 2, "test", Topology(2, "kary:2"), "here")
        info.public_key, info.secret_key, info.parent_key = public, secret, public
        end = End(info, **{"tbon.tcp_user_timeout": timeout})
        sock = end.tree.above("uuid-1")
        assert sock.get(zmq.TCP_MAXRT) == told
        end.tree.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("timeout", "told"), [("30s", 5000), ("0s", 5000), ("infinity", 5000), ("2s", 2000), ("5ms", 5)]
)
def test_an_attempt_to_connect_ends_soon_as_the_parents_address_may_be_another_one(timeout: str, told: int) -> None:
    async def main() -> None:
        public, secret = boot.new_keys()
        info = BootInfo(1, 2, "test", Topology(2, "kary:2"), "here")
        info.public_key, info.secret_key, info.parent_key = public, secret, public
        end = End(info, **{"tbon.connect_timeout": timeout})
        assert end.tree.above("uuid-1").get(zmq.CONNECT_TIMEOUT) == told
        end.tree.close()

    asyncio.run(main())


@pytest.mark.parametrize("ipv6", [True, False])
def test_each_socket_has_the_families_that_boot_chose(ipv6: bool) -> None:
    async def main() -> None:
        info = BootInfo(1, 3, "test", Topology(3, "kary:1"), "here")
        info.public_key, info.secret_key = boot.new_keys()
        info.parent_key = info.public_key
        info.bind_ipv6, info.parent_ipv6 = ipv6, not ipv6
        tree = End(info).tree
        assert tree.below().get(zmq.IPV6) == ipv6
        assert tree.above("uuid-1").get(zmq.IPV6) != ipv6
        tree.close()

    asyncio.run(main())
