"""The port for the readiness probe (HTTP): 200 while the pod's broker is up, then 503.

Until the broker is up for the first time, requests wait for their response. So a start needs only one probe of the
kubelet; each response "not ready" would cost an Event and another probe.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

# Backlog of connections; a kubelet has one at a time.
_LARGEST_WAITING = 16


class ReadyPort:
    """The server of the port. `open` starts it; `answer_probes` sets whether the broker is up.

    `watch(fd, read)` registers `read` for descriptor `fd`, and `forget(fd)` removes it.
    """

    def __init__(
        self, port: int, watch: Callable[[int, Callable[[], None]], None], forget: Callable[[int], None]
    ) -> None:
        self._port = port
        self._watch = watch
        self._forget = forget
        self._listener: socket.socket | None = None
        # None until the broker is up for the first time.
        self._up: bool | None = None
        # Connections without a response, by descriptor, the oldest first.
        self._connections: dict[int, socket.socket] = {}
        self._waiting: set[int] = set()

    def open(self) -> None:
        """Start to listen. Raises OSError if another program uses the port."""
        self._listener = _listen(self._port)
        self._watch(self._listener.fileno(), self._accept)
        # A broker is a fork of this process and must not keep these sockets.
        os.register_at_fork(after_in_child=self._close_all)

    @property
    def up(self) -> bool:
        """Whether requests are answered with 200."""
        return self._up is True

    def answer_probes(self, up: bool) -> None:
        """Set whether the broker is up. Requests wait only until it is up for the first time."""
        if up or self._up is not None:
            self._up = up
            for fd in list(self._waiting):
                self._answer(fd)

    def _accept(self) -> None:
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            if len(self._connections) >= _LARGEST_WAITING:
                self._drop(next(iter(self._connections)))
            fd = connection.fileno()
            self._connections[fd] = connection
            self._watch(fd, lambda fd=fd: self._read(fd))  # type: ignore[misc]

    def _read(self, fd: int) -> None:
        # A request without a body arrives in one piece; its contents do not matter.
        try:
            data = self._connections[fd].recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(fd)
            return
        self._waiting.add(fd)
        if self._up is not None:
            self._answer(fd)

    def _answer(self, fd: int) -> None:
        status = b"200 OK" if self._up else b"503 Service Unavailable"
        with contextlib.suppress(OSError):
            self._connections[fd].send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._forget(fd)
        self._waiting.discard(fd)
        self._connections.pop(fd).close()

    def _close_all(self) -> None:
        for connection in (self._listener, *self._connections.values()):
            if connection is not None:
                connection.close()


def _listen(port: int) -> socket.socket:
    # Probes come over IPv4 or IPv6, depending on the cluster's network; some kernels have no IPv6.
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
