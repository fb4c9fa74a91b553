"""The process of one module (RFC 5): runs any module file unchanged, with a connection to its broker.

The module gets the ordinary context. The objects here stand in for the parts of the broker (routing, services, events,
log, attributes), and turn calls into messages (`pipe.py`). No decision is made in this process: the broker does all
routing. The process ends when its socket is closed, so a broker that dies takes its modules with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import inspect
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

from headrace.engine.broker import signals
from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.logbook import format_line, severity
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.module.pipe import ModulePipe, control
from headrace.engine.broker.module.search import find, name_of
from headrace.engine.broker.parts import BrokerParts
from headrace.engine.broker.router import Peer, Router
from headrace.engine.process import linux
from headrace.engine.process.garbage import collect_rarely
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message


class _Router(Router):
    """Sends every message to the broker, and delivers the broker's messages to the module in turns."""

    def __init__(self, rank: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(rank, loop)
        self.pipe: ModulePipe
        self.context: ModuleContext
        self.registering: list[asyncio.Task[None]] = []
        self.registered = False
        self.refusal: RpcError | None = None

    def request(self, msg: Message) -> None:
        self.pipe.send(msg)

    def response(self, msg: Message) -> None:
        self.pipe.send(msg)

    def provide(self, name: str, peer: Peer) -> None:
        super().provide(name, peer)
        task = self.context.spawn(self._add(name))
        if not self.registered:
            self.registering.append(task)

    def withdraw(self, name: str) -> None:
        super().withdraw(name)
        self.context.call("service.remove", {"service": name})

    async def _add(self, name: str) -> None:
        try:
            await self.context.rpc("service.add", {"service": name})
        except RpcError as exc:
            if self.registered:
                self.context.log(logging.ERROR, str(exc))
            self.refusal = exc

    async def all_registered(self) -> None:
        """Wait until the broker has registered the module's services.

        Raises RpcError(EEXIST) if another module provides one of them.
        """
        await asyncio.gather(*self.registering)
        self.registered = True
        self.registering.clear()
        if self.refusal is not None:
            raise self.refusal


class _Events:
    """Sends subscriptions and events to the broker."""

    def __init__(self, router: _Router) -> None:
        self._router = router

    def subscribe(self, _peer: Peer, prefix: str) -> None:
        self._router.context.call("event.subscribe", {"topic": prefix})

    def unsubscribe(self, _peer: Peer, prefix: str) -> None:
        self._router.context.call("event.unsubscribe", {"topic": prefix})

    def publish(self, msg: Message) -> int:
        self._router.pipe.send(msg)
        return 0


class RemoteBroker(BrokerParts):
    """The parts of a broker for a module in another process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: dict[str, Any]) -> None:
        self.loop = loop
        self.rank = start["rank"]
        self.owner = start["owner"]
        self.config = start["config"]
        self.attrs = AttrTable()
        for name, value in start["attrs"].items():
            self.attrs.set(name, value)
        self.size = int(self.attrs.get("size", "1"))
        self.may_grow = start["may_grow"]
        self.router: _Router = _Router(self.rank, loop)
        self.events = _Events(self.router)
        # Data in memory would be lost with this process. Modules write it to a file instead (`kept.data_path`).
        self.kept = None
        # A module that gets a shutdown request asks its broker to remove it.
        self.remove_module = lambda name: self.router.context.call("module.remove", {"name": name})
        self.log = self._log
        self.on_grown = []
        # Lost ranks are known only in the broker's process, so this set stays empty here.
        self.lost = Idset()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"broker.{name} exists in the broker's process only: load this module without --exec")

    def _log(self, level: int, appname: str, text: str) -> None:
        for line in text.rstrip("\n").split("\n"):
            entry = format_line(severity(level), str(self.rank), appname, line, time.time())
            payload = entry.encode("utf-8", "replace") + b"\0"
            self.router.context.call("log.append", payload=payload)


class _Remote:
    """One module in this process, from its start message to the end of the socket."""

    def __init__(self, module: ModuleType, start: dict[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.module = module
        self.args: list[str] = start["args"]
        self.broker = RemoteBroker(self.loop, start)
        self.router = self.broker.router
        self.closed = self.loop.create_future()
        self.pipe = ModulePipe(self.router, memoryview(bytearray(1 << 18)), self._receive, self._lost)
        self.router.pipe = self.pipe
        self.context = ModuleContext(self.broker, start["name"], start["path"], start["uuid"])
        self.router.context = self.context
        self.removing = False

    async def run(self, sock: socket.socket, early: list[Message]) -> None:
        await self.loop.create_unix_connection(lambda: self.pipe, sock=sock)
        for msg in early:
            self._receive(msg)
        try:
            if hasattr(self.module, "check"):
                self.module.check(self.context, self.args)
            result = self.module.load(self.context, self.args)
            if inspect.isawaitable(result):
                await result
            await self.router.all_registered()
        except Exception as exc:
            await self._unload(_failure(exc))
        else:
            self.pipe.send(control("running"))
            # Flush now, because the broker waits for "running".
            self.pipe.flush()
            gc.collect()
            gc.freeze()
        await self.closed

    def _receive(self, msg: Message) -> None:
        if msg.type == m.CONTROL:
            self.router.post(self._control, msg)
        else:
            self.router.post(self.context.send, msg)

    def _control(self, msg: Message) -> None:
        body = msg.obj or {}
        if msg.topic == "config":
            self.broker.config = body["config"]
        elif msg.topic == "attr" and body["value"] is not None:
            self.broker.attrs.set(body["name"], body["value"])
            if body["name"] == "size":
                self.broker.size = int(body["value"])
        elif msg.topic == "attr":
            with contextlib.suppress(RpcError):
                self.broker.attrs.remove(body["name"])
        elif msg.topic == "grown":
            for hook in list(self.broker.on_grown):
                hook(Idset.parse(body["ranks"]))
        elif msg.topic == "remove" and not self.removing:
            self.removing = True
            self.context.spawn(self._unload(None))

    async def _unload(self, failure: Message | None) -> None:
        """Unload the module, send `failure` to the broker if given, and close the connection."""
        self.removing = True
        await self.context.unload()
        if failure is not None:
            self.pipe.send(failure)
        # Close after the messages of the last handlers are written.
        self.router.at_turn_end(self.pipe.close)

    def _lost(self, _why: str) -> None:
        if not self.removing:
            # The broker is gone. Exit at once: threads and children of the module must not keep this process alive.
            os._exit(1)
        self.closed.set_result(None)


def _failure(exc: Exception) -> Message:
    """The error for the user who loads the module, the same as for a module in the broker."""
    if isinstance(exc, RpcError):
        return control("failed", {"errnum": exc.errnum, "text": exc.text})
    return control("failed", {"errnum": errno.EINVAL, "text": f"{type(exc).__name__}: {exc}"})


def _messages(sock: socket.socket) -> Iterator[list[Message]]:
    """Received messages in batches, until the end of the stream."""
    deframer = m.Deframer()
    while True:
        data = sock.recv(1 << 16)
        if not data:
            return
        deframer.feed(data)
        yield list(deframer)


def find_and_run(sock: socket.socket, path: str) -> int:
    """Find module `path`, and run it in this process. Returns the exit code."""
    m.use_json_codec(msgspec.json.encode, msgspec.json.decode)
    collect_rarely()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, *signals.FOR_JOBS):
        # These signals are meant for the broker. Unlike SIG_IGN, a handler is not inherited by the module's children.
        signal.signal(number, lambda _number, _frame: None)
    signals.unblock()
    try:
        module = find(path)
        if module is None:
            raise RpcError(errno.ENOENT, "module not found in search path")
    except Exception as exc:
        sock.sendall(m.frame(_failure(exc)))
        if not isinstance(exc, RpcError):
            traceback.print_exc()
        return 1
    name, file = name_of(module, path), getattr(module, "__file__", path) or path
    sock.sendall(m.frame(control("found", {"name": name, "path": file})))
    for batch in _messages(sock):
        if batch:
            # The broker's first message is "start".
            asyncio.run(_start(module, sock, batch))
            return 0
    return 1


async def _start(module: ModuleType, sock: socket.socket, batch: list[Message]) -> None:
    await _Remote(module, batch[0].obj).run(sock, batch[1:])


def run(sock: socket.socket, path: str) -> None:
    """Run module `path` in this process and exit; does not return."""
    code = 1
    name = os.path.basename(path).removesuffix(".py")
    linux.name_process(name, f"flux-module: {name}")
    with contextlib.suppress(AttributeError):
        # Line buffering, so that output appears in the log at once.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        code = find_and_run(sock, path)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Exit even if threads of the module still run.
        os._exit(code)


def main(argv: list[str]) -> None:
    """Run a module. Arguments: `FD PATH`, the module's end of the socket, and the module."""
    sock = socket.socket(fileno=int(argv[0]))
    os.set_inheritable(sock.fileno(), False)
    run(sock, argv[1])
