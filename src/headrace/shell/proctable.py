"""Which process is which task, for debuggers and `flux job hostpids`.

Nobody asks for most jobs, so nothing is collected until the lead shell is asked; then each node's shell is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .task import Task

# Of one task: its rank, host and process id.
Entry = list[Any]


class ProcTable:
    """One shell's part. `send(nodeid, message)` goes to another shell, `answer(token, payload)` to who asked.

    `others` are, in the lead, the nodes whose shells are still at work at any time.
    """

    def __init__(
        self,
        host: str,
        others: Collection[int],
        send: Callable[[int, dict[str, Any]], None],
        answer: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._host = host
        self._others = others
        self._send = send
        self._answer = answer
        # By request: the nodes that have not answered, and what is known.
        self._asked: dict[int, tuple[set[int], list[Entry]]] = {}

    def ask(self, token: int, tasks: Iterable[Task]) -> None:
        """In the lead: a request came."""
        self._asked[token] = (set(self._others), self._own(tasks))
        for nodeid in self._others:
            self._send(nodeid, {"kind": "proctable", "token": token})
        self._answer_if_known(token)

    def from_peer(self, source: int, data: dict[str, Any], tasks: Iterable[Task]) -> None:
        """The lead asks, or another shell answers."""
        if "entries" not in data:
            self._send(0, {"kind": "proctable", "token": data["token"], "entries": self._own(tasks)})
        elif data["token"] in self._asked:
            left, known = self._asked[data["token"]]
            left.discard(source)
            known += data["entries"]
            self._answer_if_known(data["token"])

    def done(self, source: int) -> None:
        """A node has ended its part of the job, or is lost: it answers nothing any more."""
        for token in [token for token, (left, _) in self._asked.items() if source in left]:
            self._asked[token][0].discard(source)
            self._answer_if_known(token)

    def _own(self, tasks: Iterable[Task]) -> list[Entry]:
        # A negative pid is that of a task that has ended.
        return [[task.rank, self._host, abs(task.pid)] for task in tasks]

    def _answer_if_known(self, token: int) -> None:
        left, known = self._asked[token]
        if not left:
            del self._asked[token]
            self._answer(token, {"tasks": sorted(known)})
