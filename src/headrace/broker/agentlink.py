"""The broker's end of the socket to its exec agent: operations out in one write per loop turn, replies in batches."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..agent import reaper

if TYPE_CHECKING:
    from .broker import Broker

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode


class AgentLink:
    """`send(op)` and `subscribe(fn(op))`. When the agent's end closes before `close()`, listeners get an operation
    "gone", and `lost` is called. What is sent from then on is for the next agent, with which `start` begins again.

    A follower's agent is born when it gets the first operation; `pid` is its reaper's. That of a broker of a test
    instance has no reaper of its own and says who it is; until then `pid` is 0.

    On the loop's readers and writers: a transport of asyncio takes twice as long, for each message and to come to be.
    """

    def __init__(self, broker: Broker, pid: int) -> None:
        self.broker = broker
        self.pid = pid
        self.lost: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._out: list[dict[str, Any]] = []
        self._buffer = bytearray()
        # What the agent has not taken yet. It is part of this broker: it reads as fast as it can.
        self._unsent = bytearray()
        self._waits = False
        self._sock: socket.socket | None = None
        self.closed = False

    def start(self, sock: socket.socket) -> None:
        """`sock` is our end of the socket of an agent."""
        sock.setblocking(False)
        self._sock = sock
        self.resume()
        self.flush()

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
        if self._sock is not None:
            self.broker.loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        if self._sock is not None:
            self.broker.loop.add_reader(self._sock.fileno(), self._readable)

    def flush(self) -> None:
        if self._sock is None and not self.closed:
            return
        out, self._out = self._out, []
        if out and self._sock is not None:
            try:
                body = _encode(out)
            except (OverflowError, TypeError, ValueError) as exc:
                # One operation that cannot be sent costs itself alone.
                self.broker.log(logging.ERROR, "broker", f"operation of the exec agent: {exc}")
                body = _encode([op for op in out if _sendable(op)])
            self._unsent += _LENGTH.pack(len(body)) + body
            if not self._waits:
                self._write()

    def _write(self) -> None:
        sock, loop = self._sock, self.broker.loop
        if sock is None:
            return
        try:
            del self._unsent[: sock.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # Its end is read, too.
            self._unsent.clear()
        if self._unsent and not self._waits:
            loop.add_writer(sock.fileno(), self._write)
        elif self._waits and not self._unsent:
            loop.remove_writer(sock.fileno())
        self._waits = bool(self._unsent)

    def _readable(self) -> None:
        sock, memory = self._sock, self.broker.receive_buffer
        if sock is None:
            return
        try:
            size = sock.recv_into(memory)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._gone()
            return
        buffer = self._buffer
        buffer += memory[:size]
        pos = 0
        while len(buffer) - pos >= 4:
            size = _LENGTH.unpack_from(buffer, pos)[0]
            if len(buffer) - pos - 4 < size:
                break
            ops = _decode(bytes(buffer[pos + 4 : pos + 4 + size]))
            pos += 4 + size
            for op in ops:
                if op.get("op") == "hello":
                    self.pid = op["pid"]
                else:
                    self._tell(op)
        del buffer[:pos]

    def _tell(self, op: dict[str, Any]) -> None:
        """Hand `op`, of the agent or as if of the agent, to all listeners."""
        for listener in self._listeners:
            try:
                listener(op)
            except Exception as exc:
                self.broker.log(logging.ERROR, "agent", f"{op.get('op')}: {exc!r}")

    def _gone(self) -> None:
        self._leave()
        self._buffer.clear()
        self._out.clear()
        self._tell({"op": "gone"})
        self.lost()

    def _leave(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self.broker.loop.remove_reader(sock.fileno())
            self.broker.loop.remove_writer(sock.fileno())
            self._unsent.clear()
            self._waits = False
            sock.close()

    def keep_going(self) -> None:
        """A child of ours has ended or was stopped: if that is the agent, or its reaper, it is continued."""
        with contextlib.suppress(ChildProcessError):
            if self.pid and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                reaper.continue_stopped(self.pid)

    def close(self) -> None:
        """Flush and close; the agent ends when its socket does."""
        self.flush()
        self.closed = True
        self._leave()

    def wait(self, seconds: float) -> None:
        """After `close`: until the agent and all it started are gone, or `seconds` are over."""
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.pid)
            select.select([pidfd], [], [], seconds)
            os.close(pidfd)


def _sendable(op: dict[str, Any]) -> bool:
    try:
        _encode(op)
    except (OverflowError, TypeError, ValueError):
        return False
    return True
