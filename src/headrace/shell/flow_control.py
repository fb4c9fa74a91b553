"""How much output of one shell is on its way to the lead shell: above a window its tasks are not read, and wait.

The lead answers for what it has passed on. It stops reading when its own broker reads it no more, so a slow end is felt
by the tasks of every node, and no broker on the way keeps more than a window for each node of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Bytes that may be on their way, and bytes for which the lead answers in one message.
_WINDOW, _PORTION = 512 << 10, 128 << 10


class SendWindow:
    """The sender's side. `hold(True)` is called when the window is full, `hold(False)` when there is room again."""

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
        """Hold nothing back any more: the job ends, and perhaps nobody is there to answer."""
        self._open = True
        self._decide()

    def _decide(self) -> None:
        full = self._on_way > _WINDOW and not self._open
        if full != self._full:
            self._full = full
            self._hold(full)


class Credits:
    """The lead's side: what it has passed on of each node's output. `answer(nodeid, size)` sends a receipt."""

    def __init__(self, answer: Callable[[int, int], None]) -> None:
        self._answer = answer
        self._passed: dict[int, int] = {}

    def passed(self, nodeid: int, size: int) -> None:
        whole = self._passed.get(nodeid, 0) + size
        if whole >= _PORTION:
            self._answer(nodeid, whole)
            whole = 0
        self._passed[nodeid] = whole


def size_of(message: dict[str, Any]) -> int:
    """Bytes of output in a message to the lead."""
    if message["kind"] == "file":
        return len(message["data"])
    return sum(len(entry[2].get("data") or "") for entry in message["entries"] if entry[1] == "data")
