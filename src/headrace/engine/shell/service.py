"""The service of a job's shell (`UID-shell-ID.METHOD`): input, signals, its processes, the terminal of the first task.

Every request gets a response, invalid ones an error.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.formats.spec.payload import mismatch
from headrace.formats.spec.requests.execution import SHELL

from .input import Input
from .proctable import ProcTable

if TYPE_CHECKING:
    from headrace.engine.process.operations import Rpc

    from .host import Job
    from .task import Task


class Service:
    """The service of one job, in its lead shell."""

    def __init__(self, job: Job, tasks: Sequence[Task], stdin: Input, proctable: ProcTable) -> None:
        self._job = job
        self._tasks = tasks
        self._stdin = stdin
        self._proctable = proctable

    def request(self, op: Rpc) -> None:
        """Serve a request; `op` is the operation `rpc` of the broker (docs/dev/interfaces.md)."""
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
    """The number of a signal in a request. Raises TypeError, ValueError."""
    if value not in signal.valid_signals():
        raise ValueError(f"invalid signal number {value}")
    return int(value)
