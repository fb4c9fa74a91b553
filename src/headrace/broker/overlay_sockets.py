"""The ZeroMQ sockets of one broker's tree links: CURVE, who may enter (ZAP), time limits, and the loop that reads them.

ZeroMQ asks us for each key that knocks, before a byte of ours is parsed. The kernel decides when a neighbour is lost,
as what was sent to it is not acknowledged for so long: a broker that stands still for a while, as on a machine that is
suspended or swaps, is not taken for one that is gone.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from ..spec import duration
from ..spec import message as m
from . import overlay_refused as refused
from .attrs import AttrTable
from .boot import BootInfo

# Seconds; what the kernel can be told to wait (32 bits of milliseconds). Longer is for ever.
_LONGEST_PATIENCE = 2_000_000.0
# Of a child's key that is none of ours ZAP tells first; who goes without a word only looked whether somebody is there.
_NOT_OURS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
# Seconds from a handshake that failed until we look whose it was.
_LOOK = 0.5


class TreeSockets:
    """A ZeroMQ context with a socket to the parent and one for all children; `close` ends all."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        attrs: AttrTable,
        boot: BootInfo,
        children: int,
        log: Callable[[int, str, str], None],
    ) -> None:
        self.refusals = refused.Refusals(log)
        self._looking: TimerHandle | None = None
        self._loop = loop
        self._attrs = attrs
        self._boot = boot
        self._patience = duration.parse(attrs.get("tbon.tcp_user_timeout"))
        self._context: zmq.Context[Any] = zmq.Context(int(attrs.get("tbon.zmq_io_threads", "1")))
        self._context.set(zmq.MAX_SOCKETS, max(1023, 4 * children))
        self._sockets: list[zmq.Socket[Any]] = []
        self._monitors: list[zmq.Socket[Any]] = []

    def below(self) -> zmq.Socket[Any]:
        """The socket of the children, not bound yet. A send to one that is not there fails (EHOSTUNREACH)."""
        self._start_zap()
        sock = self._socket(zmq.ROUTER, self._boot.bind_ipv6)
        sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
        sock.rcvhwm = int(self._attrs.get("tbon.child_rcvhwm", "0"))
        sock.curve_server = True
        sock.curve_secretkey = self._boot.secret_key
        sock.setsockopt(zmq.ZAP_DOMAIN, b"headrace")
        return sock

    def above(self, uuid: str) -> zmq.Socket[Any]:
        """The socket to the parent, not connected yet; `uuid` is what the parent will know us by."""
        sock = self._socket(zmq.DEALER, self._boot.parent_ipv6)
        sock.setsockopt(zmq.ROUTING_ID, uuid.encode())
        sock.curve_secretkey = self._boot.secret_key
        sock.curve_publickey = self._boot.public_key
        sock.curve_serverkey = self._boot.parent_key
        patience = duration.parse(self._attrs.get("tbon.connect_timeout"))
        sock.setsockopt(zmq.CONNECT_TIMEOUT, round(1000 * patience) if patience < _LONGEST_PATIENCE else 0)
        return sock

    def _socket(self, kind: int, ipv6: bool) -> zmq.Socket[Any]:
        sock: zmq.Socket[Any] = self._context.socket(kind)
        sock.linger = 100
        sock.sndhwm = 0
        sock.rcvhwm = 0
        sock.setsockopt(zmq.RECONNECT_IVL, 10)
        sock.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        if 0 < self._patience < _LONGEST_PATIENCE:
            sock.setsockopt(zmq.TCP_MAXRT, max(1, int(self._patience * 1000)))
        sock.setsockopt(zmq.IPV6, ipv6)
        sock.setsockopt(zmq.BACKLOG, 1024)
        sock.setsockopt(zmq.MAXMSGSIZE, m.MAX_FRAME)
        self._sockets.append(sock)
        return sock

    def _start_zap(self) -> None:
        zap = self._context.socket(zmq.REP)
        zap.linger = 0
        zap.bind("inproc://zeromq.zap.01")
        self._sockets.append(zap)

        def read() -> None:
            while not zap.closed:
                try:
                    parts = zap.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    return
                allowed = len(parts) >= 7 and parts[5] == b"CURVE" and z85.encode(parts[6]) in self._boot.members
                code, text = (b"200", b"OK") if allowed else (b"400", b"not a member of this instance")
                if not allowed and len(parts) > 3:
                    self.refusals.tell_of_key(parts[3].decode("ascii", "replace"))
                zap.send_multipart([parts[0], parts[1] if len(parts) > 1 else b"", code, text, b"", b""])

        self._loop.add_reader(zap.FD, read)

    def watch(self, sock: zmq.Socket[Any], read: Callable[[], None], gone: Callable[[str], None]) -> None:
        """Call `read` when messages may be there, and `gone` when a connection of `sock` ended: it does not say whose,
        but, of the parent's, why, if that was in its handshake."""
        above = sock.type == zmq.DEALER
        monitor = sock.get_monitor_socket(zmq.EVENT_DISCONNECTED | (_FAILED if above else _NOT_OURS))
        why = ""
        if not above:
            self.refusals.begin(sock.getsockopt_string(zmq.LAST_ENDPOINT))

        def on_monitor() -> None:
            nonlocal why
            while not monitor.closed:
                try:
                    event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
                except zmq.Again:
                    return
                if event == zmq.EVENT_DISCONNECTED:
                    gone(why)
                elif above:
                    why = refused.above(event, self._boot)
                elif not self._looking:
                    # Whose it was the kernel knows when it is closed; of many that come at once, one look finds all.
                    self._looking = self._loop.call_later(_LOOK, self._look, sock)

        self._loop.add_reader(monitor.FD, on_monitor)
        self._loop.add_reader(sock.FD, read)
        self._monitors.append(monitor)
        self._loop.call_soon(read)
        self._loop.call_soon(on_monitor)

    def _look(self, sock: zmq.Socket[Any]) -> None:
        self._looking = None
        self.refusals.tell_of_handshake(sock.getsockopt_string(zmq.LAST_ENDPOINT), self._boot.certificate)

    def close(self) -> None:
        """Close every socket; what was sent a moment ago still leaves."""
        if self._looking:
            self._looking.cancel()
        for monitor in self._monitors:
            self._loop.remove_reader(monitor.FD)
            monitor.close(0)
        for sock in self._sockets:
            self._loop.remove_reader(sock.FD)
            sock.close()
        self._context.term()
