"""Credit-based flow control of output from the shells of a job to its lead shell.

A shell whose unacknowledged output exceeds a window stops reading its tasks, which then block in write(2). The lead
returns credit for output that it has passed on to its broker. So a slow consumer slows down the tasks of every node,
and no broker on the way buffers more than one window for each node of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Bytes that may be unacknowledged, and bytes for which the lead returns credit in one message.
_WINDOW, _CREDIT = 512 << 10, 128 << 10


class SendWindow:
    """The sender's side. `hold(True)` is called when the window is full, `hold(False)` when it has room again."""

    def __init__(self, hold: Callable[[bool], None]) -> None:
        self._hold = hold
        self._on_way = 0
        self._full = False
        self._open = False

    def sent(self, size: int) -> None:
        self._on_way += size
        self._decide()

    def taken(self, size: int) -> None:
        self._on_way -= size
        self._decide()

    def open(self) -> None:
        """Disable flow control: the job ends, and its lead shell may be gone."""
        self._open = True
        self._decide()

    def _decide(self) -> None:
        full = self._on_way > _WINDOW and not self._open
        if full != self._full:
            self._full = full
            self._hold(full)


class Credits:
    """The lead's side: bytes of each node that it has passed on. `grant(nodeid, size)` returns credit to a shell."""

    def __init__(self, grant: Callable[[int, int], None]) -> None:
        self._grant = grant
        self._passed: dict[int, int] = {}

    def passed(self, nodeid: int, size: int) -> None:
        whole = self._passed.get(nodeid, 0) + size
        if whole >= _CREDIT:
            self._grant(nodeid, whole)
            whole = 0
        self._passed[nodeid] = whole


def size_of(message: dict[str, Any]) -> int:
    """Bytes of output in a message to the lead."""
    if message["kind"] == "file":
        return len(message["data"])
    return sum(len(entry[2].get("data") or "") for entry in message["entries"] if entry[1] == "data")
