"""The ZeroMQ sockets of one broker's tree links: CURVE, authentication (ZAP), timeouts, loop readers.

ZeroMQ asks this process about each unknown key before any byte of a message is parsed. A neighbour counts as lost when
its machine has not acknowledged data for `tbon.tcp_user_timeout`. A broker that is only suspended for a while, or whose
machine swaps, is not lost. The sockets are those of pyzmq's core, since pyzmq's richer classes would add a tenth to a
broker's memory.
"""

from __future__ import annotations

import errno
import logging
import struct
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import cast

import zmq
from zmq.backend import Context, Socket
from zmq.utils import z85

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.boot.boot import BootInfo
from headrace.engine.broker.tbon import refused
from headrace.formats.spec import duration
from headrace.formats.spec import message as m

# The longest timeout in seconds that the kernel accepts (32 bits of milliseconds). A longer one means no limit.
_LONGEST_USER_TIMEOUT = 2_000_000.0
# Seconds for one attempt to connect. The parent's host may return with another address, as a pod does: packets to the
# old address are lost silently, and only the next attempt resolves the name again.
_ATTEMPT = 5.0
# Constants as ints: pyzmq's are enumerations, and each use of one costs a call.
_DISCONNECTED = int(zmq.EVENT_DISCONNECTED)
# The monitored events of connections to children. Failed authentication is not among them, because ZAP reports it. A
# peer that disconnects without a handshake (NO_DETAIL) is not either, because it only tested the port.
_FROM_BELOW = int(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
# The monitored events of the connection to the parent.
_FROM_ABOVE = _FROM_BELOW | int(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
# Seconds between a failed handshake and the search for its peer in the kernel's tables.
_SEARCH_DELAY = 0.5
_NOW, _NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_MORE, _FD = int(zmq.RCVMORE), int(zmq.FD)
# Messages to read from a socket before other callbacks of the loop run.
BATCH = 200
_EVENT = struct.Struct("=HI")


def send(sock: Socket, parts: list[bytes]) -> None:
    """Send all parts of a message, or none if it raises zmq.ZMQError."""
    last = len(parts) - 1
    for number, part in enumerate(parts):
        sock.send(part, _NOW if number == last else _NOW_MORE)


def put(sock: Socket, parts: list[bytes]) -> bool:
    """Send a message. False if the peer is not connected or its queue is full. Raises zmq.ZMQError."""
    try:
        send(sock, parts)
    except zmq.ZMQError as exc:
        if exc.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
            return False
        raise
    return True


def receive(sock: Socket) -> list[bytes]:
    """Receive a message, or the rest of one. Raises zmq.Again if there is none."""
    parts: list[bytes] = [sock.recv(_NOW)]
    while sock.get(_MORE):
        parts.append(sock.recv(_NOW))
    return parts


def receive_with_origin(sock: Socket) -> tuple[zmq.Frame, list[bytes]]:
    """Receive a child's message. Its first part is a frame, which has the peer's address."""
    return sock.recv(_NOW, False), receive(sock)


def endpoint_of(sock: Socket) -> str:
    """The endpoint to which `sock` is bound."""
    return cast(bytes, sock.get(zmq.LAST_ENDPOINT)).decode()


class TreeSockets:
    """A ZeroMQ context with a socket to the parent and one for all children. `close` closes all sockets."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        attrs: AttrTable,
        boot: BootInfo,
        children: int,
        log: Callable[[int, str, str], None],
    ) -> None:
        self.refusals = refused.Refusals(log)
        self._search_timer: TimerHandle | None = None
        self._loop = loop
        self._log = log
        # `tbon.zmqdebug`: log each event of a connection.
        self._logs_events = attrs.get("tbon.zmqdebug", "0") != "0"
        self._attrs = attrs
        self._boot = boot
        self._tcp_user_timeout = duration.parse(attrs.get("tbon.tcp_user_timeout"))
        self._context = Context(int(attrs.get("tbon.zmq_io_threads", "1")))
        self._context.set(zmq.MAX_SOCKETS, max(1023, 4 * children))
        self._sockets: list[Socket] = []
        # Stored because a closed socket does not return its descriptor.
        self._descriptors: list[int] = []

    def below(self) -> Socket:
        """The socket for the children, not bound yet. Sending to an unknown child fails (EHOSTUNREACH)."""
        self._start_zap()
        sock = self._socket(zmq.ROUTER, self._boot.bind_ipv6)
        sock.set(zmq.ROUTER_MANDATORY, 1)
        sock.set(zmq.RCVHWM, int(self._attrs.get("tbon.child_rcvhwm", "0")))
        sock.set(zmq.CURVE_SERVER, 1)
        sock.set(zmq.CURVE_SECRETKEY, self._boot.secret_key)
        sock.set(zmq.ZAP_DOMAIN, b"headrace")
        return sock

    def above(self, uuid: str) -> Socket:
        """The socket to the parent, not connected yet. `uuid` identifies this broker to the parent."""
        sock = self._socket(zmq.DEALER, self._boot.parent_ipv6)
        sock.set(zmq.ROUTING_ID, uuid.encode())
        sock.set(zmq.CURVE_SECRETKEY, self._boot.secret_key)
        sock.set(zmq.CURVE_PUBLICKEY, self._boot.public_key)
        sock.set(zmq.CURVE_SERVERKEY, self._boot.parent_key)
        connect_timeout = duration.parse(self._attrs.get("tbon.connect_timeout"))
        sock.set(zmq.CONNECT_TIMEOUT, round(1000 * min(connect_timeout or _ATTEMPT, _ATTEMPT)))
        return sock

    def _socket(self, kind: int, ipv6: bool) -> Socket:
        sock = Socket(self._context, kind)
        sock.set(zmq.LINGER, 100)
        sock.set(zmq.SNDHWM, 0)
        sock.set(zmq.RCVHWM, 0)
        sock.set(zmq.RECONNECT_IVL, 10)
        sock.set(zmq.RECONNECT_IVL_MAX, 1000)
        if 0 < self._tcp_user_timeout < _LONGEST_USER_TIMEOUT:
            sock.set(zmq.TCP_MAXRT, max(1, int(self._tcp_user_timeout * 1000)))
        sock.set(zmq.IPV6, int(ipv6))
        sock.set(zmq.BACKLOG, 1024)
        sock.set(zmq.MAXMSGSIZE, m.MAX_FRAME)
        self._sockets.append(sock)
        return sock

    def _start_zap(self) -> None:
        zap = Socket(self._context, zmq.REP)
        zap.set(zmq.LINGER, 0)
        zap.bind("inproc://zeromq.zap.01")
        self._sockets.append(zap)

        def read() -> None:
            while not zap.closed:
                try:
                    parts = receive(zap)
                except zmq.Again:
                    return
                allowed = len(parts) >= 7 and parts[5] == b"CURVE" and z85.encode(parts[6]) in self._boot.members
                code, text = (b"200", b"OK") if allowed else (b"400", b"not a member of this instance")
                if not allowed and len(parts) > 3:
                    self.refusals.log_key(parts[3].decode("ascii", "replace"))
                send(zap, [parts[0], parts[1] if len(parts) > 1 else b"", code, text, b"", b""])

        self._add_reader(zap, read)

    def _add_reader(self, sock: Socket, read: Callable[[], None]) -> None:
        fd = cast(int, sock.get(_FD))
        self._loop.add_reader(fd, read)
        self._descriptors.append(fd)

    def watch(self, sock: Socket, read: Callable[[], None], ended: Callable[[str], None]) -> None:
        """Call `read` when there may be messages, and `ended` when a connection of `sock` has ended.

        For children, the event does not say which connection it was. For the parent, it has the reason if the
        connection ended during the handshake.
        """
        above = sock.get(zmq.TYPE) == zmq.DEALER
        where = f"inproc://monitor-{len(self._descriptors)}"
        wanted = _FROM_ABOVE if above else _FROM_BELOW
        sock.monitor(where, int(zmq.EVENT_ALL) if self._logs_events else wanted)
        monitor = Socket(self._context, zmq.PAIR)
        monitor.set(zmq.LINGER, 0)
        monitor.connect(where)
        self._sockets.append(monitor)
        why = ""
        if not above:
            self.refusals.begin(endpoint_of(sock))

        def on_monitor() -> None:
            nonlocal why
            while not monitor.closed:
                try:
                    # The first frame is the event and its value, the second the endpoint (zmq_socket_monitor(3)).
                    frame, endpoint = receive(monitor)
                except zmq.Again:
                    return
                event, _ = _EVENT.unpack(frame)
                if self._logs_events:
                    self._log_event("parent" if above else "child", event, endpoint)
                if not event & wanted:
                    continue
                if event == _DISCONNECTED:
                    ended(why)
                elif above:
                    why = refused.above(event, self._boot)
                elif not self._search_timer:
                    # The kernel lists the peer only after the connection was closed. One search finds all peers that
                    # failed together.
                    self._search_timer = self._loop.call_later(_SEARCH_DELAY, self._log_refused, sock)

        self._add_reader(monitor, on_monitor)
        self._add_reader(sock, read)
        self._loop.call_soon(read)
        self._loop.call_soon(on_monitor)

    def _log_event(self, whose: str, event: int, endpoint: bytes) -> None:
        name = str(zmq.Event(event).name).lower().replace("_", "-")
        self._log(logging.DEBUG, "overlay", f"{whose} socket: {name} {endpoint.decode()}".rstrip())

    def _log_refused(self, sock: Socket) -> None:
        self._search_timer = None
        self.refusals.log_handshake(endpoint_of(sock), self._boot.certificate)

    def end(self, sock: Socket) -> None:
        """Close one socket, and drop its unsent messages."""
        fd = cast(int, sock.get(_FD))
        self._loop.remove_reader(fd)
        self._descriptors.remove(fd)
        self._sockets.remove(sock)
        sock.set(zmq.LINGER, 0)
        sock.close()

    def close(self) -> None:
        """Close every socket. Messages sent shortly before are still delivered."""
        if self._search_timer:
            self._search_timer.cancel()
        for fd in self._descriptors:
            self._loop.remove_reader(fd)
        for sock in self._sockets:
            sock.close()
        self._context.term()
