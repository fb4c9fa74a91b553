"""Who is not let into the tree, and what both ends say of it.

ZeroMQ tells of a handshake that failed, and then of the end of the connection. Whoever can reach a parent's port can
make it log: each line comes once in a while, and few of them.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

import zmq

from .boot import BootInfo

# Seconds in which a line comes once, and lines that come in them.
_WHILE = 60.0
_MOST = 20
_MAPPED = "::ffff:"


def above(event: int, _detail: int, boot: BootInfo) -> str:
    """What a child says of its parent, where that event (with its detail) was the end of the handshake."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"{boot.parent_uri} refused our key{', of ' + boot.certificate if boot.certificate else ''}"
    known = f"certificate of {boot.certificate}" if boot.certificate else "key that we were told"
    return f"{boot.parent_uri} ended the handshake: no broker with the {known} answers there"


def below(event: int, detail: int, peer: str, boot: BootInfo) -> str:
    """What a parent says of who is at the address `peer`; "" of one that only looked whether somebody is there."""
    who = f"connection from {peer or 'this host'} refused"
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"{who}: its key is no member's"
    if event != zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return ""
    if detail != zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return f"{who}: it is no broker"
    return f"{who}: its certificate is not {'that of ' + boot.certificate if boot.certificate else 'ours'}"


def address_behind(fd: int) -> str:
    """The IP address that a descriptor of ZeroMQ's is connected to, "" if it is not (any more). It stays open."""
    try:
        connection = socket.socket(fileno=fd)
    except OSError:
        return ""
    try:
        address = connection.getpeername()
    except OSError:
        return ""
    finally:
        connection.detach()
    return str(address[0]).removeprefix(_MAPPED) if isinstance(address, tuple) else ""


def _sender_of(frame: zmq.Frame) -> str:
    """Where a message came from: an IP address, or a process of this host."""
    try:
        address = str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return "an unknown address"
    # Of a Unix socket it is "localhost", user, group and process.
    words = address.split(":")
    return f"process {words[3]}" if words[0] == "localhost" and len(words) == 4 else address.removeprefix(_MAPPED)


class Refusals:
    """What a parent logs of those it does not let in."""

    def __init__(self, log: Callable[[int, str, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since = clock()
        self._told: set[str] = set()
        self._untold = 0

    def tell_of_hello(self, origin: zmq.Frame, host: str, text: str) -> None:
        self.tell(logging.ERROR, f"hello of {host} at {_sender_of(origin)} refused: {text}")

    def tell(self, level: int, text: str) -> None:
        now = self._clock()
        if now - self._since >= _WHILE:
            if self._untold:
                self._log(logging.WARNING, "overlay", f"{self._untold} more connections and hellos were refused")
            self._since, self._untold = now, 0
            self._told.clear()
        if text in self._told or len(self._told) >= _MOST:
            self._untold += 1
            return
        self._told.add(text)
        self._log(level, "overlay", text)
