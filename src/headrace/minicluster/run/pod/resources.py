"""The instance's R (RFC 20) and its hosts as files for scripts in the pod.

The files are `R` and `hostlist` in `config/etc/flux/system`. In the Flux Operator, each pod writes both files once,
before its broker starts, assuming that all pods are alike. Here the files have the instance's own data: R as `flux
resource R` prints it. They are written when the pod's broker is in state run (on a follower some seconds later), and
updated when the instance's resources or hosts change, for example when it grows.
"""

from __future__ import annotations

import contextlib
import os
import socket

from headrace.formats.spec.message import EVENT
from headrace.wire.client.handle import Handle, Rpc

from .place import Place

# Events that report a change of R and of the hosts that may join.
_CHANGES = ("resource-define", "overlay.grow")


class ResourceFiles:
    """Keeps the files up to date through a connection to the pod's own broker.

    Raises OSError if no broker runs. No method blocks, so that the runner can end even if the broker hangs.
    """

    def __init__(self, place: Place) -> None:
        self._folder = f"{place.config}/etc/flux/system"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._handle: Handle | None = None
        self._asking = 0
        self._changed_meanwhile = False
        try:
            self._sock.connect(place.socket)
        except OSError:
            self._sock.close()
            raise

    @property
    def fd(self) -> int:
        return self._sock.fileno()

    def read(self) -> bool:
        """Read and handle received messages; return False if the connection has ended."""
        try:
            if self._handle is None:
                return self._begin()
            self._handle.pump(0)
            while self._handle.dispatch():
                pass
            for events in self._handle.unclaimed(EVENT):
                if events:
                    events.clear()
                    self._ask()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._sock.close()

    def _begin(self) -> bool:
        """Read the broker's greeting: one byte, 0 if the connection is accepted."""
        if self._sock.recv(1) != b"\0":
            return False
        self._handle = Handle("local", self._sock)
        # Errors are ignored, because an instance works without these files.
        for topic in _CHANGES:
            self._handle.rpc("event.subscribe", {"topic": topic}).then(lambda _answer: None)
        self._ask()
        return True

    def _ask(self) -> None:
        assert self._handle is not None
        if self._asking:
            self._changed_meanwhile = True
            return
        self._asking, self._changed_meanwhile = 2, False
        self._handle.rpc("resource.sched-status", {}, nodeid=0).then(self._take_resources)
        self._handle.rpc("attr.get", {"name": "hostlist"}).then(self._take_hosts)

    def _take_resources(self, answer: Rpc) -> None:
        import json

        with contextlib.suppress(OSError):
            self._write("R", json.dumps(answer.get()["all"]))
        self._answered()

    def _take_hosts(self, answer: Rpc) -> None:
        with contextlib.suppress(OSError):
            self._write("hostlist", answer.get()["value"])
        self._answered()

    def _answered(self) -> None:
        self._asking -= 1
        if not self._asking and self._changed_meanwhile:
            self._ask()

    def _write(self, name: str, text: str) -> None:
        path = f"{self._folder}/{name}"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        os.replace(f"{path}.new", path)
