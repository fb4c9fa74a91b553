"""Effects of a task's exit on the job's other tasks: `shell.task-exit`, `exit-timeout`, early exits.

The lead shell posts the event for the first task that exits, and starts the timeout `-o exit-timeout` (flux-shell(1)),
the time for which other tasks may still run. It ends tasks that wait for the exited task. The timeout has no effect
once all tasks have exited, even if the job is still open because a background process has its output open, or because
no client has attached to its terminal.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.wait_status import exit_code, how_ended

from . import options as known

if TYPE_CHECKING:
    from .host import Job
    from .task import Task


class TaskExits:
    """Handles exits of one job's tasks in the shell of one node.

    `running()` returns True if a task of this node is running.
    """

    def __init__(self, job: Job, running: Callable[[], bool]) -> None:
        self._job = job
        self._running = running
        self.early = EarlyExits(job)
        # True once a task of this node has exited, and in the lead shell, once an exit was posted.
        self._local_exit = False
        self._posted = False
        self._timeout: ExitTimeout | None = None

    def task_exited(self, task: Task, status: int) -> None:
        """Handle the exit of a task of this node with this wait status."""
        job = self._job
        if not self._local_exit:
            self._local_exit = True
            self._report(task, status)
        if status and job.options.get("exit-on-error"):
            where = f"task rank {task.rank} on host {job.host}"
            note = f"{self._program()}: {where} failed ({how_ended(status)}) and exit-on-error is set"
            job.fail(note, exit_code(status), component="task-exit")
        self.early.ended(task, status)

    def _program(self) -> str:
        return os.path.basename(specs.command(self._job.op["jobspec"])[0])

    def _report(self, task: Task, status: int) -> None:
        """Report the first exit on this node to the lead shell."""
        context = {
            "localid": task.local,
            "rank": task.rank,
            "state": "Exited",
            "pid": task.pid,
            "wait_status": status,
            "signaled": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "exitcode": exit_code(status),
        }
        report = {"kind": "task-exit", "context": context, "program": self._program(), "host": self._job.host}
        if self._job.lead:
            self.from_peer(report)
        else:
            self._job.reports.to_peer(0, report)

    def from_peer(self, report: dict[str, Any]) -> None:
        """In the lead shell: handle the first exit on a node. The job's first exit is posted."""
        if self._posted:
            return
        context, host = report["context"], report["host"]
        self._job.reports.event("shell.task-exit", context)
        how = how_ended(context["wait_status"])
        self.start_timeout(f"{report['program']}: task rank {context['rank']} on host {host} exited ({how})")

    def start_timeout(self, what: str) -> None:
        """In the lead shell: start `exit-timeout` for the other tasks, only once. `what` describes the exit."""
        if self._posted:
            return
        self._posted = True
        job = self._job
        limit = known.exit_timeout(job.options) if job.size > 1 else None
        if limit is None:
            return

        def fail(note: str) -> None:
            job.fail(note, 1, component="task-exit")

        note = f"{what} and exit-timeout={limit:g}s has expired"
        self._timeout = ExitTimeout(note, self._running, lambda: job.reports.to_others({"kind": "overdue"}), fail)
        self._timeout.set(job.agent.after, limit)

    def answer_overdue(self) -> None:
        """After the timeout, tell the lead shell if a task of this node is running."""
        if self._running():
            self._job.reports.to_peer(0, {"kind": "runs"})

    def peer_runs(self) -> None:
        """In the lead shell: handle the message that a task of another node still runs after the timeout."""
        if self._timeout is not None:
            self._timeout.missed()


class ExitTimeout:
    """The timeout of one job, in its lead shell.

    `runs()` returns True if a task of this node is running, `ask()` asks the shells of the other nodes, and
    `fail(note)` ends the job. `after(seconds, fn)` calls fn once and cannot be cancelled, so fn has only a weak
    reference, which does not keep an ended job in memory.
    """

    def __init__(
        self, note: str, runs: Callable[[], bool], ask: Callable[[], None], fail: Callable[[str], None]
    ) -> None:
        self._note = note
        self._runs = runs
        self._ask = ask
        self._fail = fail

    def set(self, after: Callable[[float, Callable[[], None]], None], seconds: float) -> None:
        own = weakref.ref(self)

        def expired() -> None:
            deadline = own()
            if deadline is not None:
                deadline._expired()

        after(seconds, expired)

    def _expired(self) -> None:
        if self._runs():
            self.missed()
        else:
            self._ask()

    def missed(self) -> None:
        """Fail the job, since a task still runs after the timeout."""
        self._fail(self._note)


class EarlyExits:
    """Handles exits of tasks for which other tasks wait, in the shell of one node.

    A PMI barrier needs every task of the job, so a task that exits between `init` and `finalize` would block it
    forever. The brokers of an instance need their leader, task 0, until they have joined it. `-o exit-timeout` does not
    end these waits in time: it is long, and jobs of brokers have none, because an instance may lose followers and
    continue. The lead shell reports each kind of early exit once to the other shells.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        # The kinds of early exit that have been reported.
        self._reported: set[str] = set()

    def ended(self, task: Task, status: int) -> None:
        """Report the end of a task of this node if other tasks wait for it."""
        job = self._job
        if job.size < 2:
            return
        if job.pmi.is_awaited(task):
            how = how_ended(status)
            note = f"task {task.rank} (host {job.host}) ended ({how}) in PMI, where others wait for it in a barrier"
            self._report({"kind": "left-pmi", "note": note})
        if job.are_brokers and task.rank == 0:
            self._report({"kind": "leader-gone"})

    def excuses(self, status: int) -> bool:
        """True if a task was ended by the SIGTERM that follows the end of the leader.

        The job has the leader's status then, not this one.
        """
        return "leader-gone" in self._reported and exit_code(status) == 128 + signal.SIGTERM

    def _report(self, data: dict[str, Any]) -> None:
        if self._job.lead:
            self.receive(data)
        else:
            self._job.reports.to_peer(0, data)

    def receive(self, data: dict[str, Any]) -> None:
        """Handle the report of an early exit from a shell of the job, maybe this one."""
        job, kind = self._job, data["kind"]
        if kind in self._reported:
            return
        self._reported.add(kind)
        job.reports.to_others(data)
        if kind == "leader-gone":
            # Brokers that are already shutting down ignore this signal.
            job.kill(signal.SIGTERM)
        else:
            job.pmi.block(data["note"])
