"""The service of a job's shell (`UID-shell-ID.METHOD`): input, signals, process table, terminal.

Every request gets a response. Invalid requests get an error.

The process table has host and process id of each task, for debuggers and `flux job hostpids`. It is rarely requested,
so the lead shell collects it from the other shells only on request.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.formats.spec.payload import mismatch
from headrace.formats.spec.requests.execution import SHELL

from .input import Input
from .task import Task

if TYPE_CHECKING:
    from headrace.engine.process.operations import Rpc

    from .host import Job
    from .task import Task

# A task in the process table: rank, host and process id.
Entry = list[Any]


class ProcTable:
    """The process table in one shell.

    `send(nodeid, message)` sends a message to another shell, `answer(token, payload)` a response to a client. In the
    lead shell, `others` is the live set of nodes whose shells have not finished.
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
        # By request: the nodes that have not responded, and the entries so far.
        self._asked: dict[int, tuple[set[int], list[Entry]]] = {}

    def ask(self, token: int, tasks: Iterable[Task]) -> None:
        """In the lead shell: handle a client's request for the table."""
        self._asked[token] = (set(self._others), self._own(tasks))
        for nodeid in self._others:
            self._send(nodeid, {"kind": "proctable", "token": token})
        self._answer_if_complete(token)

    def from_peer(self, source: int, data: dict[str, Any], tasks: Iterable[Task]) -> None:
        """Handle a request of the lead shell, or the response of another shell."""
        if "entries" not in data:
            self._send(0, {"kind": "proctable", "token": data["token"], "entries": self._own(tasks)})
        elif data["token"] in self._asked:
            waiting, known = self._asked[data["token"]]
            waiting.discard(source)
            known += data["entries"]
            self._answer_if_complete(data["token"])

    def done(self, source: int) -> None:
        """Stop waiting for the shell of a node, which has finished or is lost."""
        for token in [token for token, (waiting, _) in self._asked.items() if source in waiting]:
            self._asked[token][0].discard(source)
            self._answer_if_complete(token)

    def _own(self, tasks: Iterable[Task]) -> list[Entry]:
        # The pid of a task that has ended is negative.
        return [[task.rank, self._host, abs(task.pid)] for task in tasks]

    def _answer_if_complete(self, token: int) -> None:
        waiting, known = self._asked[token]
        if not waiting:
            del self._asked[token]
            self._answer(token, {"tasks": sorted(known)})


class Service:
    """The service of one job, in its lead shell."""

    def __init__(self, job: Job, tasks: Sequence[Task], stdin: Input, proctable: ProcTable) -> None:
        self._job = job
        self._tasks = tasks
        self._stdin = stdin
        self._proctable = proctable

    def request(self, op: Rpc) -> None:
        """Handle a request. `op` is the broker's operation `rpc` (docs/dev/interfaces.md)."""
        job, method, token = self._job, op["method"], op["token"]
        if method == "disconnect":
            for task in self._tasks:
                if task.pty is not None:
                    task.pty.disconnect(op.get("sender", ""))
            return
        wanted = SHELL.get(method)
        wrong = mismatch(wanted, op["payload"]) if wanted is not None else ""
        if wrong:
            job.reports.reply(token, None, errno.EPROTO, f"{job.op['service']}.{method}: {wrong}")
            return
        try:
            if method == "stdin" and self._stdin.from_clients:
                self._stdin.from_client(op["payload"], job.size, partial(job.reports.reply, token))
            elif method == "kill":
                job.kill(_signal_number(op["payload"]["signum"]))
                job.reports.reply(token)
            elif method == "proctable":
                self._proctable.ask(token, self._tasks)
            elif method == "pty" and self._tasks and self._tasks[0].pty is not None:
                self._tasks[0].pty.request(op)
            else:
                job.reports.reply(token, None, errno.ENOSYS, f"Unknown service method '{job.op['service']}.{method}'")
        except BrokenPipeError:
            job.reports.reply(token, None, errno.EPIPE, "Broken pipe")
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            job.reports.reply(token, None, errno.EPROTO, f"{method}: {exc}")


def _signal_number(value: Any) -> int:
    """The signal number in a request. Raises TypeError, ValueError."""
    if value not in signal.valid_signals():
        raise ValueError(f"invalid signal number {value}")
    return int(value)
