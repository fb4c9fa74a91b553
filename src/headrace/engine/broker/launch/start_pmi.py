"""The PMI-1 service (RFC 13) of `flux start`, for broker programs without a `[bootstrap]` table.

Each broker has a socket in PMI_FD. With `-vv`, requests and responses are printed on stderr.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial

from headrace.engine.shell.pmi import PmiServer
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.taskmap import TaskMap

# The most bytes of a request line.
_LONGEST_LINE = 1 << 12


class StartPmi:
    """The exchange of `size` brokers.

    `watch(fd, readable)` makes a loop call `readable()`; None stops that. `abort(rank, code, text)` is called when a
    broker asks for an end of all brokers.
    """

    def __init__(
        self,
        size: int,
        mapping: str,
        watch: Callable[[int, Callable[[], None] | None], None],
        abort: Callable[[int, int, str], None],
        trace: bool,
    ) -> None:
        preset = {"flux.taskmap": mapping}
        if mapping:
            preset["PMI_process_mapping"] = TaskMap.decode(mapping).pmi_mapping()
        self._size = size
        self._watch = watch
        self._trace = trace
        self._server = PmiServer("flux-start", size, size, preset, self._entered, abort, lambda _note: None)
        self._complete = size == 1
        self._sockets: dict[int, socket.socket] = {}
        self._lines: dict[int, LineReader] = {}

    def begin(self, rank: int) -> tuple[int, dict[str, str]]:
        """Prepare the fork of the broker of `rank`: returns its descriptor and its variables.

        The broker inherits the descriptor, and the caller then closes it. Raises OSError EISCONN for a rank that
        already got one, since the exchange is over.
        """
        if rank in self._lines:
            text = "a broker that was started by PMI cannot be started again: give a table [bootstrap]"
            raise OSError(errno.EISCONN, text)
        ours, theirs = socket.socketpair()
        self._sockets[rank] = ours
        self._lines[rank] = LineReader()
        self._watch(ours.fileno(), partial(self._readable, rank))
        fd = theirs.detach()
        return fd, {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self._size)}

    def ended(self, rank: int) -> None:
        """Handle the end of the broker of `rank`: if the exchange is incomplete, abort it."""
        if not self._complete:
            for other in list(self._sockets):
                self._close(other)
        elif rank in self._sockets:
            self._close(rank)

    def leave(self) -> None:
        """Close the sockets in a process that was forked to be a broker."""
        for sock in self._sockets.values():
            sock.close()

    def _entered(self, pairs: Mapping[str, str]) -> None:
        self._complete = True
        self._server.complete(pairs)

    def _readable(self, rank: int) -> None:
        try:
            data = self._sockets[rank].recv(_LONGEST_LINE)
        except OSError:
            data = b""
        for line in self._lines[rank].feed(data):
            text = line.decode("utf-8", "replace")
            self._trace_line(rank, "C", text)
            self._server.line(text, rank, partial(self._answer, rank))
        if not data or len(self._lines[rank].rest) > _LONGEST_LINE:
            self._close(rank)

    def _answer(self, rank: int, data: bytes) -> None:
        sock = self._sockets.get(rank)
        if sock is None:
            return
        self._trace_line(rank, "S", data.decode("utf-8", "replace").rstrip("\n"))
        try:
            sock.sendall(data)
        except OSError:
            self._close(rank)

    def _trace_line(self, rank: int, who: str, text: str) -> None:
        if self._trace:
            print(f"{rank}: {who}: {text}", file=sys.stderr, flush=True)

    def _close(self, rank: int) -> None:
        sock = self._sockets.pop(rank, None)
        if sock is not None:
            self._watch(sock.fileno(), None)
            sock.close()
