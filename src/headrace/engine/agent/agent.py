"""The exec agent: a small single-threaded process per broker that runs the tasks of many jobs.

It is forked before the broker has threads or a loop, so spawning is cheap. The shell runs in it as a library: a process
per job would halve throughput. Replies of one turn are sent in one write. When the broker's end of the socket closes,
the agent kills every process group it started and exits, so `kill -9` of a broker leaves no orphans.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import math
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.job_exception import EXEC, FATAL
from headrace.formats.spec.os_error import with_class

from ..shell.job import ShellJob
from ..shell.pmix.port import Port
from ..shell.tmpdir import Folders, Given, wait_for_removals
from . import fatal_signals, leftovers, reaper
from .environments import Read
from .guests import Guests
from .processes import Subprocesses
from .protocol import Reader, frame

if TYPE_CHECKING:
    from headrace.engine.process.operations import FromAgent, JobOperation, Program, Rpc, Start, ToAgent
    from headrace.engine.process.user import User

_READ = 1 << 18
# Reports that may be delayed by _BATCH_DELAY seconds, to be sent together: each write wakes the broker, and a short job
# ends right after its start.
_BATCHED = frozenset({"started", "event", "output", "input"})
_BATCH_DELAY = 0.002
_BATCH_SIZE = 64
# Seconds until a search for orphans, so that a burst of short jobs costs one search.
_SWEEP_DELAY = 0.05
# The longest timeout passed to epoll (seconds), which accepts 24 days at most.
_MAX_TIMEOUT = 1e6


class Agent:
    """The event loop: descriptors, child processes and timers, each with its callback."""

    def __init__(self, sock: socket.socket, user: User | None = None) -> None:
        """Create the agent of the broker at the other end of `sock`.

        With `user`, this process is the shell of one job of that user, a guest, and the agent of root is at the other
        end.
        """
        self._pid = os.getpid()
        self._sock = sock
        sock.setblocking(False)
        sock.set_inheritable(False)
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self.children: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._out: list[FromAgent] = []
        self._urgent = False
        self._later: list[Callable[[], None]] = []
        self._unsent = bytearray()
        # An anonymous mapping only uses memory for pages that were written.
        self._receive_buffer = memoryview(mmap.mmap(-1, _READ))
        self._reader: Reader[ToAgent] = Reader()
        self.jobs: dict[int, ShellJob] = {}
        self._user = user
        self.folders: Folders | Given = Folders() if user is None else Given()
        self.guests = Guests(self, self.sweep_later)
        self.pmix = Port(self)
        self._environments = Read()
        # The job path of this instance.
        self._instance = ""
        # The last `program` operation of the broker, about its initial program.
        self._program: Program = {"op": "program", "pid": 0}
        self._broker_has_ended = False
        self._sweeping = False
        self.running = True
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.subprocesses: Subprocesses = Subprocesses(self, self.jobs)

    # -- calls of shells

    def send(self, op: FromAgent) -> None:
        """Send to the broker at the end of this turn. A report in _BATCHED may be delayed."""
        self._out.append(op)
        if op["op"] not in _BATCHED:
            self._urgent = True
        elif len(self._out) == 1:
            self.after(_BATCH_DELAY, self._mark_urgent)

    def _mark_urgent(self) -> None:
        self._urgent = True

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self._readers[fd] = on_readable
        self._epoll.register(fd, select.EPOLLIN)

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None:
        """Call `on_writable` until `unwatch_writable`. The descriptor must not be watched for reading."""
        self._writers[fd] = on_writable
        self._epoll.register(fd, select.EPOLLOUT)

    def unwatch(self, fd: int) -> None:
        """Stop watching for reading. Must be called before closing."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def unwatch_writable(self, fd: int) -> None:
        if self._writers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def afterwards(self, fn: Callable[[], None]) -> None:
        """Call `fn` after the replies of this turn were sent, for work that should not delay them."""
        self._later.append(fn)

    def after(self, seconds: float, fn: Callable[[], None]) -> None:
        """Call `fn` once after `seconds`.

        A timer cannot be cancelled, so `fn` checks whether it still applies.
        """
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._sequence), fn))

    def job_over(self, id: int, status: int, tmpdir: str) -> None:
        """Report the end of a job with this wait status, and remove its orphans and its temporary folder."""
        self.send({"op": "finish", "id": id, "status": status})
        self.jobs.pop(id, None)
        self.sweep_later()
        self.afterwards(partial(self.folders.give_back, tmpdir))

    # -- the loop

    def run(self) -> None:
        """Run until the broker closes its end of the socket or sends `shutdown`; then kill all processes."""
        # Also between starts: a file system cannot be unmounted while it has the working directory of a process.
        os.chdir("/")
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        if reaper.is_followed():
            signal.signal(reaper.ORPHANED, lambda _number, _frame: self.stop() if reaper.is_orphaned() else None)
            if reaper.is_orphaned():
                # The reaper ended before the handler was set.
                self.stop()
        self.watch(self._sock.fileno(), self._readable)
        self.watch(self._wake_read, self._woken)
        signals = fatal_signals.listen()
        self.watch(signals, lambda: fatal_signals.take(signals, self.jobs))
        while self.running:
            self._turn()
        self._kill_all()

    def _turn(self) -> None:
        timeout = -1.0
        if self._timers:
            timeout = min(_MAX_TIMEOUT, max(0.0, self._timers[0][0] - time.monotonic()))
        readers, writers = self._readers, self._writers
        ready = []
        for fd, events in self._epoll.poll(timeout):
            table = writers if events & select.EPOLLOUT else readers
            ready.append((fd, table.get(fd) or readers.get(fd) or writers.get(fd)))
        for fd, callback in ready:
            # An earlier event of this turn may have closed the descriptor, and a new job may have reused its number.
            # The event does not apply to the new descriptor.
            if callback is None or (readers.get(fd) is not callback and writers.get(fd) is not callback):
                continue
            try:
                callback()
            except Exception:
                # An error in one job must not end the other jobs of this node.
                traceback.print_exc(file=sys.stderr)
                self.unwatch(fd)
                self.unwatch_writable(fd)
        while self._timers and self._timers[0][0] <= time.monotonic():
            _guarded(heapq.heappop(self._timers)[2])
        self._flush()
        while self._later:
            _guarded(self._later.pop())

    def _flush(self) -> None:
        if self._urgent or len(self._out) > _BATCH_SIZE:
            self._pack()
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                # The broker reads too slowly. Waiting here also stops reading from the tasks, which is their flow
                # control.
                select.select([], [self._sock], [], 1.0)
                continue
            except OSError:
                self._broker_closed()
                return
            del self._unsent[:sent]

    def _pack(self) -> None:
        self._urgent = False
        if self._out:
            self._unsent += frame(self._out)
            self._out = []

    def _readable(self) -> None:
        try:
            size = self._sock.recv_into(self._receive_buffer)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._broker_closed()
            return
        for op in self._reader.feed(self._receive_buffer[:size]):
            _guarded(partial(self._handle, op))

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        self.reap()

    def reap(self) -> None:
        """Collect every child that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.guests.continue_shell(pid)
                continue
            callback = self.children.pop(pid, None)
            if callback is not None:
                _guarded(partial(callback, status))
            else:
                # This process inherits the children of the orphan that ended.
                self.sweep_later()

    def sweep_later(self) -> None:
        """Schedule a search for orphans."""
        if not self._sweeping:
            self._sweeping = True
            self.after(_SWEEP_DELAY, self._sweep)

    def _sweep(self) -> None:
        """Kill processes that outlive their job.

        They left its process groups, and this subreaper is their parent.
        """
        self._sweeping = False
        self.guests.sweep()
        if not self.jobs:
            self.folders.remove_all()
        jobs = self.jobs.values()
        between = self.subprocesses.latest(), next((job.begun for job in jobs), math.inf)
        leftovers.kill_orphans(self._pid, self.children, self._instance, lambda: [job.path for job in jobs], between)

    def kill_leftovers(self, path: str, signum: int, doomed: set[int]) -> None:
        """Send `signum` to the processes `doomed`, and to all whose environment has the job path `path`."""
        leftovers.kill_job(path, signum, doomed, self._pid)

    # -- operations

    def _handle(self, op: ToAgent) -> None:
        match op["op"]:
            case "start":
                if op.get("as_user") and self._user is None:
                    self.guests.start(op)
                else:
                    self._start(op)
            case "kill" | "expiration" | "peer" | "barrier" | "rpc-drained":
                if not self.guests.pass_on(op):
                    self._handle_job_operation(op)
            case "rpc":
                if not self.guests.pass_on(op):
                    self._rpc(op)
            case "exec":
                self.subprocesses.start(op)
            case "exec-write":
                self.subprocesses.write(op)
            case "exec-hold":
                self.subprocesses.pause(op)
            case "exec-kill":
                self.subprocesses.kill(op)
            case "program":
                self._program = op
            case "shutdown":
                self.stop()

    def _start(self, op: Start) -> None:
        try:
            job = ShellJob(self, op, self._environment(op))
        except Exception as exc:
            note = with_class(exc)
            traceback.print_exc(file=sys.stderr)
            id, status = op["id"], 1 << 8
            self.send({"op": "exception", "id": id, "severity": FATAL, "type": EXEC, "note": note, "status": status})
            self.send({"op": "finish", "id": id, "status": status})
            return
        self._instance = job.path.rpartition("/")[0]
        self.jobs[op["id"]] = job
        job.start()

    def _environment(self, op: Start) -> dict[str, Any] | None:
        """The environment of a job, or None if the jobspec has it. Raises OSError."""
        if self._user is not None:
            return {**specs.environment(op["jobspec"]), **self._user.environment()}
        named = op.get("environment")
        return None if named is None else self._environments.environment(named)

    def _handle_job_operation(self, op: JobOperation) -> None:
        job = self.jobs.get(op["id"])
        if job is None:
            return
        match op["op"]:
            case "kill":
                signum = op["signum"]
                if signum is not None and op.get("all"):
                    job.kill_all(signum)
                else:
                    job.kill(signum)
            case "expiration":
                job.set_expiration(op["expiration"])
            case "peer":
                job.from_peer(op["from"], op["data"])
            case "barrier":
                job.barrier_done(op["seq"], op["kvs"])
            case "rpc-drained":
                job.drained(op["token"])

    def _rpc(self, op: Rpc) -> None:
        job = self.jobs.get(op["id"])
        if job is not None:
            job.rpc(op)
        else:
            token = op["token"]
            self.send({"op": "rpc-reply", "token": token, "errnum": errno.ENOENT, "payload": None, "text": ""})

    def stop(self) -> None:
        self.running = False

    def _broker_closed(self) -> None:
        """Stop after the broker has closed its end of the socket, or was killed."""
        self._broker_has_ended = True
        self.stop()

    def _read_last_ops(self) -> None:
        """Read the last operations of a broker that may have been killed, for its latest `program` operation."""
        try:
            while size := self._sock.recv_into(self._receive_buffer):
                for op in self._reader.feed(self._receive_buffer[:size]):
                    if op["op"] == "program":
                        self._program = op
        except BlockingIOError:
            return
        except OSError:
            pass
        self._broker_has_ended = True

    def _kill_all(self) -> None:
        self._read_last_ops()
        if self._broker_has_ended:
            # The broker was killed, so kill its initial program too.
            leftovers.kill_program(self._program)
        for job in list(self.jobs.values()):
            job.abandon()
        self.subprocesses.abandon()
        self.folders.remove_all()
        # This subreaper has inherited the remaining processes of tasks.
        reaper.kill_children(2.0)
        self.guests.remove_folders()
        wait_for_removals()


def _guarded(fn: Callable[[], None]) -> None:
    """Call `fn`. An exception is printed and has no other effect."""
    try:
        fn()
    except Exception:
        traceback.print_exc(file=sys.stderr)
