"""Subprocesses of the remote execution service (RFC 42), identified by handle.

A subprocess may belong to a job: the job ends on this node only after its subprocesses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.process import linux
from headrace.engine.process.feed import Feed
from headrace.engine.process.spawn import spawn

from ..shell.options import rexec_grace

if TYPE_CHECKING:
    from headrace.engine.process.operations import Exec, ExecHold, ExecKill, ExecWrite

    from ..shell.host import Host

_READ = 1 << 16


class _Process:
    __slots__ = ("feed", "handle", "job", "open", "paused", "pid")

    def __init__(self, handle: int, job: int, pid: int, feed: Feed) -> None:
        self.handle = handle
        # The id of the subprocess's job, or 0.
        self.job = job
        self.pid = pid
        self.feed = feed
        self.open: dict[str, int] = {}
        self.paused = False


class Subprocesses:
    """The subprocesses of one agent."""

    def __init__(self, agent: Host, jobs: Container[int]) -> None:
        self._agent = agent
        # The jobs on this node, by id.
        self._jobs = jobs
        self._by_handle: dict[int, _Process] = {}
        # Running subprocesses by job, and the callbacks for the end of a job's last subprocess.
        self._of_jobs: dict[int, set[_Process]] = {}
        self._leaving: dict[int, Callable[[], None]] = {}
        # The tick at which the last subprocess without a job ended.
        self._latest = 0

    def start(self, op: Exec) -> None:
        agent, handle, cmd, job = self._agent, op["handle"], op["cmd"], op.get("job", 0)
        if job and (job not in self._jobs or job in self._leaving):
            text = "the job has no tasks on this node any more"
            agent.send({"op": "exec-error", "handle": handle, "errnum": errno.ESRCH, "text": text})
            return
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
        try:
            argv = [str(arg) for arg in cmd["cmdline"]]
            if not argv:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            os.chdir(cmd.get("cwd") or "/")
            env = {str(name): str(value) for name, value in cmd.get("env", {}).items() if value is not None}
            pid = spawn(argv, env, [(in_read, 0), (out_write, 1), (err_write, 2)])
        except (OSError, ValueError) as exc:
            for pair in pipes:
                os.close(pair[0])
                os.close(pair[1])
            number = exc.errno if isinstance(exc, OSError) and exc.errno else errno.EINVAL
            # The caller's working directory may be missing on this node, so the message names it.
            cwd = cmd.get("cwd")
            lost = cwd and isinstance(exc, OSError) and exc.filename == cwd
            text = f"error launching process: cannot change to {cwd}: {os.strerror(number)}" if lost else ""
            agent.send({"op": "exec-error", "handle": handle, "errnum": number, "text": text})
            return
        finally:
            os.chdir("/")
        for fd in (in_read, out_write, err_write):
            os.close(fd)
        process = self._by_handle[handle] = _Process(handle, job, pid, Feed(agent, in_write))
        if job:
            self._of_jobs.setdefault(job, set()).add(process)
        agent.children[pid] = lambda status: self._ended(process, status)
        agent.send({"op": "exec-started", "handle": handle, "pid": pid})
        for stream, fd in (("stdout", out_read), ("stderr", err_read)):
            os.set_blocking(fd, False)
            process.open[stream] = fd
            agent.watch(fd, partial(self._readable, process, stream, fd))

    def latest(self) -> int:
        """The last tick at which a subprocess without a job ran, or 0."""
        alive = any(process.pid and not process.job for process in self._by_handle.values())
        return linux.ticks() if alive else self._latest

    def write(self, op: ExecWrite) -> None:
        process = self._by_handle.get(op["handle"])
        if process is None:
            return
        if op.get("data"):
            process.feed.write(op["data"])
        if op.get("eof"):
            process.feed.end()

    def pause(self, op: ExecHold) -> None:
        """Pause or resume reading a process's output. A paused process blocks when the pipe is full."""
        process = self._by_handle.get(op["handle"])
        if process is None or process.paused == op["on"]:
            return
        process.paused = op["on"]
        for stream, fd in process.open.items():
            if process.paused:
                self._agent.unwatch(fd)
            else:
                self._agent.watch(fd, partial(self._readable, process, stream, fd))

    def kill(self, op: ExecKill) -> None:
        process = self._by_handle.get(op["handle"])
        if process is not None and process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, op["signum"])

    def outlive(self, job: int, options: Mapping[str, Any], then: Callable[[], None]) -> bool:
        """True if subprocesses of a job still run after its tasks.

        They then get SIGTERM, and SIGKILL after the time of the shell option `rexec-shutdown-timeout`. `then` is called
        when the last one has ended.
        """
        if job not in self._of_jobs:
            return False
        if job not in self._leaving:
            self._leaving[job] = then
            self.kill_of(job, signal.SIGTERM)
            self._agent.after(rexec_grace(options), partial(self.kill_of, job, signal.SIGKILL))
        return True

    def kill_of(self, job: int, signum: int) -> None:
        """Signal the subprocesses of a job."""
        for process in self._of_jobs.get(job, ()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)

    def abandon(self) -> None:
        """Kill all subprocesses: the broker has ended."""
        for process in self._by_handle.values():
            if process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _readable(self, process: _Process, stream: str, fd: int) -> None:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        eof = not data
        if eof:
            self._agent.unwatch(fd)
            os.close(fd)
            del process.open[stream]
        self._agent.send({"op": "exec-output", "handle": process.handle, "stream": stream, "data": data, "eof": eof})
        self._maybe_forget(process)

    def _ended(self, process: _Process, status: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.pid = 0
        if not process.job:
            self._latest = linux.ticks()
        process.feed.close()
        self._agent.send({"op": "exec-finished", "handle": process.handle, "status": status})
        self._maybe_forget(process)
        if process.job:
            mine = self._of_jobs[process.job]
            mine.discard(process)
            if not mine:
                del self._of_jobs[process.job]
                self._leaving.pop(process.job, lambda: None)()

    def _maybe_forget(self, process: _Process) -> None:
        if not process.pid and not process.open:
            self._by_handle.pop(process.handle, None)
