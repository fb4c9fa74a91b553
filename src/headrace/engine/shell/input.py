"""Standard input of tasks, from a file or from clients of the shell's service (RFC 24, flux-shell(1)).

Clients send input to the lead shell (nodeid 0), which writes the job's input log and passes the input on to the other
shells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.formats.spec import stdio
from headrace.formats.spec.idset import Idset

from .output import Entry, Lookup, is_fifo
from .task import Task
from .templates import expand

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
# Flow control: clients get no responses while more than this number of bytes is queued for every task of the job, or is
# on the way to a node.
_MOST = 1 << 20
# Bytes of input that the shell of another node acknowledges in one message.
_CREDIT = 128 << 10
# The state of a node's tasks: at least one task has room for input, no task has room, or no task reads input any more.
_ROOM, _FULL, _NONE = "room", "full", "none"


def opened(path: str, command: list[str]) -> tuple[int, list[str]]:
    """A descriptor of the input file of a task (-1: none), and the task's command. Raises OSError."""
    if not path:
        return -1, command
    if is_fifo(path):
        # Opening a FIFO blocks until it has a writer, so it is opened by the task instead of the agent.
        return os.open(os.devnull, _READ), ["/bin/sh", "-c", 'exec "$@" <"$0"', path, *command]
    return os.open(path, _READ), command


class Input:
    """The input of one job on one node.

    `keep(entries)` adds entries to the input log, `send(nodeid, message)` sends a message to another shell. `options`
    are the shell options. `tasks` may be filled later.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        nnodes: int,
        tasks: Sequence[Task],
        keep: Callable[[list[Entry]], None],
        send: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._options = options
        self._nnodes = nnodes
        self._tasks = tasks
        self._keep = keep
        self._send = send
        # In the lead shell: the tasks that have been sent end-of-file.
        self._ended = Idset()
        self._unanswered: list[Callable[[], None]] = []
        # In the lead shell, by node: bytes that its shell has not acknowledged, and the state that it has reported. And
        # the nodes whose shells have ended.
        self._on_way: dict[int, int] = {}
        self._states: dict[int, str] = {}
        self._ended_shells: set[int] = set()
        # In another shell: True once it has received input, bytes that it has not acknowledged, and the last state that
        # it has reported.
        self._fed = False
        self._taken = 0
        self._reported_state = _ROOM

    def _spec(self) -> dict[str, Any]:
        given = self._options.get("input")
        spec = given.get("stdin") if isinstance(given, dict) else None
        return spec if isinstance(spec, dict) else {}

    @property
    def from_clients(self) -> bool:
        """True if clients may send input."""
        return bool(self._spec().get("type", "service") == "service")

    def path(self, lookup: Lookup) -> str:
        """The expanded `input.stdin.path`; empty if clients send the input."""
        spec = self._spec()
        if spec.get("type") != "file" or not spec.get("path"):
            return ""
        return expand(str(spec["path"]), lookup)

    def from_client(self, io: dict[str, Any], ntasks: int, answer: Callable[[], None]) -> None:
        """In the lead shell: handle input of a client. `io` is the context of a data event (RFC 24).

        `answer()` is called when the client may send more. Raises StdioError, ValueError for an invalid rank, and
        BrokenPipeError if all addressed tasks have been sent end-of-file.
        """
        decoded = stdio.decode_data(io)
        everyone = Idset(range(ntasks))
        wanted = everyone if decoded.rank == "all" else Idset.parse(decoded.rank) & everyone
        if wanted and not wanted - self._ended:
            raise BrokenPipeError
        if decoded.eof:
            self._ended = self._ended | wanted
        self._keep([[time.time(), "data", dict(io)]])
        data, eof = decoded.data or b"", decoded.eof
        self._feed(decoded.rank, data, eof)
        text = data.decode("latin-1") if self._nnodes > 1 else ""
        for nodeid in self._others():
            self._on_way[nodeid] = self._on_way.get(nodeid, 0) + len(text)
            self._send(nodeid, {"kind": "stdin", "rank": decoded.rank, "data": text, "eof": eof})
        self._unanswered.append(answer)
        self.answer()

    def answer(self) -> None:
        """Respond to clients, unless every task has a long backlog.

        Often only one task reads its input, so backlogs of other tasks do not delay clients.
        """
        if self._fed:
            self._report_state()
        if not self._unanswered or self._waits():
            return
        unanswered, self._unanswered = self._unanswered, []
        for answer in unanswered:
            answer()

    def _others(self) -> list[int]:
        return [nodeid for nodeid in range(1, self._nnodes) if nodeid not in self._ended_shells]

    def _waits(self) -> bool:
        if any(size > _MOST for size in self._on_way.values()):
            return True
        states = {self._state(), *(self._states.get(nodeid, _ROOM) for nodeid in self._others())}
        return _FULL in states and _ROOM not in states

    def _state(self) -> str:
        backlogs = [task.feed.backlog for task in self._tasks if task.feed is not None and task.feed.fd >= 0]
        backlogs += [task.pty.backlog for task in self._tasks if task.pty is not None and task.pty.master >= 0]
        if not backlogs:
            return _NONE
        return _FULL if all(backlog > _MOST for backlog in backlogs) else _ROOM

    def from_peer(self, data: dict[str, Any]) -> None:
        """Handle input that the lead shell has passed on."""
        self._feed(data["rank"], data["data"].encode("latin-1"), data["eof"])
        self._fed = True
        self._taken += len(data["data"])
        self._report_state()

    def _report_state(self) -> None:
        state = self._state()
        if state != self._reported_state or self._taken >= _CREDIT:
            self._send(0, {"kind": "stdin-taken", "bytes": self._taken, "state": state})
            self._reported_state, self._taken = state, 0

    def peer_took(self, nodeid: int, size: int, state: str) -> None:
        """In the lead shell: handle an acknowledgement of another shell."""
        self._on_way[nodeid] = self._on_way.get(nodeid, 0) - size
        self._states[nodeid] = state
        self.answer()

    def peer_ended(self, nodeid: int) -> None:
        """In the lead shell: stop sending input to a shell that has ended or is lost."""
        self._ended_shells.add(nodeid)
        self._on_way.pop(nodeid, None)
        self.answer()

    def _feed(self, rank: str, data: bytes, eof: bool) -> None:
        wanted = None if rank == "all" else Idset.parse(rank)
        for task in self._tasks:
            if wanted is not None and task.rank not in wanted:
                continue
            if task.feed is not None:
                if data:
                    task.feed.write(data)
                if eof:
                    task.feed.end()
            elif task.pty is not None:
                task.pty.type(data)
                if eof:
                    task.pty.end_input()
