"""The process table of a job, for debuggers and `flux job hostpids`: host and process id of each task.

It is requested for few jobs, so the lead shell collects it from the other shells only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .task import Task

# One task: its rank, host and process id.
Entry = list[Any]


class ProcTable:
    """The part of one shell. `send(nodeid, message)` goes to another shell, `answer(token, payload)` to a client.

    In the lead shell, `others` are at any time the nodes whose shells have not finished.
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
        # By request: the nodes that have not answered, and the entries so far.
        self._asked: dict[int, tuple[set[int], list[Entry]]] = {}

    def ask(self, token: int, tasks: Iterable[Task]) -> None:
        """In the lead shell: a client requests the table."""
        self._asked[token] = (set(self._others), self._own(tasks))
        for nodeid in self._others:
            self._send(nodeid, {"kind": "proctable", "token": token})
        self._answer_if_known(token)

    def from_peer(self, source: int, data: dict[str, Any], tasks: Iterable[Task]) -> None:
        """A request of the lead shell, or the answer of another shell."""
        if "entries" not in data:
            self._send(0, {"kind": "proctable", "token": data["token"], "entries": self._own(tasks)})
        elif data["token"] in self._asked:
            left, known = self._asked[data["token"]]
            left.discard(source)
            known += data["entries"]
            self._answer_if_known(data["token"])

    def done(self, source: int) -> None:
        """The shell of a node has finished, or is lost, and will not answer."""
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
