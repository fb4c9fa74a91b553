"""The socket of a module process: order, end, garbage, and a side that does not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from headrace.engine.broker.module import pipe
from headrace.engine.broker.module.pipe import ModulePipe, control
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m


class End:
    """One end of a pipe: what it got and how it ended."""

    def __init__(self) -> None:
        self.got: list[m.Message] = []
        self.lost: list[str] = []
        self.pipe = ModulePipe(
            Router(0, asyncio.get_running_loop()), memoryview(bytearray(4096)), self.got.append, self.lost.append
        )

    async def open(self, sock: socket.socket) -> None:
        await asyncio.get_running_loop().create_unix_connection(lambda: self.pipe, sock=sock)


async def until(met: Callable[[], object]) -> None:
    async def wait() -> None:
        while not met():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 60)


def with_end(body: Callable[[End, socket.socket], Awaitable[None]]) -> None:
    """Run `body` with one end in a loop and the other as a plain socket."""

    async def main() -> None:
        ours, its = socket.socketpair()
        its.setblocking(False)
        end = End()
        await end.open(ours)
        with its:
            await body(end, its)

    asyncio.run(main())


def test_messages_of_a_turn_leave_in_one_piece_and_in_order():
    async def body(end: End, other: socket.socket) -> None:
        messages = [m.request("a.b", {"x": 1}, matchtag=3), m.event("e", None), control("running")]
        for msg in messages:
            end.pipe.send(msg)
        await until(lambda: not end.pipe._out)
        assert other.recv(1 << 16) == b"".join(m.frame(msg) for msg in messages)

    with_end(body)


def test_every_kind_of_message_arrives_however_it_is_cut():
    async def body(end: End, other: socket.socket) -> None:
        request = m.request("a.b", {"x": 1}, matchtag=3)
        request.routes.append(b"someone")
        data = (
            m.frame(request) + m.frame(m.error_response(request, 38, "none")) + m.frame(control("attr", {"name": "n"}))
        )
        for pos in range(0, len(data), 7):
            await asyncio.get_running_loop().sock_sendall(other, data[pos : pos + 7])
            await asyncio.sleep(0)
        await until(lambda: len(end.got) == 3)
        assert [(msg.type, msg.topic) for msg in end.got] == [
            (m.REQUEST, "a.b"),
            (m.RESPONSE, "a.b"),
            (m.CONTROL, "attr"),
        ]
        assert end.got[0].routes == [b"someone"] and end.got[1].errnum == 38 and end.got[2].obj == {"name": "n"}

    with_end(body)


def test_an_end_of_stream_is_told_once_without_a_reason():
    async def body(end: End, other: socket.socket) -> None:
        other.close()
        await until(lambda: end.lost)
        end.pipe.send(control("remove"))
        end.pipe.close()
        await asyncio.sleep(0)
        assert end.lost == [""] and end.pipe.closed

    with_end(body)


def test_garbage_ends_the_connection_with_its_reason():
    async def body(end: End, other: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(other, b"not a frame at all")
        await until(lambda: end.lost)
        assert "magic" in end.lost[0] and not end.got

    with_end(body)


def test_a_side_that_does_not_read_is_given_up(monkeypatch):
    monkeypatch.setattr(pipe, "DROP_AT", 1 << 20)

    async def body(end: End, other: socket.socket) -> None:
        for _ in range(64):
            end.pipe.send(m.event("e", None, payload=bytes(1 << 16)))
        await until(lambda: end.lost)
        assert "unread" in end.lost[0]

    with_end(body)


def test_closing_writes_what_was_gathered_first():
    async def body(end: End, other: socket.socket) -> None:
        end.pipe.send(control("running"))
        end.pipe.close()
        await until(lambda: end.lost)
        assert other.recv(1 << 16) == m.frame(control("running"))
        assert other.recv(1) == b""

    with_end(body)
