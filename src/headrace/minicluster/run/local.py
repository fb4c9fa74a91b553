"""Runs a MiniCluster as brokers on this machine, without a server or root, and cleans up after itself.

A shell runs the plan's text around `flux start`. A named pipe reports the steps (brokers started, instance ready, job
done). The brokers run in a session of their own, so that only this process receives Ctrl-C and can end them in order.
If this process is killed, its lifeline ends them. Commands that every pod would run are run once, because one machine
has one file system.

The brokers' log is shown until the job ends or is stopped. Messages about their shutdown are not shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.engine.broker.launch import capacity
from headrace.wire.query.submission import Caller

from ..api import shell_text
from ..api.plan import Plan, hosts_of
from ..api.shell_text import Mode
from . import remains
from .remains import lifeline

_MARKS = ("start", "ready", "done")
_DEFAULT_LEVEL = "6"  # the operator's default of log-stderr-level
_STOP_TIMEOUT = 10.0  # seconds after which a stopped instance is killed


class Times(NamedTuple):
    """Seconds until the brokers start, until all are up, of the job, and until everything has ended."""

    create: float
    ready: float
    run: float
    delete: float

    @property
    def total(self) -> float:
        return sum(self)


class Result(NamedTuple):
    """The result of a run: the job's exit status, the times of the steps, and whether brokers started."""

    status: int
    times: Times
    interrupted: bool
    started: bool


Say = Callable[[str], None]


class StartError(Exception):
    """The MiniCluster cannot be started on this machine; the message has the reason."""


def refusal(size: int) -> str:
    """Why this machine cannot run `size` brokers; "" if it can."""
    return capacity.refusal(size)


def run(plan: Plan, folder: str, say: Say, keep: Callable[[str], None] | None = None) -> Result:
    """Run `plan` in the working directory `folder`. Raises StartError.

    `say` is called with a line for each step. `keep` is called with the workspace of the instance before it starts: if
    this process and its lifeline are both killed, `remains` needs the workspace to end the instance. The job's output
    goes to this process's stdout and stderr.
    """
    began = time.monotonic()
    flux = _find_flux()
    refused = refusal(plan.size)
    if refused:
        raise StartError(f"spec.size: {refused}")
    with _stopping() as stopped, _workspace() as work:
        if keep:
            keep(work)
        try:
            _write_files(plan, work, flux)
        except OSError as exc:
            raise StartError(f"cannot write to {work}: {exc.strerror}; set TMPDIR to another folder") from None
        _check_texts(work)
        pipe = os.open(os.path.join(work, "marks"), os.O_RDWR | os.O_NONBLOCK)
        try:
            command = [_shell(), os.path.join(work, "outer")]
            with lifeline(lambda shell: _end_all(shell, work)) as started:
                process = subprocess.Popen(
                    command, cwd=_directory(plan, folder), env=_environment(plan, work, flux), start_new_session=True
                )
                started(process.pid)
                if plan.before:
                    say("running the commands before the brokers")
                try:
                    marks = _follow(plan, process, pipe, stopped, work, say)
                finally:
                    _end_session(process.pid)
        finally:
            os.close(pipe)
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    interrupted = bool(stopped)
    if interrupted:
        status = 0 if plan.mode is Mode.INTERACTIVE else 128 + stopped[0]
    return Result(status, _times(began, marks, time.monotonic()), interrupted, "start" in marks)


def _times(began: float, marks: dict[str, float], ended: float) -> Times:
    # Steps that were not reached, or only after the stop, get the time of the stop.
    stop = marks.get("stop", ended)
    at = [began, *(min(marks.get(name, stop), stop) for name in ("start", "ready", "done")), ended]
    return Times(*(later - earlier for earlier, later in zip(at, at[1:])))


def _find_flux() -> str:
    """The `flux` of this installation, beside the interpreter or the command; else that in PATH."""
    folders = [os.path.dirname(os.path.abspath(sys.argv[0])), os.path.dirname(sys.executable)]
    found = shutil.which("flux", path=":".join(folders)) or shutil.which("flux")
    if not found:
        raise StartError("no flux command beside this Python: install Headrace with pip, in a virtual environment")
    return found


def _shell() -> str:
    # MiniCluster files are written for bash. sh is used if there is no bash.
    return shutil.which("bash") or "/bin/sh"


def _directory(plan: Plan, folder: str) -> str:
    """The job's working directory: the directory that the file names, if it exists, or `folder`."""
    wanted = os.path.join(folder, plan.working_dir)
    return wanted if os.path.isdir(wanted) else folder


def _environment(plan: Plan, work: str, flux: str) -> dict[str, str]:
    env = _inherited(os.environ)
    env.update(plan.environment)
    env[remains.WORKSPACE] = work
    # Nested instances must use TMPDIR, too; their default is /tmp.
    env.setdefault("TMPDIR", os.path.dirname(work))
    env["FLUX_OUTPUT_DIR"] = plan.output_dir
    env["PATH"] = _path_with(flux, env)
    return env


def job_environment(warn: Say) -> dict[str, str]:
    """The environment for a job of a local instance, with the `flux` of this installation in PATH.

    Variables that a jobspec cannot hold are omitted and reported to `warn`. Raises StartError.
    """
    env = _inherited(Caller(warn).environment(())[0])
    env["PATH"] = _path_with(_find_flux(), env)
    return env


def _inherited(variables: Mapping[str, str]) -> dict[str, str]:
    # The instance is independent of an enclosing instance, whose variables are removed.
    return {name: value for name, value in variables.items() if not name.startswith(("FLUX_", "PMI_", "SLURM_"))}


def _path_with(flux: str, env: dict[str, str]) -> str:
    return os.path.dirname(flux) + ":" + env.get("PATH", "/usr/local/bin:/usr/bin:/bin")


@contextlib.contextmanager
def _workspace() -> Iterator[str]:
    """A private folder with a short name (socket paths have at most 108 bytes), removed afterwards."""
    base = tempfile.gettempdir()
    try:
        work = tempfile.mkdtemp(prefix="mini-", dir=base if len(base) < 60 else "/tmp")
    except OSError as exc:
        raise StartError(f"cannot make a folder in {base}: {exc.strerror}; set TMPDIR to another folder") from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _stopping() -> Iterator[list[int]]:
    """The stop signals received so far, as a list that grows."""
    stopped: list[int] = []
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        previous[number] = signal.signal(number, lambda got, _frame: stopped.append(got))
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _write_files(plan: Plan, work: str, flux: str) -> None:
    os.mkfifo(os.path.join(work, "marks"), 0o600)
    config = {**plan.config, "resource": resources(plan)}
    os.mkdir(os.path.join(work, "run"), 0o700)
    with open(os.path.join(work, "broker.json"), "w", encoding="utf-8") as handle:
        json.dump(config, handle)
    for name, text in (("outer", outer_text(plan, start_command(plan, work, flux))), ("inner", inner_text(plan))):
        with open(os.path.join(work, name), "w", encoding="utf-8") as handle:
            handle.write(text)


def _check_texts(work: str) -> None:
    """Have the shell parse the texts first: otherwise it reports an error only at the faulty line."""
    fields = {"outer": "init, pre, brokerPre, workerPre and post", "inner": "command, prefix and flux.optionFlags"}
    for name, parts in fields.items():
        path = os.path.join(work, name)
        done = subprocess.run([_shell(), "-n", path], stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode:
            first = next(iter(done.stderr.splitlines()), "").removeprefix(f"{path}: ")
            raise StartError(f"{parts} together are not valid shell text: {first}")


def resources(plan: Plan) -> dict[str, Any]:
    """The `resource` table: each broker is a node with all the cores that this process may use.

    If there are several brokers, their cores get numbers that the machine does not have, because tasks are not bound to
    cores that do not exist. With real numbers, the tasks of all brokers would be bound to the same first cores.
    """
    count = len(os.sched_getaffinity(0))
    first = 0 if plan.size == 1 else (os.cpu_count() or count)
    cores = f"{first}-{first + count - 1}"
    return {"noverify": True, "config": [{"hosts": hosts_of(plan.name, plan.size), "cores": cores}]}


def start_command(plan: Plan, work: str, flux: str) -> str:
    """The command line that starts the brokers around the inner text."""
    attrs = {name: value for name, value in plan.attrs.items() if not name.startswith("log-stderr")}
    # The operator's default log level shows the brokers' work, so it is not used: a user at a terminal wants to see the
    # job.
    if plan.attrs["log-stderr-level"] != _DEFAULT_LEVEL:
        attrs["log-stderr-level"] = plan.attrs["log-stderr-level"]
    words = [flux, "start", f"--test-size={plan.size}", f"--test-hosts={hosts_of(plan.name, plan.size)}"]
    # As in Kubernetes, a failed follower does not end the other brokers.
    words += [f"--test-rundir={work}/run", "--test-exit-mode=leader", f"--config-path={work}/broker.json"]
    words += [f"-S{name}={value}" for name, value in attrs.items()]
    # The brokers' stderr goes to a file. Descriptor 3 keeps the original stderr for the inner text.
    streams = f"3>&4 2>{shlex.quote(work)}/log" if _keeps_log(plan) else "2>&4"
    # The shell has no stderr meanwhile: bash would write "Terminated" if SIGTERM ends `flux start` before its handler
    # is installed.
    return f"{{ {shlex.join([*words, _shell(), f'{work}/inner'])} {streams} 4>&-; }} 4>&2 2>/dev/null"


def _keeps_log(plan: Plan) -> bool:
    """Whether the brokers' log goes to a file first.

    A log level set by the user sends it directly to stderr.
    """
    return plan.attrs["log-stderr-level"] == _DEFAULT_LEVEL


def _mark(name: str) -> str:
    return f'echo {name} > "$HEADRACE_MINI_DIR/marks"\n'


def outer_text(plan: Plan, start: str) -> str:
    """Shell text of the whole run: the commands before the brokers, the brokers, and those after."""
    before = plan.before + plan.lead_before + (plan.follower_before if plan.size > 1 else "")
    return shell_text.outer_text(before, _mark("start") + start, plan.after, strict=plan.strict, quiet=plan.quiet)


def inner_text(plan: Plan) -> str:
    """Shell text that runs inside the instance, on the lead."""
    own_stderr = "exec 2>&3 3>&-\n" if _keeps_log(plan) else ""
    return shell_text.inner_text(plan.mode, plan.initial_program, ready=own_stderr + _mark("ready"), done=_mark("done"))


def _follow(
    plan: Plan, process: subprocess.Popen[bytes], pipe: int, stopped: list[int], work: str, say: Say
) -> dict[str, float]:
    """Wait for the end and return the time of each step.

    A signal stops the instance, a second one kills it.
    """
    marks: dict[str, float] = {}
    killed_at = 0.0
    signals_handled = 0
    log = os.path.join(work, "log")
    with selectors.DefaultSelector() as selector, open(log, "ab+", buffering=0) as log_file:
        log_file.seek(0)
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None
            # Read the log before the marks: lines logged before the mark "done" are not about the shutdown.
            lines = log_file.read()
            for name in _read_marks(pipe):
                marks.setdefault(name, time.monotonic())
                _say_progress(plan, name, work, say)
            if lines and "done" not in marks and not signals_handled:
                _show(lines)
            if ended:
                return marks
            if len(stopped) > signals_handled:
                signals_handled = len(stopped)
                if signals_handled == 1:
                    say("stopping")
                    marks["stop"] = time.monotonic()
                    killed_at = time.monotonic() + _STOP_TIMEOUT
                    _signal_leader(process.pid, signal.SIGTERM)
                else:
                    killed_at = time.monotonic()
            if signals_handled and time.monotonic() >= killed_at:
                _end_session(process.pid)
            selector.select(timeout=0.05)


def _show(lines: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.buffer.write(lines)
        sys.stderr.flush()


def _read_marks(pipe: int) -> list[str]:
    try:
        return [name for name in os.read(pipe, 4096).decode().split() if name in _MARKS]
    except BlockingIOError:
        return []


def _say_progress(plan: Plan, mark: str, work: str, say: Say) -> None:
    brokers = f"{plan.size} broker{'s' if plan.size > 1 else ''}"
    if mark == "start":
        say(f"starting {brokers}: {hosts_of(plan.name, plan.size)}")
    elif mark == "ready":
        if plan.mode is Mode.INTERACTIVE:
            say(f"ready: flux proxy local://{work}/run/local-0    (Ctrl-C stops the cluster)")
        else:
            say(f"ready: {brokers} up, running the job")
    elif mark == "done":
        say("job finished, deleting the cluster")


def _session(leader: int) -> list[int]:
    """The running processes in the session of `leader`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as handle:
                    fields = handle.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(name))
    return found


def _signal_leader(shell: int, number: int) -> None:
    """Signal the outer shell and its children (`flux start`, or a command before or after it)."""
    try:
        with open(f"/proc/{shell}/task/{shell}/children", encoding="utf-8") as handle:
            children = [int(pid) for pid in handle.read().split()]
    except OSError:
        children = []
    # Signal the shell first: otherwise it would start the next command.
    for pid in (shell, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end_session(leader: int) -> None:
    """Kill the remaining processes of the session; normally there are none."""
    for pid in _session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_all(shell: int, work: str) -> None:
    """Clean up after a `run` that was killed, as `run` does after a signal."""
    if shell:
        _signal_leader(shell, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT
        while _session(shell) and time.monotonic() < deadline:
            time.sleep(0.05)
        _end_session(shell)
    shutil.rmtree(work, ignore_errors=True)
