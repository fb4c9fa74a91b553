"""A task: its process, its pipes and its PMI socket.

A task is closed when its process and all its streams have ended. A task with an interactive terminal also stays open
until a client has attached to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from headrace.engine.process import linux
from headrace.engine.process.feed import Feed
from headrace.engine.process.spawn import spawn
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.stdlib_parts import socket

from .pty import Pty

if TYPE_CHECKING:
    from .host import Job

_READ = 1 << 16
_PMI_FD = 3
_PMI_LINE = 1 << 16


class _Ends:
    """The descriptors for a new process.

    `given` are pairs (descriptor, number in the process). `its` are the process's ends, which are closed here once it
    runs. `ours` are our ends.
    """

    def __init__(self, stdin: int) -> None:
        self.ours: list[int] = []
        self.its: list[int] = [stdin] if stdin >= 0 else []
        self.given: list[tuple[int, int]] = []

    def make_pipes(self, stdin: int) -> None:
        """Create the standard streams. Standard input is the descriptor `stdin`; -1: a pipe. Raises OSError."""
        if stdin < 0:
            stdin, write = os.pipe2(os.O_CLOEXEC)
            self.its.append(stdin)
            self.ours.append(write)
        self.given.append((stdin, 0))
        for number in (1, 2):
            read, write = os.pipe2(os.O_CLOEXEC)
            self.ours.append(read)
            self.its.append(write)
            self.given.append((write, number))

    def make_pmi(self) -> int:
        """Create the PMI socket; returns the descriptor of our end. Raises OSError."""
        pair = socket.socketpair()
        ours, its = pair[0].detach(), pair[1].detach()
        self.its.append(its)
        # This descriptor is above 2, because the agent has 0 to 2 open. So the dup2 actions of the standard streams do
        # not overwrite it.
        self.given.append((its, _PMI_FD))
        return ours


class Task:
    """Task `rank` of the job. `local` is its index on this node."""

    __slots__ = (
        "_fds",
        "_job",
        "_open",
        "_paused",
        "_pmi",
        "_pmi_lines",
        "_shares_group",
        "_swept",
        "closed",
        "feed",
        "local",
        "pid",
        "pty",
        "rank",
    )

    def __init__(self, job: Job, local: int, rank: int) -> None:
        self._job = job
        self.local = local
        self.rank = rank
        self.pid = 0
        self.feed: Feed | None = None
        self.pty: Pty | None = None
        self.closed = False
        self._open = 0
        # Descriptors from which output is read, with the names of the streams.
        self._fds: dict[int, str] = {}
        # True while output is not read.
        self._paused = False
        # True once the process group is empty or was killed. From then on its number may be reused.
        self._swept = False
        # True if the job's tasks on this node share the process group (`nosetpgrp`).
        self._shares_group = False
        self._pmi = -1
        self._pmi_lines = LineReader()

    def start(
        self,
        argv: list[str],
        env: dict[str, str],
        limits: dict[int, int],
        stdin: int,
        pty: bool,
        cpus: frozenset[int] | None = None,
        group: int = 0,
    ) -> None:
        """Start the process.

        `stdin` is a descriptor that becomes its standard input; -1 means a pipe. `cpus` are its processors; None means
        all. `group` is the process group that it joins; 0 means its own. Raises OSError, after closing all descriptors.
        """
        job = self._job
        ends = _Ends(stdin)
        terminal: Pty | None = None
        try:
            if pty:
                terminal = Pty(job, self)
                # The slave end is closed together with `its`, once the task has opened it.
                ends.its.append(terminal.slave)
            else:
                ends.make_pipes(stdin)
            if job.pmi.simple is not None:
                self._pmi = ends.make_pmi()
                env.update(PMI_FD=str(_PMI_FD), PMI_RANK=str(self.rank), PMI_SIZE=str(job.size), PMI_SPAWNED="0")
            if job.pmi.pmix is not None:
                env.update(job.pmi.pmix.environment(env, self.rank))
            # A process with a terminal is a session leader, so it cannot share a process group.
            self._shares_group = group != 0 and terminal is None
            group = group if self._shares_group else 0
            device = os.ttyname(terminal.slave) if terminal else ""
            self.pid = spawn(argv, env, ends.given, limits, terminal=device, group=group, cpus=cpus)
        except BaseException:
            for fd in [*ends.ours, *ends.its]:
                os.close(fd)
            if terminal is not None:
                terminal.close()
            if self._pmi >= 0:
                os.close(self._pmi)
                self._pmi = -1
            raise
        for fd in ends.its:
            os.close(fd)
        self._follow(terminal, ends.ours, fed=stdin < 0)

    def _follow(self, terminal: Pty | None, ours: list[int], fed: bool) -> None:
        """Watch the process and its streams: a terminal, or `ours`, our ends of its pipes.

        If `fed` is true, the first of `ours` is the standard input.
        """
        agent = self._job.agent
        agent.children[self.pid] = self._exited
        if terminal is not None:
            self.pty = terminal
            self._open = 1
            terminal.start()
        else:
            if fed:
                self.feed = Feed(agent, ours.pop(0), self._job.input_taken)
            for stream, fd in zip(("stdout", "stderr"), ours):
                # The pipes are non-blocking, because the agent must never block in a read.
                os.set_blocking(fd, False)
                self._open += 1
                self._fds[fd] = stream
                agent.watch(fd, partial(self._readable, fd, stream))
        if self._pmi >= 0:
            os.set_blocking(self._pmi, False)
            agent.watch(self._pmi, self._pmi_readable)

    def never_ran(self) -> None:
        """Close the task, whose process could not be started."""
        self.closed = True

    def _readable(self, fd: int, stream: str) -> None:
        output = self._job.output
        assert output is not None
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            output.data(self.rank, stream, data)
            return
        self._end_stream(fd, stream)

    def _end_stream(self, fd: int, stream: str) -> None:
        output = self._job.output
        assert output is not None
        self._job.agent.unwatch(fd)
        os.close(fd)
        del self._fds[fd]
        output.eof(self.rank, stream)
        self.stream_ended()

    def close_streams(self) -> None:
        """Stop reading the streams, as if all writers had closed them."""
        for fd, stream in list(self._fds.items()):
            self._end_stream(fd, stream)
        if self.pty is not None:
            self.pty.end()

    def pause_output(self, on: bool) -> None:
        """Stop reading output (`on`), so that the pipes fill and the process blocks, or resume it."""
        if on == self._paused:
            return
        self._paused = on
        for fd, stream in self._fds.items():
            if on:
                self._job.agent.unwatch(fd)
            else:
                self._job.agent.watch(fd, partial(self._readable, fd, stream))
        if self.pty is not None:
            self.pty.pause_output(on)

    def stream_ended(self) -> None:
        self._open -= 1
        self.maybe_close()

    def _pmi_readable(self) -> None:
        server = self._job.pmi.simple
        if self._pmi < 0 or server is None:
            return
        try:
            data = os.read(self._pmi, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._pmi_lines.rest) > _PMI_LINE:
            self._close_pmi()
            return
        for line in self._pmi_lines.feed(data):
            server.line(line.decode("utf-8", "surrogateescape"), self.local, self._pmi_reply)

    def _pmi_reply(self, data: bytes) -> None:
        if self._pmi < 0:
            return
        try:
            sent = os.write(self._pmi, data)
        except OSError:
            sent = 0
        if sent < len(data):
            # The task does not read its responses, or has ended.
            self._close_pmi()

    def _close_pmi(self) -> None:
        fd, self._pmi = self._pmi, -1
        if fd >= 0:
            self._job.agent.unwatch(fd)
            os.close(fd)

    def kill(self, signum: int) -> None:
        """Signal the task's process group, or only the process if several tasks share the group."""
        if self._shares_group:
            if self.pid > 0:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self.pid, signum)
        elif self.pid and not self.closed and not self._swept:
            # A negative pid means that the process was collected. Its group may still have background members.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(abs(self.pid), signum)
        if self.pty is not None:
            self.pty.signalled(signum)

    def _exited(self, status: int) -> None:
        if self.feed is not None:
            self.feed.close()
        self._close_pmi()
        self._job.task_exited(self, status)
        if self._shares_group:
            # The shared group is killed when the last task of the job on this node is closed.
            self._swept = True
        else:
            self._swept = self._swept or linux.is_empty_group(self.pid)
        # A negative pid marks a collected process. Its group may still have background members.
        self.pid = -self.pid
        if self.pty is not None:
            self.pty.process_ended(status)
        self.maybe_close()

    def maybe_close(self) -> None:
        """Close the task if its process and streams have ended and its terminal waits for no client."""
        if self.closed or self.pid > 0 or self._open:
            return
        if not self._swept:
            self._swept = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(-self.pid, signal.SIGKILL)
        if self.pty is not None and self.pty.awaited:
            return
        self.closed = True
        self._job.task_closed(self)
