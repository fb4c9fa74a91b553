"""Log lines about refused connections and hellos, at both ends.

ZeroMQ reports a failed handshake, and then the end of the connection. Anyone who can reach a parent's port can make it
log, so each line is logged rarely, and the number of lines is limited.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable

import zmq

from headrace.engine.broker.boot.boot import BootInfo

# Within a period of _WHILE seconds, each line is logged once, and at most _MOST different lines.
_WHILE = 60.0
_MOST = 20
_MAPPED = "::ffff:"
# TCP states in the kernel's tables: FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSING.
_CLOSED_BY_US = ("04", "05", "06", "0B")


def above(event: int, boot: BootInfo) -> str:
    """The child's log text about its parent if this ZeroMQ event ended the handshake."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return f"{boot.parent_uri} refused our key{', of ' + boot.certificate if boot.certificate else ''}"
    known = f"certificate of {boot.certificate}" if boot.certificate else "key that we were told"
    return f"{boot.parent_uri} ended the handshake: no broker with the {known} answers there"


def sent_away(endpoint: str) -> set[str]:
    """The peers of connections to `endpoint` that this host has closed in the last minute.

    Addresses are in the kernel's notation. ZeroMQ does not report the peer of a failed handshake, and closes the
    descriptor before it could be queried.
    """
    found: set[str] = set()
    if endpoint.startswith("tcp:"):
        port = int(endpoint.rpartition(":")[2])
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/self/net/{name}", encoding="ascii") as table:
                next(table)
                for line in table:
                    _, local, remote, state, _ = line.split(None, 4)
                    if state in _CLOSED_BY_US and int(local.rpartition(":")[2], 16) == port:
                        found.add(remote)
    return found


def address_of(end: str) -> str:
    """Convert an address in the kernel's tables: 32-bit words in machine byte order, before the port."""
    text = end.rpartition(":")[0]
    packed = b"".join(int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed).removeprefix(_MAPPED)


def readable(address: str) -> str:
    """The text of a peer's address in ZeroMQ.

    It is an IP, or a Unix socket ("localhost", user, group and process).
    """
    words = address.split(":")
    return f"process {words[3]}" if words[0] == "localhost" and len(words) == 4 else address.removeprefix(_MAPPED)


def _sender_of(frame: zmq.Frame) -> str:
    try:
        return readable(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return "an unknown address"


class Refusals:
    """A parent's log about refused peers."""

    def __init__(self, log: Callable[[int, str, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since = clock()
        self._logged: set[str] = set()
        self._suppressed = 0
        self._old: set[str] = set()

    def begin(self, endpoint: str) -> None:
        """Ignore closed connections of an earlier broker that listened on this port."""
        self._old = sent_away(endpoint)

    def log_key(self, address: str) -> None:
        """Log the refusal of a peer with an unknown key. ZeroMQ reports its address."""
        self.log(logging.WARNING, f"connection from {readable(address)} refused: its key does not belong to a member")

    def log_handshake(self, endpoint: str, certificate: str) -> None:
        """Log the failed handshake of a peer at `endpoint` that does not know this broker's key."""
        ours = f"that of {certificate}" if certificate else "ours"
        why = f"its certificate is not {ours}, or it is not a broker"
        nobody = "an unknown address" if endpoint.startswith("tcp:") else "this host"
        peers = {address_of(end) for end in sent_away(endpoint) - self._old} or {nobody}
        lines = [f"connection from {peer} refused: {why}" for peer in sorted(peers)]
        for line in [line for line in lines if line not in self._logged] or lines[:1]:
            self.log(logging.WARNING, line)

    def log_hello(self, origin: zmq.Frame, host: str, text: str) -> None:
        self.log(logging.ERROR, f"hello of {host} at {_sender_of(origin)} refused: {text}")

    def log(self, level: int, text: str) -> None:
        now = self._clock()
        if now - self._since >= _WHILE:
            if self._suppressed:
                self._log(logging.WARNING, "overlay", f"{self._suppressed} more connections and hellos were refused")
            self._since, self._suppressed = now, 0
            self._logged.clear()
        if text in self._logged or len(self._logged) >= _MOST:
            self._suppressed += 1
            return
        self._logged.add(text)
        self._log(level, "overlay", text)
