"""The TCP port of this node for PMIx clients of all jobs. The namespace identifies a connection's job.

It is not known in advance whether a program uses PMIx (a script may start such a program), so every task gets the
address of this port. The PMIx server of a job costs a process and the start of libpmix, so it is only started at the
job's first connection.

Any user of the node can connect. Therefore connections whose job is not known yet may use only a part of the agent's
descriptors, and only for a limited time.
"""

from __future__ import annotations

import re
import resource
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..host import Host
    from .offer import Offer

# A client's greeting contains its namespace: a job id in F58, followed by a NUL.
_NAMESPACE = re.compile(rb"(?<![0-9A-Za-z])(f[1-9A-Za-z]+)\0")
_GREETING = 4096
# Seconds between two checks of an incomplete greeting, and the most checks.
_AGAIN = 0.005
_MOST_CHECKS = 400
# Seconds until a client must have begun its greeting.
_PATIENCE = 10.0
_BACKLOG = 1024
# Limits on connections without a known job: 1/_PART of the agent's descriptors, and _MOST.
_PART, _MOST = 4, 4096


class Port:
    """The port of one agent."""

    def __init__(self, agent: Host) -> None:
        self._agent = agent
        self._listener: socket.socket | None = None
        self._offers: dict[str, Offer] = {}
        self._address = ""
        # Connections whose job is not known yet, oldest first, with the time of their arrival.
        self._unidentified: dict[socket.socket, float] = {}
        self._most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART, _MOST)
        self._is_timed = False

    def add(self, offer: Offer) -> str:
        """Pass clients with the namespace of `offer` to it. Returns the address (`tcp4://...`).

        Raises OSError.
        """
        if self._listener is None:
            listener = socket.socket()
            try:
                listener.bind(("127.0.0.1", 0))
                listener.listen(_BACKLOG)
            except OSError:
                listener.close()
                raise
            self._listener = listener
            self._address = f"tcp4://127.0.0.1:{listener.getsockname()[1]}"
            self._agent.watch(listener.fileno(), self._accept)
        self._offers[offer.namespace] = offer
        return self._address

    def remove(self, offer: Offer) -> None:
        self._offers.pop(offer.namespace, None)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _address = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        if len(self._unidentified) >= self._most:
            # A client that sends its greeting at once is identified before it becomes the oldest.
            self._drop(next(iter(self._unidentified)))
        self._unidentified[client] = time.monotonic()
        self._agent.watch(client.fileno(), partial(self._identify, client, _MOST_CHECKS))
        self._time()

    def _identify(self, client: socket.socket, checks_left: int) -> None:
        """Pass `client` to its job. The greeting is only peeked at, because libpmix must read it."""
        if client not in self._unidentified:
            return
        try:
            greeting = client.recv(_GREETING, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            greeting = b""
        for found in _NAMESPACE.finditer(greeting):
            offer = self._offers.get(found.group(1).decode())
            if offer is not None:
                self._forget(client)
                offer.connected(client)
                return
        if not greeting or not checks_left:
            self._drop(client)
            return
        # The socket is polled with a timer: the peeked data remain unread, so the socket would always be ready.
        self._agent.unwatch(client.fileno())
        self._agent.after(_AGAIN, partial(self._identify, client, checks_left - 1))

    def _time(self) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._agent.after(_PATIENCE, self._drop_silent)

    def _drop_silent(self) -> None:
        since = time.monotonic() - _PATIENCE
        for client in [client for client, came in self._unidentified.items() if came <= since]:
            self._drop(client)
        self._is_timed = False
        if self._unidentified:
            self._time()

    def _forget(self, client: socket.socket) -> None:
        del self._unidentified[client]
        self._agent.unwatch(client.fileno())

    def _drop(self, client: socket.socket) -> None:
        self._forget(client)
        client.close()
