"""The runner's connection to the process that serves the operator's channel."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from headrace.formats.spec.lines import LineReader

from ...api.pod_plan import PodPlan
from .place import Place


class Link:
    """Sends the broker's states, one per line, and receives job counts and requests to end the instance."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lines = LineReader()
        self.asks_to_end = False
        self.closed = False
        # Both are set when the instance has ended. `jobs` is the number of jobs by state. `failed_job` has the
        # attributes of the instance's only job, if it had only one and an exception ended that job.
        self.jobs: dict[str, int] = {}
        self.failed_job: dict[str, Any] = {}

    @property
    def fd(self) -> int:
        return self._sock.fileno()

    def send_state(self, line: str) -> None:
        # The channel's process may have been killed.
        with contextlib.suppress(OSError):
            self._sock.sendall(line.encode() + b"\n")

    def read(self) -> bool:
        """Read and handle received lines; return False if the connection has ended."""
        data = self._sock.recv(4096)
        self.closed = not data
        for line in self._lines.feed(data):
            word, _, rest = line.partition(b" ")
            if word == b"end":
                self.asks_to_end = True
            elif word == b"jobs":
                import json

                ended = json.loads(rest)
                self.jobs, self.failed_job = ended["jobs"], ended["failed"]
        return bool(data)


def open_link(plan: PodPlan, place: Place) -> Link | None:
    """Start the process that serves the channel.

    None if there are no keys, as in a MiniCluster without an operator.
    """
    if not os.path.exists(os.path.join(place.keys, "channel.cert")):
        return None
    from . import channel_server

    keys = channel_server.read_keys(place.keys)
    if keys is None:
        return None
    _, sock = channel_server.fork_server(plan, place, keys)
    return Link(sock)
