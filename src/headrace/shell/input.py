"""Where tasks' standard input comes from: a file, or what clients send to the shell's service (RFC 24, flux-shell(1)).

The lead shell (nodeid 0) is asked; it keeps the job's input log and passes on what it gets to the other shells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..spec import stdio
from ..spec.idset import Idset
from .mustache import expand
from .output import Entry, Lookup, is_fifo
from .task import Task

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
# Clients get no responses while more bytes than this are queued for every task of the job.
_MOST = 1 << 20


def opened(path: str, command: list[str]) -> tuple[int, list[str]]:
    """A descriptor of the file that a task reads, -1 for none, and the task's command. Raises OSError."""
    if not path:
        return -1, command
    if is_fifo(path):
        # Opening a FIFO blocks until it has a writer, so the task opens it, not the agent.
        return os.open(os.devnull, _READ), ["/bin/sh", "-c", 'exec "$@" <"$0"', path, *command]
    return os.open(path, _READ), command


class Input:
    """Input of one job on one node. `keep(entries)` takes log entries; `send(nodeid, message)` goes to another shell.

    `options` are the shell's; `tasks` may still be filled.
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
        # In the lead shell: the tasks that have been sent the end of their input.
        self._ended = Idset()
        self._unanswered: list[Callable[[], None]] = []

    def _spec(self) -> dict[str, Any]:
        given = self._options.get("input")
        spec = given.get("stdin") if isinstance(given, dict) else None
        return spec if isinstance(spec, dict) else {}

    @property
    def from_clients(self) -> bool:
        """Whether clients may send input."""
        return bool(self._spec().get("type", "service") == "service")

    def path(self, lookup: Lookup) -> str:
        """`input.stdin.path`; empty when stdin comes from the job's input stream."""
        spec = self._spec()
        if spec.get("type") != "file" or not spec.get("path"):
            return ""
        return expand(str(spec["path"]), lookup)

    def from_client(self, io: dict[str, Any], ntasks: int, answer: Callable[[], None]) -> None:
        """In the lead shell: a client sent input, the context of a data event (RFC 24).

        `answer()` is called when the client may send more. Raises StdioError, ValueError for an invalid rank, and
        BrokenPipeError if all addressed tasks have been sent the end of their input.
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
        for nodeid in range(1, self._nnodes):
            text = data.decode("latin-1")
            self._send(nodeid, {"kind": "stdin", "rank": decoded.rank, "data": text, "eof": eof})
        self._unanswered.append(answer)
        self.answer()

    def answer(self) -> None:
        """Answer clients, unless every task has a long backlog.

        Often only one task reads its input, so a backlog of others does not delay clients. The backlogs of other nodes
        are not known here, so clients of jobs on several nodes are always answered.
        """
        backlogs = [task.feed.backlog for task in self._tasks if task.feed is not None and task.feed.fd >= 0]
        backlogs += [task.pty.backlog for task in self._tasks if task.pty is not None and task.pty.master >= 0]
        if backlogs and self._nnodes == 1 and all(backlog > _MOST for backlog in backlogs):
            return
        unanswered, self._unanswered = self._unanswered, []
        for answer in unanswered:
            answer()

    def from_peer(self, data: dict[str, Any]) -> None:
        """The lead passed on what a client sent."""
        self._feed(data["rank"], data["data"].encode("latin-1"), data["eof"])

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
