"""The broker's end of the socket to its exec agent: operations out in one write per loop turn, replies in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..agent import keeper

if TYPE_CHECKING:
    from .broker import Broker

_LENGTH = struct.Struct("<I")


class AgentLink(asyncio.BufferedProtocol):
    """`send(op)` and `subscribe(fn(op))`. When the agent's end closes before `close()`, listeners get an operation
    "gone", and `lost` is called. What is sent from then on is for the next agent, with which `start` begins again."""

    def __init__(self, broker: Broker, pid: int) -> None:
        self.broker = broker
        self.pid = pid
        self.lost: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._out: list[dict[str, Any]] = []
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed = False
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode

    async def start(self, sock: socket.socket) -> None:
        await self.broker.loop.create_unix_connection(lambda: self, sock=sock)
        self.flush()

    @property
    def up(self) -> bool:
        """Whether there is an agent."""
        return self._transport is not None

    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def send(self, op: dict[str, Any]) -> None:
        if not self._out:
            self.broker.router.at_turn_end(self.flush)
        self._out.append(op)

    def pause(self) -> None:
        """Read nothing from the agent until `resume()`: it waits, and so do the tasks that write to it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def flush(self) -> None:
        if self._transport is None and not self.closed:
            return
        out, self._out = self._out, []
        if out and self._transport is not None:
            try:
                body = self._encode(out)
            except (OverflowError, TypeError, ValueError) as exc:
                # One operation that cannot be sent costs itself alone.
                self.broker.log(logging.ERROR, "broker", f"operation of the exec agent: {exc}")
                body = self._encode([op for op in out if self._sendable(op)])
            self._transport.write(_LENGTH.pack(len(body)) + body)

    def _sendable(self, op: dict[str, Any]) -> bool:
        try:
            self._encode(op)
        except (OverflowError, TypeError, ValueError):
            return False
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # The agent is part of this broker: it reads as fast as it can and its backlog is bounded by the jobs we start.
        self._transport.set_write_buffer_limits(high=64 << 20)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.broker.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self._buffer
        buffer += self.broker.receive_buffer[:nbytes]
        pos = 0
        while len(buffer) - pos >= 4:
            size = _LENGTH.unpack_from(buffer, pos)[0]
            if len(buffer) - pos - 4 < size:
                break
            ops = self._decode(bytes(buffer[pos + 4 : pos + 4 + size]))
            pos += 4 + size
            for op in ops:
                self.tell(op)
        del buffer[:pos]

    def tell(self, op: dict[str, Any]) -> None:
        """To all listeners, as from the agent."""
        for listener in self._listeners:
            try:
                listener(op)
            except Exception as exc:
                self.broker.log(logging.ERROR, "agent", f"{op.get('op')}: {exc!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._buffer.clear()
            self._out.clear()
            self.tell({"op": "gone"})
            self.lost()

    def keep_going(self) -> None:
        """A child of ours has ended or was stopped: if that is the agent, or its keeper, it is continued."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                keeper.have_go_on(self.pid)

    def close(self) -> None:
        """Have the agent end. It would when its socket closes, but as for a broker that was killed."""
        if self._transport is not None:
            self._out.append({"op": "shutdown"})
        self.flush()
        self.closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def wait(self, seconds: float) -> None:
        """After `close`: until the agent and all it started are gone, or `seconds` are over."""
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.pid)
            select.select([pidfd], [], [], seconds)
            os.close(pidfd)
