"""Which process is which task, for debuggers and `flux job hostpids`.

Nobody asks for most jobs, so nothing is collected until the lead shell is asked; then each node's shell is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .task import Task

# Of one task: its rank, host and process id.
Entry = list[Any]


class ProcTable:
    """One shell's part. `send(nodeid, message)` goes to another shell, `answer(token, payload)` to who asked."""

    def __init__(
        self,
        host: str,
        nnodes: int,
        send: Callable[[int, dict[str, Any]], None],
        answer: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._host = host
        self._nnodes = nnodes
        self._send = send
        self._answer = answer
        # By request: how many shells have not answered, and what is known.
        self._asked: dict[int, tuple[int, list[Entry]]] = {}

    def ask(self, token: int, tasks: Iterable[Task]) -> None:
        """In the lead: a request came."""
        self._asked[token] = (self._nnodes, [])
        for nodeid in range(1, self._nnodes):
            self._send(nodeid, {"kind": "proctable", "token": token})
        self._take(token, self._own(tasks))

    def from_peer(self, data: dict[str, Any], tasks: Iterable[Task]) -> None:
        """The lead asks, or another shell answers."""
        if "entries" in data:
            self._take(data["token"], data["entries"])
        else:
            self._send(0, {"kind": "proctable", "token": data["token"], "entries": self._own(tasks)})

    def _own(self, tasks: Iterable[Task]) -> list[Entry]:
        # A negative pid is that of a task that has ended.
        return [[task.rank, self._host, abs(task.pid)] for task in tasks]

    def _take(self, token: int, entries: list[Entry]) -> None:
        left, known = self._asked[token]
        known += entries
        self._asked[token] = (left - 1, known)
        if left == 1:
            del self._asked[token]
            self._answer(token, {"tasks": sorted(known)})
