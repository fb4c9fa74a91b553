"""The broker's end of the socket to its exec agent.

Operations are sent in one write per loop turn, and replies are read in batches.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..agent import reaper
from ..agent.protocol import Reader, frame

if TYPE_CHECKING:
    from ..process.operations import FromAgent, ToAgent
    from .parts import BrokerBase


class AgentLink:
    """The connection of a broker to its agent: `send(op)` and `subscribe(fn(op))`.

    When the agent closes its end before `close()`, listeners get an operation "gone", and `lost` is called. Operations
    sent after that go to the next agent, for which `start` is called again.

    A follower's agent is forked at its first operation, and `pid` is that of its reaper. In a test instance, agents
    have no reapers; `pid` is that of the agent, and 0 until its "hello".

    The link uses readers and writers of the loop: an asyncio transport takes twice as long to create and per message.
    """

    def __init__(self, broker: BrokerBase, pid: int) -> None:
        self.broker = broker
        self.pid = pid
        self.lost: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[FromAgent], None]] = []
        self._out: list[ToAgent] = []
        self._reader: Reader[FromAgent] = Reader()
        # Encoded operations that were not written to the socket yet. There is no flow control: agents read without
        # delay.
        self._unsent = bytearray()
        self._waits = False
        self._sock: socket.socket | None = None
        self.closed = False

    def start(self, sock: socket.socket) -> None:
        """Connect to an agent. `sock` is the broker's end of its socket."""
        sock.setblocking(False)
        self._sock = sock
        self.resume()
        self.flush()

    def subscribe(self, listener: Callable[[FromAgent], None]) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[FromAgent], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def send(self, op: ToAgent) -> None:
        if not self._out:
            self.broker.router.at_turn_end(self.flush)
        self._out.append(op)

    def pause(self) -> None:
        """Stop reading from the agent until `resume()`.

        The agent then blocks, and so do the tasks whose output it reads.
        """
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
                data = frame(out)
            except (OverflowError, TypeError, ValueError) as exc:
                # Only the operation that cannot be encoded is dropped.
                self.broker.log(logging.ERROR, "broker", f"cannot encode an operation for the exec agent: {exc}")
                data = frame([op for op in out if _sendable(op)])
            self._unsent += data
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
            # The reader notices the end of the agent.
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
            self._connection_lost()
            return
        for op in self._reader.feed(memory[:size]):
            if op["op"] == "hello":
                self.pid = op["pid"]
            else:
                self._notify_listeners(op)

    def _notify_listeners(self, op: FromAgent) -> None:
        """Pass an operation to all listeners."""
        for listener in self._listeners:
            try:
                listener(op)
            except Exception as exc:
                self.broker.log(logging.ERROR, "agent", f"{op['op']}: {exc!r}")

    def _connection_lost(self) -> None:
        self._leave()
        self._reader = Reader()
        self._out.clear()
        self._notify_listeners({"op": "gone"})
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
        """Continue the agent or its reaper if it was stopped.

        Called when a child of the broker has ended or was stopped.
        """
        with contextlib.suppress(ChildProcessError):
            if self.pid and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                reaper.continue_stopped(self.pid)

    def close(self) -> None:
        """Send pending operations and close the socket. The agent ends when its socket is closed."""
        self.flush()
        self.closed = True
        self._leave()

    def wait(self, seconds: float) -> None:
        """Wait `seconds` at most until the agent and all its processes have ended, after `close`."""
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.pid)
            select.select([pidfd], [], [], seconds)
            os.close(pidfd)


def _sendable(op: ToAgent) -> bool:
    try:
        frame([op])
    except (OverflowError, TypeError, ValueError):
        return False
    return True
