"""A port that accepts while the pod's broker is up, and refuses otherwise: what a readiness probe of the pod asks."""

from __future__ import annotations

import contextlib
import socket


class ReadyPort:
    """The port is open from `open` to `close`. A connection that was accepted is closed; nothing is read from it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener: socket.socket | None = None

    @property
    def fd(self) -> int:
        """The listener's descriptor, -1 while the port is closed."""
        return self._listener.fileno() if self._listener is not None else -1

    def open(self) -> None:
        """Raises OSError where another program has the port."""
        if self._listener is None:
            self._listener = _listen(self._port)

    def accept(self) -> None:
        """Take all connections that wait."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.close()

    def close(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.close()
            self._listener = None


def _listen(port: int) -> socket.socket:
    # Probes come over IPv4 or IPv6, as the node's network is; some kernels have no IPv6.
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind((address, port))
            sock.listen(16)
        except OSError:
            sock.close()
            if family == socket.AF_INET:
                raise
            continue
        return sock
    raise OSError("this pod has neither IPv4 nor IPv6")
