"""The TCP port of this node for the PMIx clients of all jobs: it finds the job of each connection by its namespace.

Whether a program uses PMIx is not known before it runs (a script may start one), so every task gets the address of this
port. The PMIx server of a job, which costs a process and the start of libpmix, is started by its first connection.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..host import Host
    from .offer import Offer

# A client's greeting has its namespace, a job id in F58 followed by a NUL, among other words.
_NAMESPACE = re.compile(rb"(?<![0-9A-Za-z])(f[1-9A-Za-z]+)\0")
_GREETING = 4096
# Seconds between two looks at an incomplete greeting, and how often it is looked at.
_AGAIN = 0.005
_LOOKS = 400
_BACKLOG = 1024


class Port:
    """The port of one agent."""

    def __init__(self, agent: Host) -> None:
        self._agent = agent
        self._listener: socket.socket | None = None
        self._offers: dict[str, Offer] = {}
        self._address = ""

    def add(self, offer: Offer) -> str:
        """Pass clients of the namespace of `offer` to it; returns the address (`tcp4://...`). Raises OSError."""
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
        self._look(client, _LOOKS)

    def _look(self, client: socket.socket, looks: int) -> None:
        """Pass `client` to its job. Its greeting is only peeked at: libpmix reads it."""
        try:
            greeting = client.recv(_GREETING, socket.MSG_PEEK)
        except BlockingIOError:
            greeting = b"\n"
        except OSError:
            greeting = b""
        for found in _NAMESPACE.finditer(greeting):
            offer = self._offers.get(found.group(1).decode())
            if offer is not None:
                offer.connected(client)
                return
        if not greeting or not looks:
            client.close()
        else:
            self._agent.after(_AGAIN, lambda: self._look(client, looks - 1))
