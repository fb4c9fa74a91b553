"""The shell of one job on one node: places and starts its tasks, serves their input, output and PMI, reports their end.

It has no process of its own: it runs in the loop of the agent. Whatever fails, the shell reports the end of the job on
this node exactly once, with the status of its tasks.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.process import linux
from headrace.engine.process.spawn import limits_that_differ
from headrace.formats.spec import archive, credential, job_exception, stdio
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import ROLE_USER
from headrace.formats.spec.os_error import reason, with_class
from headrace.formats.spec.wait_status import exit_code, how_ended

from . import affinity, layout, node_variables, oom, time_limit_signal, torch
from . import options as known
from .early_exits import EarlyExits
from .environment import id_text, job_environment, task_environment
from .exit_timeout import ExitTimeout
from .flow_control import Credits, SendWindow, size_of
from .group import SharedGroup
from .input import Input, opened
from .mustache import expand
from .names import Names
from .output import Entry, Output, OutputError
from .pmi import PmiServer
from .pmix import locate
from .pmix.offer import Offer
from .proctable import ProcTable
from .service import Service
from .task import Task
from .tmpdir import folder_of, temporary, unpack

if TYPE_CHECKING:
    from headrace.engine.process.operations import RaisedException, Rpc, Start

    from .host import Host

# Seconds the lead shell waits for the other nodes' output once the job was killed.
_PEER_GRACE = 2.0
# Seconds between a kill and the kill of all processes that the job has left.
_CLEANING = 0.5
# Seconds until the streams of a job whose last processes were killed count as closed.
_CLOSE_AFTER = 1.0
# Signals that keep tasks from being started which wait for the shells of other nodes.
_END_START = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL)
# The highest signal number of Linux.
_SIGNALS = 64
_FATAL = 0
_WARN = 4
_NOTICE = 5
_DEBUG = 6


class _CannotStart(Exception):
    """No task of this node can be started; the text says why."""


class ShellJob:
    """A job's shell on this node. `op` is the broker's start operation (docs/dev/interfaces.md); `environment` that of
    the job, None if the jobspec has it.
    """

    def __init__(self, agent: Host, op: Start, environment: dict[str, Any] | None = None) -> None:
        self.agent = agent
        self.op = op
        self.id = op["id"]
        # In the kernel's ticks, no later than all that it starts.
        self.begun = linux.ticks()
        self.path = op["idpath"]
        self.jobspec = op["jobspec"]
        self.environment = specs.environment(self.jobspec) if environment is None else environment
        self.f58 = id_text(self.id, self.environment)
        self.nodeid = op["nodeid"]
        self.nnodes = op["nnodes"]
        self.rank = op["rank"]
        self.lead = self.nodeid == 0
        self.options = specs.shell_options(self.jobspec)
        self.host = op["hosts"][self.nodeid] if self.nodeid < len(op["hosts"]) else ""
        self.tasks: list[Task] = []
        self.tmpdir = folder_of(op, self.f58)
        self.names: Names | None = None
        self.output: Output | None = None
        self.pmi: PmiServer | None = None
        self.pmix: Offer | None = None
        # With nosetpgrp the tasks of this node share a process group, else each has its own.
        self.group: SharedGroup | None = None
        self.size = 0
        self._input = Input(self.options, self.nnodes, self.tasks, self._keep_input, self.to_peer)
        self._window = SendWindow(self._hold)
        self._credits = Credits(lambda nodeid, size: self.to_peer(nodeid, {"kind": "taken", "bytes": size}))
        # With `-o torch`: where processes meet. The tasks wait to be placed as long as the shells agree about that.
        self._torch: torch.Rendezvous | None = None
        self._awaits_start: layout.Layout | None = None
        self._barrier = 0
        self._status = 0
        self._starting = True
        self._finished = False
        self._killed = False
        self._exit_seen = False
        # In the lead shell: the nodes whose shells have not finished.
        self._others = set(range(1, self.nnodes)) if self.lead else set()
        self._proctable = ProcTable(self.host, self._others, self.to_peer, self.reply)
        self._service = Service(self, self.tasks, self._input, self._proctable)
        self._waiting_for_peers = False
        self._exit_told = False
        self._failed = False
        self._lost = False
        self._exit_timeout: ExitTimeout | None = None
        self._early_exits = EarlyExits(self)
        self._limit_signal: time_limit_signal.TimeLimitSignal | None = None

    @property
    def are_brokers(self) -> bool:
        """Whether the tasks are the brokers of an instance, as `flux batch` and `flux alloc` start it."""
        return specs.command(self.jobspec)[:2] == ["flux", "broker"] and known.exit_timeout(self.options) is None

    # -- starting

    def start(self) -> None:
        """Start all tasks of this node. A failure ends the job with an exception."""
        self._try(self._start)

    def _try(self, step: Callable[[], None]) -> None:
        """Take a step of the start."""
        self._starting = True
        try:
            step()
        except Exception as exc:
            # A bad jobspec costs its own job, never the agent.
            self.fail(with_class(exc), 1, trace=traceback.format_exc())
        finally:
            self._starting = False
            # In the job's directory, the agent would keep a file system from being unmounted.
            os.chdir("/")

    def _start(self) -> None:
        # Sent even if no task can be started: clients read the output log, with its errors, only after this.
        self.agent.send({"op": "started", "id": self.id})
        try:
            placed = layout.lay_out(self.jobspec, self.op["R"], self.op["hosts"], self.nodeid)
            self.size = placed.size
            self._name(placed)
            self._prepare_folder()
            wrong = self._enter_directory()
            self._open_output(placed)
            self._log_placement(placed, wrong)
            self._read_options()
            self._prepare_torch(placed)
        except (layout.LayoutError, OutputError, _CannotStart) as exc:
            self.fail(str(exc), 1)
            return
        self._prepare_pmi(placed)
        if self._torch is not None and self.nnodes > 1:
            self._awaits_start = placed
            self._enter_barrier(self._torch.offer())
            return
        if self._torch is not None:
            self._torch.met(self._torch.offer())
        self._start_placed(placed)

    def _start_placed(self, placed: layout.Layout) -> None:
        """Start the tasks, in the working directory."""
        assert self.output is not None
        if self._torch is not None:
            self._torch.release()
        if self.lead:
            self._announce(placed)
        with oom.adjusted(known.oom_adjust(self.options)) as wrong:
            if wrong:
                self.output.log(_WARN, wrong, self.nodeid)
            self._start_tasks(placed)
        if self.lead and not self._finished:
            self.event("shell.start", {"taskmap": placed.map})
        if not self._finished:
            self.set_expiration(self.op["expiration"])
            if not placed.ranks:
                self._maybe_finish()

    def _name(self, placed: layout.Layout) -> None:
        self.names = Names(
            self.id,
            self.f58,
            specs.name(self.jobspec),
            self.nnodes,
            self.size,
            self.tmpdir,
            self.nodeid,
            self.host,
            self.rank,
            placed.mine.cores,
            placed.mine.gpus,
            placed.ranks,
        )

    def _prepare_folder(self) -> None:
        """The job's temporary folder, with the files that its jobspec has in it. Raises _CannotStart."""
        try:
            self.agent.folders.take(self.tmpdir)
            unpack(specs.system(self.jobspec).get("files"), self.tmpdir)
        except (OSError, archive.ArchiveError) as exc:
            raise _CannotStart(f"cannot prepare {self.tmpdir}: {reason(exc)}") from None

    def _enter_directory(self) -> str:
        """Change to the directory where tasks start, or to /tmp if that fails; returns a warning for the log, or "".

        A shell that is a process of the job's user raises _CannotStart instead: /tmp belongs to all users. Its default
        directory is the user's home.
        """
        as_user = self.op.get("as_user", False)
        cwd = specs.cwd(self.jobspec) or (str(self.environment["HOME"]) if as_user else "/tmp")
        try:
            os.chdir(cwd)
        except OSError as exc:
            wrong = f"Could not change dir to {cwd}: {exc.strerror}"
            if as_user:
                raise _CannotStart(wrong) from None
            os.chdir("/tmp")
            return f"{wrong}. Going to /tmp instead"
        return ""

    def _open_output(self, placed: layout.Layout) -> None:
        """Raises OutputError."""
        assert self.names is not None
        output = self.options.get("output")
        self.output = Output(
            output if isinstance(output, dict) else {},
            self.nodeid,
            self.size,
            placed.ranks,
            self.names.lookup,
            self._emit_output,
            self._output_to_lead,
            self._output_lost,
            self.op.get("most_output"),
        )
        self.output.open()

    def _log_placement(self, placed: layout.Layout, wrong: str) -> None:
        """Log the placement of tasks if the job is verbose, and warnings about it."""
        assert self.output is not None
        if self.options.get("verbose"):
            self.output.log(_DEBUG, f"{self.host}: tasks {Idset(placed.ranks)} of {self.size}", self.nodeid)
        if wrong:
            self.output.log(_WARN, wrong, self.nodeid)
        for text in placed.adjusted:
            self.output.log(_WARN, f"{self.host}: {text}", self.nodeid)

    def _read_options(self) -> None:
        """Check the shell options and prepare the signal before the time limit. Raises _CannotStart."""
        assert self.output is not None
        try:
            for text in known.check(self.options):
                # The options are the same on all nodes.
                if self.lead:
                    self.output.log(_WARN, text, self.nodeid)
            known.check_pty_ranks(self.options, self.size)
            if known.pmi_methods(self.options) == {"pmix"} and not locate.find():
                raise known.OptionError(f"pmi=pmix: {locate.MISSING}")
            warn = time_limit_signal.parse(self.options.get("signal"))
        except ValueError as exc:
            raise _CannotStart(str(exc)) from None
        if warn is not None:
            self._limit_signal = time_limit_signal.TimeLimitSignal(warn, self.agent.after, self._log_notice, self.kill)

    def _prepare_torch(self, placed: layout.Layout) -> None:
        """Raises _CannotStart."""
        try:
            port = torch.wanted_port(self.options)
            if port is not None:
                self._torch = torch.Rendezvous(port, self.nodeid, 0 in placed.ranks, self.host)
        except OSError as exc:
            raise _CannotStart(f"torch: no free port: {exc.strerror}") from None
        except ValueError as exc:
            raise _CannotStart(str(exc)) from None

    def _announce(self, placed: layout.Layout) -> None:
        """Tell clients by `shell.init` (RFC 21) where the shell's service is."""
        assert self.output is not None
        context = {"service": self.op["service"], "leader-rank": self.rank, "size": self.nnodes}
        if known.interactive_pty(self.options) and 0 in placed.ranks:
            context["pty"] = "interactive"
        if known.pty_added(self.options):
            self.output.log(_WARN, "adding pty to rank 0 for interactive support", self.nodeid, "pty")
        self.event("shell.init", context)

    def _prepare_pmi(self, placed: layout.Layout) -> None:
        if not placed.ranks:
            return
        methods = known.pmi_methods(self.options)
        if "simple" in methods:
            self._prepare_pmi_1(placed)
        # Brokers use PMI-1 where both are offered.
        if "pmix" in methods and not (self.pmi is not None and self.are_brokers):
            try:
                self.pmix = Offer(self, placed.map)
            except OSError as exc:
                assert self.output is not None
                self.output.log(_WARN, f"tasks have no PMIx: {exc.strerror}", self.nodeid, "pmix")

    def _prepare_pmi_1(self, placed: layout.Layout) -> None:
        where = placed.pmi if known.pmi_map(self.options) else {}
        # Of an instance that the tasks may be, as Flux gives it to its jobs.
        preset = {**where, "flux.instance-level": str(self.op["instance_level"] + 1)}
        if "interface_hint" in self.op:
            preset["flux.tbon-interface-hint"] = self.op["interface_hint"]
        local = len(placed.ranks)
        fail = partial(self.fail, code=1, component="pmi")
        self.pmi = PmiServer(self.f58, self.size, local, preset, self._enter_barrier, self._pmi_abort, fail)

    def _start_tasks(self, placed: layout.Layout) -> None:
        mine, ranks = placed.mine, placed.ranks
        try:
            cpus, told = affinity.per_task(mine.cores, ranks, self.options.get("cpu-affinity"))
            gpus = affinity.gpus_per_task(mine.gpus, len(ranks), self.options.get("gpu-affinity"))
        except ValueError as exc:
            self.fail(str(exc), 1)
            return
        assert self.names is not None and self.output is not None
        for text in told:
            self.output.log(_NOTICE, text, self.nodeid, "cpu-affinity")
        lookup = self.names.lookup
        # Only these are templates: what a submitter's environment happens to hold is kept as it is.
        templates = known.templates(self.options)
        env = self._environment(templates)
        rlimit = self.options.get("rlimit")
        limits = limits_that_differ(rlimit if isinstance(rlimit, dict) else {})
        command, literal = specs.command(self.jobspec), self.options.get("literal-args")
        stdin = self._input.path(lookup)
        if stdin and self.lead:
            source = stdio.redirect("stdin", "all", stdin)
            self._keep_input([[time.time(), "redirect", source]])
        terminals = known.pty_ranks(self.options)
        if self.options.get("nosetpgrp") and ranks:
            try:
                self.group = SharedGroup(self.agent.children)
            except OSError as exc:
                self.fail(f"cannot make a process group: {exc.strerror}", 1)
                return
        for local, rank in enumerate(ranks):
            task = Task(self, local, rank)
            self.tasks.append(task)
        for task in self.tasks:
            its = partial(lookup, rank=task.rank)
            filled = {name: expand(env[name], its) for name in templates if "{{" in env[name]}
            own = task_environment({**env, **filled}, task.rank, task.local, gpus[task.local])
            if self._torch is not None:
                self._torch.add_to(
                    own,
                    rank=task.rank,
                    local=task.local,
                    size=self.size,
                    local_size=len(ranks),
                    nnodes=self.nnodes,
                )
            argv = [expand(arg, its) if "{{" in arg and not literal else arg for arg in command]
            try:
                # Each task reads the file from its start: one descriptor for all would deal its lines out.
                file, argv = opened(stdin, argv)
            except OSError as exc:
                note = f"error opening input file '{stdin}': {exc.strerror}"
                self.fail(note, 1, component="input.file")
                break
            try:
                terminal = terminals is None or task.rank in terminals
                bound = None if cpus[task.local] == affinity.everything() else cpus[task.local]
                task.start(argv, own, limits, file, terminal, bound)
            except (OSError, ValueError) as exc:
                number = exc.errno if isinstance(exc, OSError) else errno.EINVAL
                what = os.strerror(number or errno.EINVAL)
                code = 127 if number == errno.ENOENT else 126
                program = argv[0] if argv else ""
                self.fail(f"task {task.rank} (host {self.host}): start failed: {program}: {what}", code)
                break

    def _environment(self, templates: Mapping[str, str]) -> dict[str, str]:
        """The environment that this node's tasks share."""
        assert self.names is not None
        env = job_environment(
            self.environment,
            self.f58,
            self.path,
            self.size,
            self.nnodes,
            self.tmpdir,
            self.op["uri"],
            f"job-{self.id}",
            self.host,
        )
        if self.op["userid"] != os.getuid():
            # `flux cancel --all` in a guest's job, which runs as the owner, is about the guest's jobs.
            env.update(credential.environment(self.op["userid"], ROLE_USER))
        node_variables.exchange(env, os.environ)
        env.update((name, expand(value, self.names.lookup)) for name, value in templates.items())
        temporary(env)
        return env

    # -- reports

    def event(self, name: str, context: dict[str, Any] | None = None) -> None:
        self.agent.send({"op": "event", "id": self.id, "t": time.time(), "name": name, "context": context})

    def _emit_output(self, entries: list[Entry]) -> None:
        self.agent.send({"op": "output", "id": self.id, "entries": entries})

    def _keep_input(self, entries: list[Entry]) -> None:
        self.agent.send({"op": "input", "id": self.id, "entries": entries})

    def _output_to_lead(self, message: dict[str, Any]) -> None:
        self.to_peer(0, message)
        self._window.sent(size_of(message))

    def _output_lost(self, why: str) -> None:
        """A part of an output file is lost: the tasks continue, but the job fails."""
        if not self._lost:
            self._lost = True
            self._status = max(self._status, 1 << 8)
            self.exception(why, severity=1)

    def _hold(self, on: bool) -> None:
        for task in self.tasks:
            task.hold(on)

    def to_peer(self, nodeid: int, data: dict[str, Any]) -> None:
        self.agent.send({"op": "peer", "id": self.id, "to": nodeid, "data": data})

    def to_others(self, data: dict[str, Any]) -> None:
        """Send a message to all shells that have not finished (lead shell only)."""
        for nodeid in self._others:
            self.to_peer(nodeid, data)

    def exception(self, note: str, severity: int = job_exception.FATAL, status: int | None = None) -> None:
        """Raise an exception of the job; `status` is how that ends, if it is because the tasks cannot be started."""
        kind = job_exception.EXEC
        op: RaisedException = {"op": "exception", "id": self.id, "severity": severity, "type": kind, "note": note}
        if status is not None:
            op["status"] = status
        self.agent.send(op)

    def fail(
        self,
        note: str,
        code: int,
        component: str | None = None,
        status: int | None = None,
        trace: str = "",
        told: bool = False,
    ) -> None:
        """A fatal error of this shell: log it, raise the exception, end with exit code `code` or wait `status`.

        If the lead shell has `told` about the error already, only end.
        """
        if self._finished or self._failed:
            return
        self._failed = True
        self._awaits_start = None
        for task in self.tasks:
            if not task.pid:
                task.never_ran()
        if told:
            pass
        elif self.output is not None:
            self.output.log(_FATAL, note, self.nodeid, component)
        elif self.lead:
            header = [time.time(), "header", stdio.header({"stdout": 1, "stderr": 1})]
            self._emit_output([header, [time.time(), "log", stdio.log(_FATAL, trace or note, self.nodeid, component)]])
        ending = (code << 8) if status is None else status
        if not told:
            self.exception(note, status=ending if self._starting else None)
        self._status = max(self._status, ending)
        self._signal_tasks(signal.SIGKILL)
        self._maybe_finish()

    # -- PMI

    def _enter_barrier(self, kvs: dict[str, str]) -> None:
        """Enter the next barrier of this job; before the tasks start that is the one of `-o torch`."""
        if self.nnodes == 1:
            assert self.pmi is not None
            self.pmi.complete(kvs)
            return
        self.agent.send({"op": "barrier", "id": self.id, "seq": self._barrier, "kvs": kvs})
        self._barrier += 1

    def enter_pmix_barrier(self, number: int, parts: dict[str, str]) -> None:
        """Enter the `number`-th PMIx barrier (from 1). PMIx barriers have negative sequence numbers, PMI-1 others."""
        self.agent.send({"op": "barrier", "id": self.id, "seq": -number, "kvs": parts})

    def barrier_done(self, seq: int, kvs: dict[str, str]) -> None:
        placed, self._awaits_start = self._awaits_start, None
        if placed is not None and self._torch is not None:
            self._torch.met(kvs)
            self._enter_directory()
            self._try(lambda: self._start_placed(placed))
        elif seq < 0 and self.pmix is not None:
            self.pmix.barrier_done(kvs)
        elif seq >= 0 and self.pmi is not None:
            self.pmi.complete(kvs)

    def _pmi_abort(self, local: int, code: int, text: str) -> None:
        self.abort(self.tasks[local].rank, code, text)

    def abort(self, rank: int, code: int, text: str) -> None:
        """Task `rank` has called PMI abort."""
        note = f"MPI_Abort: {text or 'application called abort'} (task {rank}, exit code {code})"
        self._abort({"kind": "abort", "note": note, "code": code & 0xFF or 1})

    def _abort(self, data: dict[str, Any]) -> None:
        """End the job. The lead shell tells the others first, so that the kill does not become their status."""
        if self.lead:
            self.to_others(data)
            self.fail(data["note"], data["code"])
        else:
            self.to_peer(0, data)

    # -- messages of other shells and of clients

    def from_peer(self, source: int, data: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - a branch for each kind
        kind = data["kind"]
        if kind in ("output", "file"):
            if self.output is not None:
                self.output.from_peer(data)
            self._credits.passed(source, size_of(data))
        elif kind == "taken":
            self._window.taken(int(data["bytes"]))
        elif kind == "stdin":
            self._input.from_peer(data)
        elif kind == "stdin-taken":
            self._input.peer_took(source, data["bytes"], data["state"])
        elif kind == "task-exit":
            self._first_exit(data["context"], data["program"], data["host"])
        elif kind in ("left-pmi", "leader-gone"):
            self._early_exits.told(data)
        elif kind == "abort":
            if self.lead:
                self._abort(data)
            else:
                self.fail(data["note"], data["code"], told=True)
        elif kind == "pmix":
            if self.pmix is not None:
                self.pmix.from_peer(source, data["message"])
        elif kind == "proctable":
            self._proctable.from_peer(source, data, self.tasks)
        elif kind == "lost-shell":
            self._shell_lost(source, data.get("signal", signal.SIGKILL))
        elif kind == "overdue":
            if self._task_runs():
                self.to_peer(0, {"kind": "runs"})
        elif kind == "runs":
            if self._exit_timeout is not None:
                self._exit_timeout.missed()
        elif kind == "done":
            # This may come twice: from a shell, and again when its node is lost.
            self._others.discard(source)
            self._proctable.done(source)
            self._input.peer_gone(source)
            self._maybe_finish()

    def rpc(self, op: Rpc) -> None:
        """A request to the shell's service."""
        self._service.request(op)

    def reply(self, token: int, payload: dict[str, Any] | None = None, errnum: int = 0, text: str = "") -> None:
        """Answer a request; an error is its last answer, and without one it may have more if it is a stream."""
        self.agent.send({"op": "rpc-reply", "token": token, "errnum": errnum, "payload": payload, "text": text})

    def ask_drained(self, token: int) -> None:
        """Ask whether the client of a stream has taken what it was sent: `drained` is the answer."""
        self.agent.send({"op": "rpc-drain", "id": self.id, "token": token})

    def drained(self, token: int) -> None:
        """The terminal of the first task alone asks for this."""
        if self.tasks and self.tasks[0].pty is not None:
            self.tasks[0].pty.drained(token)

    def input_taken(self) -> None:
        """A task has read queued input."""
        self._input.answer()

    # -- signals and the end

    def kill(self, signum: int | None) -> None:
        """Signal the process group of every task. An invalid signal (None: missing) is logged and ignored."""
        if signum is None or not 0 < signum <= _SIGNALS:
            if self.output is not None:
                wrong = "ignoring malformed event: signum must be a number"
                text = wrong if signum is None else f"signal {signum}: {os.strerror(errno.EINVAL)}"
                self.output.log(_WARN, text, self.nodeid, "kill")
            return
        if self._awaits_start is not None and signum in _END_START:
            self._awaits_start = None
            self._status = max(self._status, signum)
            self._maybe_finish()
        self._signal_tasks(signum)
        if signum == signal.SIGKILL and not self._killed:
            # The tasks of the other nodes were killed too, so their shells are awaited for _PEER_GRACE only.
            self._killed = True
            self._maybe_finish()

    def _signal_tasks(self, signum: int) -> None:
        if signum == signal.SIGKILL:
            self._window.open()
            if self.group is not None:
                self.group.kill(signum)
        for task in self.tasks:
            task.kill(signum)

    def kill_all(self, signum: int) -> None:
        """Signal all processes of the job, wherever they went, after it has not ended by a signal to its tasks."""
        # Descendants are looked up before the signal: the end of a parent detaches its children.
        doomed = {pid for task in self.tasks if task.pid > 0 for pid in linux.descendants_of(task.pid)}
        self.kill(signum)
        self.agent.subprocesses.kill_of(self.id, signum)

        def kill_the_rest() -> None:
            if not self._finished:
                self.agent.kill_leftovers(self.path, signum, doomed)
                self.agent.after(_CLOSE_AFTER, self._stop_reading)

        # If the job is an instance, its own cleanup is given time first.
        self.agent.after(_CLEANING, kill_the_rest)

    def _stop_reading(self) -> None:
        """Close the streams of tasks that have ended: other processes that hold them are not awaited."""
        for task in self.tasks:
            if task.pid <= 0:
                task.close_streams()

    def set_expiration(self, expiration: float) -> None:
        if self._limit_signal is not None:
            self._limit_signal.set(expiration)

    def _log_notice(self, text: str) -> None:
        if self.output is not None and self.lead:
            self.output.log(_NOTICE, text, self.nodeid, "signal")

    def task_exited(self, task: Task, status: int) -> None:
        """A task's process ended (its streams may still be open)."""
        if self.group is not None:
            self.group.task_exited()
        if not self._failed and not self._early_exits.excuses(status):
            # A shell exits with 128 plus the signal of its task.
            self._status = max(self._status, exit_code(status) << 8)
        context = {
            "localid": task.local,
            "rank": task.rank,
            "state": "Exited",
            "pid": task.pid,
            "wait_status": status,
            "signaled": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "exitcode": exit_code(status),
        }
        if not self._exit_seen:
            self._exit_seen = True
            program = os.path.basename(specs.command(self.jobspec)[0])
            if self.lead:
                self._first_exit(context, program, self.host)
            else:
                self.to_peer(0, {"kind": "task-exit", "context": context, "program": program, "host": self.host})
        if status and self.options.get("exit-on-error"):
            program = os.path.basename(specs.command(self.jobspec)[0])
            where = f"task rank {task.rank} on host {self.host}"
            note = f"{program}: {where} failed ({how_ended(status)}) and exit-on-error is set"
            self.fail(note, exit_code(status), component="task-exit")
        self._early_exits.ended(task, status)

    def _first_exit(self, context: dict[str, Any], program: str, host: str) -> None:
        """The first task of the job has exited (lead shell only): post the event and start `exit-timeout`."""
        if self._exit_told:
            return
        self._exit_told = True
        self.event("shell.task-exit", context)
        how = how_ended(context["wait_status"])
        self._expect_the_rest(f"{program}: task rank {context['rank']} on host {host} exited ({how})")

    def _expect_the_rest(self, what: str) -> None:
        """Start `exit-timeout` for the other tasks (lead shell only); `what` describes the exit."""
        limit = known.exit_timeout(self.options) if self.size > 1 else None
        if limit is not None:
            fail = partial(self.fail, code=1, component="task-exit")
            note = f"{what} and exit-timeout={limit:g}s has expired"
            self._exit_timeout = ExitTimeout(note, self._task_runs, self._ask_who_runs, fail)
            self._exit_timeout.set(self.agent.after, limit)

    def shell_killed(self, signum: int) -> None:
        """A process of the job has sent a fatal signal to its parent, the agent, which acts as the shell of the job."""
        if self.lead:
            self.fail(self._end_of_shell(self.nodeid, signum), 1, status=signum)
        else:
            self.to_peer(0, {"kind": "lost-shell", "signal": signum})
            self.fail("", 1, status=signum, told=True)

    def _end_of_shell(self, nodeid: int, signum: int) -> str:
        return f"shell rank {nodeid} (on {self.op['hosts'][nodeid]}): {signal.strsignal(signum)}"

    def _shell_lost(self, nodeid: int, signum: int) -> None:
        """The shell or the agent of another node was killed, and with it its tasks (lead shell only). The job goes on
        without them."""
        what = self._end_of_shell(nodeid, signum)
        if self.output is not None:
            self.output.log(_WARN, what, self.nodeid, "exception")
        if self._awaits_start is not None:
            self.fail(f"{what}: the tasks of other nodes wait for it to start", 1)
        elif self.options.get("exit-on-error"):
            self.fail(f"{what} and exit-on-error is set", 1, component="task-exit")
        elif not self._exit_told:
            self._exit_told = True
            self._expect_the_rest(what)
        self._early_exits.told({"kind": "left-pmi", "note": f"{what}: others wait for its tasks in a barrier"})
        self.from_peer(nodeid, {"kind": "done"})

    def _task_runs(self) -> bool:
        return any(task.pid > 0 for task in self.tasks)

    def _ask_who_runs(self) -> None:
        self.to_others({"kind": "overdue"})

    def task_closed(self, _task: Task) -> None:
        """A task has ended, and so have its streams."""
        self._maybe_finish()

    def _maybe_finish(self) -> None:
        if self._finished or self._awaits_start is not None or not all(task.closed for task in self.tasks):
            return
        if self.group is not None:
            # Kill background processes in the shared group. The own group of a task is killed when that task closes.
            self.group.kill(signal.SIGKILL)
            self.group = None
        if self._others:
            # Output of the other nodes is still to come. A lost node is reported as done by the broker.
            if self._killed and not self._waiting_for_peers:
                self._waiting_for_peers = True
                self.agent.after(_PEER_GRACE, self._stop_waiting)
            return
        if self.agent.subprocesses.outlive(self.id, self.options, self._maybe_finish):
            return
        self._finished = True
        if self._torch is not None:
            self._torch.release()
        if self.pmix is not None:
            self.pmix.end()
        if self._limit_signal is not None:
            self._limit_signal.off()
        if self.output is not None:
            self.output.close()
        if not self.lead:
            self.to_peer(0, {"kind": "done"})
        self.agent.job_over(self.id, self._status, self.tmpdir)

    def _stop_waiting(self) -> None:
        self._others.clear()
        self._maybe_finish()

    def abandon(self) -> None:
        """The broker has ended: kill the tasks and remove the temporary folder."""
        self.kill(signal.SIGKILL)
        if self.pmix is not None:
            self.pmix.end()
        self.agent.folders.give_back(self.tmpdir)
