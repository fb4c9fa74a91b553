"""The service `start` of `flux start` for a test instance: lists, kills, awaits and restarts brokers.

It uses the local connector's protocol (RFC 3 frames after one greeting byte) at `FLUX_START_URI`, in the loop that
waits for the brokers' ends. It is loaded for the first client, so an instance without clients has no cost.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec.message import (
    FLAG_NORESPONSE,
    REQUEST,
    Deframer,
    Message,
    MessageError,
    error_response,
    frame,
    response,
)

# The most bytes of a frame: all requests to this service are short.
_LONGEST_REQUEST = 1 << 16
# The process, user and group at the other end of a socket (SO_PEERCRED in socket(7)).
_CREDENTIALS = struct.Struct("3i")


class Brokers(Protocol):
    """The operations of the service, for the brokers of ranks 0 to `size` - 1."""

    size: int

    def pid_of(self, rank: int) -> int:
        """The pid of the broker of `rank`, or -1 if it does not run."""

    def exit_code_of(self, rank: int) -> int | None:
        """The exit status of the last broker of `rank`, or None if none has ended.

        It is 128 plus the signal if the broker was killed.
        """

    def kill(self, rank: int, signum: int) -> None:
        """Signal the broker of `rank`. Raises OSError."""

    def restart(self, rank: int) -> None:
        """Start the broker of `rank`. Raises OSError."""


class _Client:
    """A connection, its pending requests `start.wait` (by rank), and its name in messages."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.frames = Deframer(_LONGEST_REQUEST)
        self.waits: list[tuple[int, Message]] = []
        self.name = os.urandom(3).hex()[:5]


class StartService:
    """Serves the clients that `accept` takes from a listening socket.

    `watch(fd, readable)` makes a loop call `readable()`; None stops that.
    """

    def __init__(self, brokers: Brokers, watch: Callable[[int, Callable[[], None] | None], None], verbose: int) -> None:
        self._brokers = brokers
        self._watch = watch
        self._verbose = verbose
        self._clients: dict[int, _Client] = {}
        self._methods = {"status": self._status, "kill": self._kill, "run": self._run, "wait": self._await}

    def accept(self, listener: socket.socket) -> None:
        """Greet a new client: with 0, or with EPERM if it belongs to another user."""
        sock, _ = listener.accept()
        _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in (os.getuid(), 0):
            sock.send(bytes((errno.EPERM,)))
            sock.close()
            return
        sock.setblocking(False)
        sock.send(b"\0")
        client = _Client(sock)
        self._clients[sock.fileno()] = client
        self._watch(sock.fileno(), partial(self._readable, client))
        self._trace_line(f"hi {client.name}")

    def _readable(self, client: _Client) -> None:
        try:
            data = client.sock.recv(_LONGEST_REQUEST)
            client.frames.feed(data)
            for msg in client.frames:
                self._handle(client, msg)
        except BlockingIOError:
            return
        except (OSError, MessageError):
            data = b""
        if not data:
            self._drop(client)

    def ended(self, rank: int, code: int) -> None:
        """Respond to the requests that wait for the broker of `rank`."""
        for client in list(self._clients.values()):
            answered = [msg for waited, msg in client.waits if waited == rank]
            client.waits = [(waited, msg) for waited, msg in client.waits if waited != rank]
            for msg in answered:
                self._send(client, response(msg, {"exit_rc": code}))

    def close_all(self) -> None:
        """Close all clients in a process that was forked to be a broker."""
        for client in self._clients.values():
            client.sock.close()
        self._clients.clear()

    def _handle(self, client: _Client, msg: Message) -> None:
        if msg.type != REQUEST:
            return
        service, _, name = msg.topic.partition(".")
        method = self._methods.get(name) if service == "start" else None
        try:
            if method is None:
                raise RpcError(errno.ENOSYS, f"{msg.topic}: flux start has no such method")
            body = method(client, msg)
            reply = None if body is None else response(msg, body)
        except RpcError as exc:
            reply = error_response(msg, exc.errnum, exc.text)
        except OSError as exc:
            reply = error_response(msg, exc.errno or errno.EIO, exc.strerror or "")
        if reply is not None and not msg.flags & FLAG_NORESPONSE:
            self._send(client, reply)

    def _send(self, client: _Client, msg: Message) -> None:
        """Send a message. A client that leaves responses unread until the socket is full is disconnected."""
        data = frame(msg)
        try:
            complete = client.sock.send(data) == len(data)
        except OSError:
            complete = False
        if not complete:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.sock.fileno(), None) is None:
            return
        self._watch(client.sock.fileno(), None)
        client.sock.close()
        self._trace_line(f"bye {client.name}")
        self._trace_line(f"disconnect from {client.name}")

    def _trace_line(self, text: str) -> None:
        if self._verbose:
            print(f"flux-start: {text}", file=sys.stderr, flush=True)

    # -- methods

    def _status(self, _client: _Client, _msg: Message) -> dict[str, Any]:
        return {"procs": [{"pid": self._brokers.pid_of(rank)} for rank in range(self._brokers.size)]}

    def _kill(self, _client: _Client, msg: Message) -> dict[str, Any]:
        rank, signum = self._rank_of(msg), _int(msg, "signum")
        if self._brokers.pid_of(rank) == -1:
            raise RpcError(errno.ESRCH, f"start.kill: the broker of rank {rank} does not run")
        self._brokers.kill(rank, signum)
        return {}

    def _run(self, _client: _Client, msg: Message) -> dict[str, Any]:
        rank = self._rank_of(msg)
        if self._brokers.pid_of(rank) != -1:
            raise RpcError(errno.EEXIST, f"start.run: the broker of rank {rank} runs")
        self._brokers.restart(rank)
        return {}

    def _await(self, client: _Client, msg: Message) -> dict[str, Any] | None:
        rank = self._rank_of(msg)
        if self._brokers.pid_of(rank) != -1:
            client.waits.append((rank, msg))
            return None
        code = self._brokers.exit_code_of(rank)
        if code is None:
            raise RpcError(errno.ESRCH, f"start.wait: no broker of rank {rank} was started")
        return {"exit_rc": code}

    def _rank_of(self, msg: Message) -> int:
        rank = _int(msg, "rank")
        if not 0 <= rank < self._brokers.size:
            text = f"rank {rank} is not in this instance of {self._brokers.size}"
            raise RpcError(errno.EINVAL, f"{msg.topic}: {text}")
        return rank


def _int(msg: Message, name: str) -> int:
    """An integer field of a request. Raises RpcError(EPROTO)."""
    try:
        value = (msg.obj or {})[name]
    except (MessageError, ValueError, KeyError, TypeError):
        value = None
    if not isinstance(value, int) or isinstance(value, bool):
        raise RpcError(errno.EPROTO, f"{msg.topic}: {name}: expected an integer")
    return value
