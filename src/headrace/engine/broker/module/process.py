"""A module in its own process (RFC 5), as a peer of the broker's router and an entry of `module list`.

The process runs `remote.py`, and the two communicate through `pipe.py`. Services and subscriptions of the module belong
to this peer, so they are removed when the process ends. Requests that wait for the module then get an error response,
so that no requester waits for a module that has ended.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

from headrace.engine.broker.module.context import FINALIZING, INIT, RUNNING, RpcError
from headrace.engine.broker.module.pipe import ModulePipe, control
from headrace.engine.broker.router import new_uuid
from headrace.engine.broker.tbon.outstanding import Outstanding, sender_of
from headrace.engine.process.spawn import calling
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase

_MAIN = "from headrace.engine.broker.module.remote import main; main(sys.argv[1:])"
# Seconds for a module to unload, and for a process to end after its socket was closed, before it is killed.
_UNLOAD_TIMEOUT = 30.0
_EXIT_TIMEOUT = 5.0
_LONGEST_LINE = 1 << 16


class ModuleProcess:
    """The process of one module, created by `start`. `ended(self)` is called once after its end."""

    def __init__(self, broker: BrokerBase, path: str, process: subprocess.Popen[bytes] | Forked) -> None:
        self.broker = broker
        self.name = path
        self.path = path
        self.uuid = new_uuid()
        self.status = INIT
        self.tracer: Callable[[str, str, Message], None] | None = None
        self.last_used = time.monotonic()
        self.ended: Callable[[ModuleProcess], None] = lambda _self: None
        self.exit_text = ""
        self._process = process
        self.pipe = ModulePipe(broker.router, broker.receive_buffer, self._receive, self._lost)
        self._answer: asyncio.Future[Message] = broker.loop.create_future()
        self._ended: asyncio.Future[None] = broker.loop.create_future()
        self.unanswered = Outstanding()
        # The last request that was passed to the module. Requests with the same route share its route stack.
        self._last = m.request("")
        self._used: set[tuple[str, int, int]] = set()
        assert process.stdout is not None
        self._output = _Output(broker.loop, process.stdout, lambda line: broker.log(logging.ERROR, self.name, line))
        broker.attrs.watchers.append(self._attribute)
        broker.on_grown.append(self._grown)

    # -- life

    async def found(self) -> None:
        """Wait until the process has found its module, and set `name` and `path`. Raises RpcError."""
        body = await self._next_control("found")
        self.name, self.path = body["name"], body["path"]

    async def start(self, args: list[str]) -> None:
        """Load the module in the process. Returns when it runs. Raises RpcError with the error of its load."""
        broker = self.broker
        broker.router.add_peer(self)
        body = {
            "name": self.name,
            "path": self.path,
            "uuid": self.uuid,
            "args": args,
            "rank": broker.rank,
            "owner": broker.owner,
            "may_grow": broker.may_grow,
            "attrs": dict(broker.attrs.items()),
            "config": broker.config,
        }
        self.pipe.send(control("start", body))
        await self._next_control("running")
        self.status = RUNNING

    async def _next_control(self, wanted: str) -> dict[str, Any]:
        try:
            msg = await self._answer
        finally:
            self._answer = self.broker.loop.create_future()
        body = msg.obj or {}
        if msg.topic == "failed":
            raise RpcError(body["errnum"], body["text"])
        if msg.topic != wanted:
            raise RpcError(errno.EPROTO, f"module process said {msg.topic!r}, expected {wanted!r}")
        return body

    async def unload(self) -> None:
        """Let the module unload and its process end. After a timeout, the process is killed."""
        self.status = FINALIZING
        self.pipe.send(control("remove"))
        timer = self.broker.loop.call_later(_UNLOAD_TIMEOUT, self._kill, "it did not unload")
        try:
            await asyncio.shield(self._ended)
        finally:
            timer.cancel()

    def _kill(self, why: str) -> None:
        self.broker.log(logging.ERROR, self.name, f"process {self.pid} is killed: {why}")
        self._process.kill()

    def _lost(self, why: str) -> None:
        """Fail the requests that wait for the module, after its socket was closed."""
        broker = self.broker
        if why:
            self._kill(why)
        broker.attrs.watchers.remove(self._attribute)
        broker.on_grown.remove(self._grown)
        broker.router.remove_peer(self)
        broker.events.drop(self)
        for msg in self.unanswered.take():
            broker.router.refuse(msg, errno.ENOSYS, f"module {self.name} ended")
        # Also after an unload: the module may have opened another stream after its disconnect request to that service.
        for service, nodeid, upstream in self._used:
            note = m.request(service + ".disconnect", None, nodeid, 0, upstream, broker.owner, m.ROLE_OWNER)
            note.routes.append(self.uuid.encode())
            broker.router.request(note)
        if self._process.poll() is not None:
            self._exited()
            return
        pidfd = os.pidfd_open(self.pid)
        timer = broker.loop.call_later(_EXIT_TIMEOUT, self._kill, "it did not end after its socket was closed")

        def reap() -> None:
            if self._process.poll() is not None:
                timer.cancel()
                broker.loop.remove_reader(pidfd)
                os.close(pidfd)
                self._exited()

        broker.loop.add_reader(pidfd, reap)

    def _exited(self) -> None:
        self._output.close()
        code = self._process.returncode or 0
        text = f"killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exited with status {code}"
        self.exit_text = f"process {self.pid} {text}"
        expected = self.status == FINALIZING and code == 0
        if self.status != INIT and not expected:
            self.broker.log(logging.ERROR, "broker", f"module {self.name}: {self.exit_text}")
        if not self._answer.done():
            failure = {"errnum": errno.ECONNRESET, "text": f"module {self.name}: {self.exit_text} while loading"}
            self._answer.set_result(control("failed", failure))
        self._ended.set_result(None)
        self.ended(self)

    async def abandon(self) -> None:
        """Abandon a process that failed to load."""
        self.status = FINALIZING
        self.pipe.close()
        await asyncio.shield(self._ended)

    # -- messages

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def services(self) -> list[str]:
        return [name for name, owner in self.broker.router.services.items() if owner is self]

    @property
    def unread(self) -> int:
        return self.pipe.unread

    def send(self, msg: Message) -> None:
        """Deliver a message to the module (called by the router)."""
        self.last_used = time.monotonic()
        if self.tracer is not None:
            self.tracer(self.name, "rx", msg)
        if msg.type == m.REQUEST:
            if self.pipe.closed:
                # The request was queued before the process ended.
                self.broker.router.refuse(msg, errno.ENOSYS, f"module {self.name} ended")
                return
            self.unanswered.passed(msg, sender_of(msg))
            self.pipe.send(msg)
            # Keep only the route: thousands of requests may wait for responses, and most of their bodies are jobspecs.
            msg.keep_way_back(self._last)
            self._last = msg
        else:
            self.pipe.send(msg)

    def _receive(self, msg: Message) -> None:
        router, kind = self.broker.router, msg.type
        if self.tracer is not None and kind != m.CONTROL:
            self.tracer(self.name, "tx", msg)
        if kind == m.RESPONSE:
            self.unanswered.answered(msg, sender_of(msg))
            router.response(msg)
        elif kind == m.REQUEST:
            if not msg.flags & m.FLAG_NORESPONSE:
                self._used.add((msg.topic.rpartition(".")[0], msg.aux1, msg.flags & m.FLAG_UPSTREAM))
            router.request(msg)
        elif kind == m.EVENT:
            self.broker.events.publish(msg)
        else:
            # Processed after the requests that the module sent before, including those in the router's queue.
            router.post(self._control, msg)

    def forget_request(self, sender: bytes, matchtag: int) -> None:
        """Forget a request, which then gets no error response if the module ends."""
        self.unanswered.forget(sender, matchtag)

    def _control(self, msg: Message) -> None:
        if not self._answer.done():
            self._answer.set_result(msg)

    # -- other state that a module shares with its broker

    def _attribute(self, name: str, value: str | None) -> None:
        self.pipe.send(control("attr", {"name": name, "value": value}))

    def _grown(self, ranks: Idset) -> None:
        """Tell the module about added hosts, after the attributes that changed with them."""
        self.pipe.send(control("grown", {"ranks": str(ranks)}))

    async def reconfigure(self, config: dict[str, Any]) -> None:
        """Apply a new configuration in the module. Raises RpcError if the module refuses it."""
        self.pipe.send(control("config", {"config": config}))
        await self.broker.context.rpc(f"{self.name}.config-reload")

    async def set_debug(self, body: dict[str, Any]) -> dict[str, Any]:
        """The response to module.debug with this `body`. Raises RpcError."""
        answer: dict[str, Any] = await self.broker.context.rpc(f"{self.name}.debug", body)
        return answer


class _Output:
    """The lines that a process writes to its standard output and error."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: IO[bytes], line: Callable[[str], None]) -> None:
        self._loop = loop
        self._stream = stream
        self._line = line
        self._lines = LineReader(_LONGEST_LINE)
        os.set_blocking(stream.fileno(), False)
        loop.add_reader(stream.fileno(), self._read)

    def _read(self) -> bool:
        """Read available output. False if there is none."""
        try:
            data = os.read(self._stream.fileno(), _LONGEST_LINE)
        except BlockingIOError:
            return False
        for line in self._lines.feed(data) if data else [self._lines.take_rest()]:
            if line:
                self._line(line.decode("utf-8", "replace"))
        if not data:
            self._loop.remove_reader(self._stream.fileno())
        return bool(data)

    def close(self) -> None:
        """Read the remaining output of a process that has ended, without waiting for its children."""
        while self._read():
            pass
        self._loop.remove_reader(self._stream.fileno())
        self._stream.close()


class Forked:
    """A forked process with those methods of subprocess.Popen that this file uses.

    `sock` is the connection to the process.
    """

    def __init__(self, pid: int, sock: socket.socket, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.sock = sock
        self.stdout: IO[bytes] | None = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while the process runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = 0
                return 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Discard a process that will not become a module."""
        self.kill()
        if self.returncode is None:
            os.waitpid(self.pid, 0)


def fork(path: str, others: Iterable[socket.socket]) -> Forked:
    """Fork the process of module `path` from this one, to share its imports.

    Must be called before this process has threads or a loop. The new process closes `others`, sockets that only the
    broker may hold.
    """
    ours, its = socket.socketpair()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        its.close()
        os.close(writer)
        return Forked(pid, ours, os.fdopen(reader, "rb", buffering=0))
    try:
        ours.close()
        os.close(reader)
        for sock in others:
            sock.close()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((null, 0), (writer, 1), (writer, 2)):
            os.dup2(fd, standard)
        os.close(null)
        os.close(writer)
        from headrace.engine.broker.module.remote import run

        run(its, path)
    finally:
        os._exit(1)


def _spawn(path: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a new process for module `path` (a name or a .py file). Raises OSError."""
    ours, its = socket.socketpair()
    try:
        process = subprocess.Popen(
            calling(_MAIN, str(its.fileno()), path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(its.fileno(),),
        )
    except OSError:
        ours.close()
        raise
    finally:
        its.close()
    return process, ours


async def start(broker: BrokerBase, path: str, forked: Forked | None) -> ModuleProcess:
    """Start a process for module `path` (a name or a .py file). Raises OSError.

    Uses the process `forked` for it, if given.
    """
    process, sock = (forked, forked.sock) if forked is not None else _spawn(path)
    module = ModuleProcess(broker, path, process)
    await broker.loop.create_unix_connection(lambda: module.pipe, sock=sock)
    return module
