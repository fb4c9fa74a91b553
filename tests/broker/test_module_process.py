"""The socket of a module process: order, end, garbage, a side that does not read; and processes forked for modules."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from headrace.broker import module_pipe, module_process
from headrace.broker.attrs import AttrTable
from headrace.broker.broker import Broker
from headrace.broker.events import Events
from headrace.broker.module_pipe import ModulePipe, control
from headrace.broker.router import Router
from headrace.spec import message as m


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

    await asyncio.wait_for(wait(), 20)


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
    monkeypatch.setattr(module_pipe, "DROP_AT", 1 << 20)

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


def test_a_forked_process_holds_no_socket_of_ours_and_ends_with_its_own(tmp_path: Path):
    module = tmp_path / "quiet.py"
    module.write_text("import os\nos.write(1, b'here')\nos.write(2, b'there')\ndef load(ctx, args): pass\n")
    ours, its = socket.socketpair()
    forked = module_process.fork(str(module), [ours])
    ours.close()
    # Only the child could still hold the other end.
    its.settimeout(20)
    assert its.recv(1) == b""
    forked.sock.settimeout(20)
    deframer = m.Deframer()
    deframer.feed(forked.sock.recv(1 << 16))
    (found,) = deframer
    assert (found.type, found.topic, found.obj) == (m.CONTROL, "found", {"name": "quiet", "path": str(module)})
    assert forked.poll() is None
    forked.sock.close()
    assert forked.stdout is not None
    assert forked.stdout.read() == b"herethere"
    os.waitid(os.P_PID, forked.pid, os.WEXITED | os.WNOWAIT)
    assert forked.poll() == 1
    its.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_for_the_broker_do_not_end_a_module(tmp_path: Path, number: int):
    module = tmp_path / "quiet.py"
    module.write_text("def load(ctx, args): pass\n")
    forked = module_process.fork(str(module), [])
    forked.sock.settimeout(20)
    assert forked.sock.recv(1 << 16)
    os.kill(forked.pid, number)
    forked.sock.close()
    os.waitid(os.P_PID, forked.pid, os.WEXITED | os.WNOWAIT)
    # It saw the end of its socket; a signal would be negative.
    assert forked.poll() == 1
    assert forked.stdout is not None
    forked.stdout.close()


class LittleBroker:
    """What a module's process needs of a broker, and the log it leaves there."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.router = Router(0, self.loop)
        self.events = Events(0, self.router, 7)
        self.attrs = AttrTable()
        self.receive_buffer = memoryview(bytearray(1 << 16))
        self.forked: dict[str, module_process.Forked] = {}
        self.rank, self.size, self.owner = 0, 1, 7
        self.config: dict[str, object] = {}
        self.lines: list[str] = []

    def log(self, _level: int, name: str, text: str) -> None:
        self.lines.append(f"{name}: {text}")


async def running(broker: LittleBroker, path: Path, text: str) -> module_process.ModuleProcess:
    path.write_text(text)
    module = await module_process.start(cast(Broker, broker), str(path))
    await module.found()
    await module.start([])
    return module


def test_a_module_that_does_not_unload_is_killed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module_process, "_UNLOAD_PATIENCE", 0.05)

    async def main() -> list[str]:
        broker = LittleBroker()
        text = "import asyncio\ndef load(ctx, args): ctx.on_unload(lambda: asyncio.sleep(1000))\n"
        module = await running(broker, tmp_path / "sticky.py", text)
        await module.unload()
        assert not broker.router.peers
        return broker.lines

    lines = asyncio.run(main())
    assert "it did not unload" in lines[0]
    assert lines[1].endswith("killed by signal 9 (Killed)")


def test_a_module_that_breaks_the_framing_is_killed(tmp_path: Path):
    async def main() -> list[str]:
        broker = LittleBroker()
        text = (
            "def load(ctx, args):\n"
            "    ctx.call_later(0, lambda: ctx.broker.router.pipe._transport.write(b'no frame at all'))\n"
        )
        module = await running(broker, tmp_path / "garbled.py", text)
        await until(lambda: module.exit_text)
        return broker.lines

    assert "a frame does not start with the magic number" in asyncio.run(main())[0]


def test_a_streaming_request_is_kept_for_its_sender_until_it_is_forgotten(tmp_path: Path):
    async def main() -> None:
        broker = LittleBroker()
        text = "def load(ctx, args): ctx.call_later(1000, print)\n"
        module = await running(broker, tmp_path / "silent.py", text)
        broker.router.services["silent"] = module
        for tag in (1, 2):
            request = m.request("silent.wait", {}, matchtag=tag, flags=m.FLAG_STREAMING)
            request.routes.append(b"asker")
            module.send(request)
        broker.router.forget("silent.wait", b"asker", 1)
        assert len(module.owing) == 1
        broker.router.forget("silent.wait", b"asker", 2)
        broker.router.forget("silent.wait", b"asker", 2)
        assert len(module.owing) == 0
        await module.unload()

    asyncio.run(main())
