"""The shell of one job on one node: places and starts its tasks, serves them, reports their end.

The shell has no separate process: it runs in the agent's event loop. Even after errors, it reports the end of the job
on this node exactly once, with the status of its tasks.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.process import linux
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec import stdio
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.os_error import with_class
from headrace.formats.spec.wait_status import exit_code

from . import layout, pmix, time_limit_signal, torch
from . import options as known
from .environment import enter_directory, id_text
from .host import StartError
from .input import Input
from .job_output import DEBUG, NOTICE, WARN, JobOutput
from .launch import Launcher, LaunchError, oom_adjusted
from .local_tasks import LocalTasks
from .output import OutputError
from .pmi_services import PmiServices
from .reports import Reports
from .service import ProcTable, Service
from .task import Task
from .task_exits import TaskExits
from .templates import Names, names_of
from .tmpdir import folder_of, prepare

if TYPE_CHECKING:
    from headrace.engine.process.operations import Rpc, Start

    from .host import Host
    from .output import Output

# Seconds for which the lead shell waits for output of other nodes after the job was killed.
_PEER_GRACE = 2.0
# Seconds between killing the tasks and killing all remaining processes of the job.
_CLEANING = 0.5
# Seconds between killing the remaining processes and treating the streams of the job's tasks as closed.
_CLOSE_AFTER = 1.0
# Signals that end a job whose tasks are not started yet because its shells wait for each other.
_END_START = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL)
# The highest signal number of Linux.
_SIGNALS = 64


class ShellJob:
    """A job's shell on this node: starts tasks, dispatches messages, decides when the job has ended here.

    `op` is the broker's start operation (docs/dev/interfaces.md). `environment` is the environment of the job; None
    means that it is in the jobspec. Each part has its own state: the processes (`tasks`), PMI and PMIx (`pmi`), input,
    output, and the handling of exits. All parts send messages through `reports`.
    """

    def __init__(self, agent: Host, op: Start, environment: dict[str, Any] | None = None) -> None:
        self.agent = agent
        self.op = op
        self.id = op["id"]
        # In kernel ticks. All processes that the shell starts begin at this time or later.
        self.begun = linux.ticks()
        self.path = op["idpath"]
        self.jobspec = op["jobspec"]
        self.environment = specs.environment(self.jobspec) if environment is None else environment
        self.f58 = id_text(self.id, self.environment)
        self.nodeid = op["nodeid"]
        self.nnodes = op["nnodes"]
        self.lead = self.nodeid == 0
        self.options = specs.shell_options(self.jobspec)
        self.host = op["hosts"][self.nodeid] if self.nodeid < len(op["hosts"]) else ""
        self.tmpdir = folder_of(op, self.f58)
        self.size = 0
        self.reports = reports = Reports(agent.send, self.id, set(range(1, self.nnodes)) if self.lead else set())
        self.tasks = LocalTasks()
        self.pmi = PmiServices(self)
        self._input = Input(self.options, self.nnodes, self.tasks.all, reports.input, reports.to_peer)
        self._output = JobOutput(self.nodeid, reports, self.tasks.pause_output, self._output_lost)
        self._proctable = ProcTable(self.host, reports.others, reports.to_peer, reports.reply)
        self._service = Service(self, self.tasks.all, self._input, self._proctable)
        self._exits = TaskExits(self, lambda: self.tasks.running)
        self._limit_signal: time_limit_signal.TimeLimitSignal | None = None
        # With `-o torch`: the address where processes meet. Until the shells have exchanged it, the arguments for
        # starting the tasks are kept in `_awaits_start`.
        self._torch: torch.Rendezvous | None = None
        self._awaits_start: tuple[layout.Layout, Names] | None = None
        self._status = 0
        # True during a step of the start. An exception that is raised then contains the job's status.
        self._starting = True
        self._failed = False
        self._killed = False
        self._waiting_for_peers = False
        self._finished = False

    @property
    def output(self) -> Output | None:
        return self._output.output

    @property
    def are_brokers(self) -> bool:
        """True if the tasks are brokers of an instance, as started by `flux batch` and `flux alloc`."""
        return specs.command(self.jobspec)[:2] == ["flux", "broker"] and known.exit_timeout(self.options) is None

    # -- starting

    def start(self) -> None:
        """Start all tasks of this node. A failure ends the job with an exception."""
        self._try(self._start)

    def _try(self, step: Callable[[], None]) -> None:
        """Run a step of the start. Any exception fails the job."""
        self._starting = True
        try:
            step()
        except Exception as exc:
            # An invalid jobspec must only affect its own job, never the agent.
            self.fail(with_class(exc), 1, trace=traceback.format_exc())
        finally:
            self._starting = False
            # If the agent stayed in the job's directory, the file system could not be unmounted.
            os.chdir("/")

    def _start(self) -> None:
        # Reported even if no task can be started.
        self.reports.started()
        try:
            placed = layout.lay_out(self.jobspec, self.op["R"], self.op["hosts"], self.nodeid)
            self.size = placed.size
            names = names_of(self.op, self.f58, self.tmpdir, placed)
            prepare(self.agent.folders, self.tmpdir, specs.system(self.jobspec).get("files"))
            warning = enter_directory(self.op, self.environment)
            self._output.open(self.options.get("output"), names, self.op.get("most_output"))
            self._log_placement(placed, warning)
            self._read_options(placed)
        except (layout.LayoutError, OutputError, StartError) as exc:
            self.fail(str(exc), 1)
            return
        self.pmi.offer(placed, self.f58, lambda text: self._output.log(WARN, text, "pmix"))
        if self._torch is not None and self.nnodes > 1:
            self._awaits_start = placed, names
            self.pmi.enter_barrier(self._torch.offer())
            return
        if self._torch is not None:
            self._torch.met(self._torch.offer())
        self._start_placed(placed, names)

    def _log_placement(self, placed: layout.Layout, warning: str) -> None:
        """Log the placement of tasks if the job is verbose, and log warnings."""
        if self.options.get("verbose"):
            self._output.log(DEBUG, f"{self.host}: tasks {Idset(placed.ranks)} of {self.size}")
        for text in [*([warning] if warning else []), *(f"{self.host}: {text}" for text in placed.adjusted)]:
            self._output.log(WARN, text)

    def _read_options(self, placed: layout.Layout) -> None:
        """Check the shell options, and prepare `-o signal` and `-o torch`. Raises StartError."""
        try:
            for text in known.check(self.options):
                # The options are the same on all nodes, so only the lead shell logs warnings.
                if self.lead:
                    self._output.log(WARN, text)
            known.check_pty_ranks(self.options, self.size)
            if known.pmi_methods(self.options) == {"pmix"} and not pmix.find_library():
                raise known.OptionError(f"pmi=pmix: {pmix.MISSING}")
            warn = time_limit_signal.parse(self.options.get("signal"))
            port = torch.wanted_port(self.options)
            if port is not None:
                self._torch = torch.Rendezvous(port, self.nodeid, 0 in placed.ranks, self.host)
        except ValueError as exc:
            raise StartError(str(exc)) from None
        if warn is not None:
            self._limit_signal = time_limit_signal.TimeLimitSignal(warn, self.agent.after, self._log_signal, self.kill)

    def _start_placed(self, placed: layout.Layout, names: Names) -> None:
        """Start the tasks, in the working directory."""
        if self._torch is not None:
            self._torch.release()
        if self.lead:
            self._announce(placed)
        with oom_adjusted(known.oom_adjust(self.options)) as warning:
            if warning:
                self._output.log(WARN, warning)
            self._start_tasks(names)
        if self.lead and not self._finished:
            self.reports.event("shell.start", {"taskmap": placed.map})
        if not self._finished:
            self.set_expiration(self.op["expiration"])
            if not placed.ranks:
                self._maybe_finish()

    def _announce(self, placed: layout.Layout) -> None:
        """Post `shell.init` (RFC 21), which announces the shell's service to clients."""
        context = {"service": self.op["service"], "leader-rank": self.op["rank"], "size": self.nnodes}
        if known.interactive_pty(self.options) and 0 in placed.ranks:
            context["pty"] = "interactive"
        if known.pty_added(self.options):
            self._output.log(WARN, "adding pty to rank 0 for interactive support", "pty")
        self.reports.event("shell.init", context)

    def _start_tasks(self, names: Names) -> None:
        stdin = self._input.path(names.lookup)
        try:
            launcher = Launcher(self.op, self.options, names, self.environment, stdin, self._torch)
        except LaunchError as exc:
            self.fail(str(exc), exc.code)
            return
        for text in launcher.notices:
            self._output.log(NOTICE, text, "cpu-affinity")
        if stdin and self.lead:
            self.reports.input([[time.time(), "redirect", stdio.redirect("stdin", "all", stdin)]])
        if self.options.get("nosetpgrp") and names.ranks:
            try:
                self.tasks.share_group(self.agent.children)
            except OSError as exc:
                self.fail(f"cannot make a process group: {exc.strerror}", 1)
                return
        self.tasks.all += [Task(self, local, rank) for local, rank in enumerate(names.ranks)]
        for task in self.tasks.all:
            try:
                launcher.start(task, self.tasks.group_number)
            except LaunchError as exc:
                self.fail(str(exc), exc.code, component=exc.component)
                break

    # -- failures

    def _output_lost(self, why: str) -> None:
        """Handle a lost part of an output file: the tasks continue, but the job fails."""
        self._status = max(self._status, 1 << 8)
        self.reports.exception(why, severity=1)

    def fail(
        self,
        note: str,
        code: int,
        component: str | None = None,
        status: int | None = None,
        trace: str = "",
        reported: bool = False,
    ) -> None:
        """Handle a fatal error: log it, raise an exception, end the job with `code` or `status`.

        `code` is an exit code, `status` a wait status. If the lead shell has already `reported` the error, only end the
        job.
        """
        if self._finished or self._failed:
            return
        self._failed = True
        self._awaits_start = None
        self.tasks.abandon_unstarted()
        ending = (code << 8) if status is None else status
        if not reported:
            self._output.log_failure(note, component, trace)
            self.reports.exception(note, status=ending if self._starting else None)
        self._status = max(self._status, ending)
        self._signal_tasks(signal.SIGKILL)
        self._maybe_finish()

    def abort(self, rank: int, code: int, text: str) -> None:
        """Handle PMI abort by task `rank`."""
        note = f"MPI_Abort: {text or 'application called abort'} (task {rank}, exit code {code})"
        self._abort({"kind": "abort", "note": note, "code": code & 0xFF or 1})

    def _abort(self, data: dict[str, Any]) -> None:
        """End the job.

        The lead shell notifies the others first, so that the kill does not become their status.
        """
        if self.lead:
            self.reports.to_others(data)
            self.fail(data["note"], data["code"])
        else:
            self.reports.to_peer(0, data)

    def barrier_done(self, seq: int, kvs: dict[str, str]) -> None:
        waiting, self._awaits_start = self._awaits_start, None
        if waiting is not None and self._torch is not None:
            self._torch.met(kvs)
            enter_directory(self.op, self.environment)
            self._try(lambda: self._start_placed(*waiting))
        else:
            self.pmi.barrier_done(seq, kvs)

    # -- messages of other shells and of clients

    def from_peer(self, source: int, data: dict[str, Any]) -> None:  # noqa: PLR0912 - a branch for each kind
        match data["kind"]:
            case "output" | "file":
                self._output.from_peer(source, data)
            case "taken":
                self._output.window.taken(int(data["bytes"]))
            case "stdin":
                self._input.from_peer(data)
            case "stdin-taken":
                self._input.peer_took(source, data["bytes"], data["state"])
            case "task-exit":
                self._exits.from_peer(data)
            case "left-pmi" | "leader-gone":
                self._exits.early.receive(data)
            case "abort":
                if self.lead:
                    self._abort(data)
                else:
                    self.fail(data["note"], data["code"], reported=True)
            case "pmix":
                self.pmi.from_peer(source, data["message"])
            case "proctable":
                self._proctable.from_peer(source, data, self.tasks.all)
            case "lost-shell":
                self._shell_lost(source, data.get("signal", signal.SIGKILL))
            case "overdue":
                self._exits.answer_overdue()
            case "runs":
                self._exits.peer_runs()
            case "done":
                # May arrive twice: from the shell itself, and when its node is lost.
                self.reports.others.discard(source)
                self._proctable.done(source)
                self._input.peer_ended(source)
                self._maybe_finish()
            case _:
                pass

    def rpc(self, op: Rpc) -> None:
        """Handle a request to the shell's service."""
        self._service.request(op)

    def drained(self, token: int) -> None:
        """Handle `rpc-drained`, which only the terminal of the first task requests."""
        first = self.tasks.all[0] if self.tasks.all else None
        if first is not None and first.pty is not None:
            first.pty.drained(token)

    def input_taken(self) -> None:
        """Respond to clients, since a task has read queued input."""
        self._input.answer()

    # -- signals and the end

    def kill(self, signum: int | None) -> None:
        """Signal the process group of every task. An invalid signal (None: missing) is logged and ignored."""
        if signum is None or not 0 < signum <= _SIGNALS:
            missing = "ignoring malformed event: signum must be a number"
            text = missing if signum is None else f"signal {signum}: {os.strerror(errno.EINVAL)}"
            self._output.log(WARN, text, "kill")
            return
        if self._awaits_start is not None and signum in _END_START:
            self._awaits_start = None
            self._status = max(self._status, signum)
            self._maybe_finish()
        self._signal_tasks(signum)
        if signum == signal.SIGKILL and not self._killed:
            # The tasks on other nodes were killed too, so this shell waits for their shells only for _PEER_GRACE.
            self._killed = True
            self._maybe_finish()

    def _signal_tasks(self, signum: int) -> None:
        if signum == signal.SIGKILL:
            self._output.window.open()
        self.tasks.signal(signum)

    def kill_all(self, signum: int) -> None:
        """Signal all processes of the job, because it did not end after a signal to its tasks."""
        doomed = self.tasks.descendants()
        self.kill(signum)
        self.agent.subprocesses.kill_of(self.id, signum)

        def kill_the_rest() -> None:
            if not self._finished:
                self.agent.kill_leftovers(self.path, signum, doomed)
                self.agent.after(_CLOSE_AFTER, self.tasks.close_ended)

        # If the job is an instance, its own cleanup gets some time first.
        self.agent.after(_CLEANING, kill_the_rest)

    def _log_signal(self, text: str) -> None:
        if self.lead:
            self._output.log(NOTICE, text, "signal")

    def set_expiration(self, expiration: float) -> None:
        if self._limit_signal is not None:
            self._limit_signal.set(expiration)

    def task_exited(self, task: Task, status: int) -> None:
        """Handle the end of a task's process. Its streams may still be open."""
        self.tasks.task_exited()
        if not self._failed and not self._exits.early.excuses(status):
            # As in Flux, a shell exits with 128 plus the signal that killed its task.
            self._status = max(self._status, exit_code(status) << 8)
        self._exits.task_exited(task, status)

    def shell_killed(self, signum: int) -> None:
        """Handle a fatal signal that a process of the job has sent to its parent.

        The parent is the agent, which acts as the shell of the job.
        """
        if self.lead:
            self.fail(self._end_of_shell(self.nodeid, signum), 1, status=signum)
        else:
            self.reports.to_peer(0, {"kind": "lost-shell", "signal": signum})
            self.fail("", 1, status=signum, reported=True)

    def _end_of_shell(self, nodeid: int, signum: int) -> str:
        return f"shell rank {nodeid} (on {self.op['hosts'][nodeid]}): {signal.strsignal(signum)}"

    def _shell_lost(self, nodeid: int, signum: int) -> None:
        """In the lead shell: handle the loss of the shell or agent on another node, and of its tasks.

        The job continues without these tasks.
        """
        what = self._end_of_shell(nodeid, signum)
        self._output.log(WARN, what, "exception")
        if self._awaits_start is not None:
            self.fail(f"{what}: the tasks of other nodes wait for it to start", 1)
        elif self.options.get("exit-on-error"):
            self.fail(f"{what} and exit-on-error is set", 1, component="task-exit")
        else:
            self._exits.start_timeout(what)
        self._exits.early.receive({"kind": "left-pmi", "note": f"{what}: others wait for its tasks in a barrier"})
        self.from_peer(nodeid, {"kind": "done"})

    def task_closed(self, _task: Task) -> None:
        """Handle the end of a task and all its streams."""
        self._maybe_finish()

    def _maybe_finish(self) -> None:
        if self._finished or self._awaits_start is not None or not self.tasks.closed:
            return
        self.tasks.kill_group()
        if self.reports.others:
            # Output of other nodes may still arrive. If a node is lost, the broker reports its shell as done.
            if self._killed and not self._waiting_for_peers:
                self._waiting_for_peers = True
                self.agent.after(_PEER_GRACE, self._stop_waiting)
            return
        if self.agent.subprocesses.outlive(self.id, self.options, self._maybe_finish):
            return
        self._finished = True
        if self._torch is not None:
            self._torch.release()
        self.pmi.end()
        if self._limit_signal is not None:
            self._limit_signal.off()
        self._output.close()
        if not self.lead:
            self.reports.to_peer(0, {"kind": "done"})
        self.agent.job_over(self.id, self._status, self.tmpdir)

    def _stop_waiting(self) -> None:
        self.reports.others.clear()
        self._maybe_finish()

    def abandon(self) -> None:
        """Kill the tasks and remove the temporary folder, since the broker has ended."""
        self.kill(signal.SIGKILL)
        self.pmi.end()
        self.agent.folders.give_back(self.tmpdir)
