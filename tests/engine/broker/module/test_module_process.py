"""Processes forked for modules: what they hold, what ends them, and what is kept of their requests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.broker import Broker
from headrace.engine.broker.events import Events
from headrace.engine.broker.module import process
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m


@pytest.fixture(autouse=True)
def _without_garbage() -> None:
    """A forked process would collect what other tests have left, and close descriptors that are its own by then."""
    gc.collect()


async def until(met: Callable[[], object]) -> None:
    async def wait() -> None:
        while not met():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 60)


def test_a_forked_process_holds_no_socket_of_ours_and_ends_with_its_own(tmp_path: Path):
    module = tmp_path / "quiet.py"
    module.write_text("import os\nos.write(1, b'here')\nos.write(2, b'there')\ndef load(ctx, args): pass\n")
    ours, its = socket.socketpair()
    forked = process.fork(str(module), [ours])
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
    forked = process.fork(str(module), [])
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
        self.forked: dict[str, process.Forked] = {}
        self.rank, self.size, self.may_grow, self.owner = 0, 1, False, 7
        self.config: dict[str, object] = {}
        self.lines: list[str] = []
        self.on_grown: list[object] = []

    def log(self, _level: int, name: str, text: str) -> None:
        self.lines.append(f"{name}: {text}")


async def running(broker: LittleBroker, path: Path, text: str) -> process.ModuleProcess:
    path.write_text(text)
    module = await process.start(cast(Broker, broker), str(path), None)
    await module.found()
    await module.start([])
    return module


def test_a_module_that_does_not_unload_is_killed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(process, "_UNLOAD_TIMEOUT", 0.05)

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
            "    ctx.call_later(0, lambda: ctx._router.pipe._transport.write(b'no frame at all'))\n"
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
        assert len(module.unanswered) == 1
        # What the request said is in the other process, and not here any more.
        assert not any(msg.has_payload for tags in module.unanswered._senders.values() for msg in tags.values())
        broker.router.forget("silent.wait", b"asker", 2)
        broker.router.forget("silent.wait", b"asker", 2)
        assert len(module.unanswered) == 0
        await module.unload()

    asyncio.run(main())


class Service:
    """Who is asked by a module: keeps what comes."""

    uuid = "service"

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []

    def send(self, msg: m.Message) -> None:
        self.got.append((msg.topic, msg.sender))


def test_a_service_that_was_asked_with_the_last_word_of_a_module_hears_that_it_is_gone(tmp_path: Path):
    """The module itself told it before that: who still acquires something would keep it for ever."""

    async def main() -> None:
        broker = LittleBroker()
        text = (
            "def load(ctx, args):\n"
            "    last = lambda: ctx.call('service.watch', {}, print, streaming=True)\n"
            "    ctx.on_unload(lambda: ctx.at_turn_end(last))\n"
        )
        module = await running(broker, tmp_path / "late.py", text)
        service = Service()
        broker.router.services["service"] = cast(process.ModuleProcess, service)
        await module.unload()
        await until(lambda: len(service.got) == 2)
        assert service.got == [("service.watch", module.uuid), ("service.disconnect", module.uuid)]

    asyncio.run(main())
