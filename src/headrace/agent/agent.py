"""The exec agent: one small single-threaded process per broker that starts and watches the tasks of many jobs.

It is forked before the broker has threads or a loop, so spawning stays cheap, and the shell runs in it as a library: a
process per job would halve throughput. Replies of one turn leave in one write. When the broker's end of the socket
closes, the agent kills every process group it started and ends: `kill -9` of a broker leaves no orphans.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import heapq
import itertools
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial

from ..shell.job import ShellJob
from ..shell.tmpdir import Folders
from . import begun, keeper, leftovers, linux
from .processes import Subprocesses
from .protocol import Op, Reader, frame

_READ = 1 << 18
# Reports that wait (seconds) for company: a short job's end follows its start at once, and each write wakes the broker.
_PATIENT = frozenset({"started", "event", "output", "input"})
_PATIENCE = 0.002
_MOST_WAITING = 64
# Seconds until orphans are looked for, so that a burst of short jobs costs one look.
_SWEEP = 0.05
# Seconds that a process killed together with the broker may take to be gone.
_DYING = 0.5
# Seconds that epoll is asked to wait at most: it takes no more than 24 days.
_LONGEST = 1e6
# The fields of a start that say where.
_PLACE = ("R", "nodeid", "nnodes", "rank", "hosts", "ranks")


class Agent:
    """The loop: descriptors, child processes and timers, each with its callback."""

    def __init__(self, sock: socket.socket) -> None:
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
        self._out: list[Op] = []
        self._urgent = False
        self._later: list[Callable[[], None]] = []
        self._unsent = bytearray()
        # Memory of its own from the kernel, which is there only as far as somebody wrote.
        self._in = memoryview(mmap.mmap(-1, _READ))
        self._reader = Reader()
        self.jobs: dict[int, ShellJob] = {}
        # Starts for when one of the jobs `_leavers` ends, which leaves them its place.
        self._next: deque[Op] = deque()
        self._leavers: set[int] = set()
        self._traces: begun.Traces | None = None
        self.folders = Folders()
        # The job path of the instance whose jobs these are.
        self._instance = ""
        # The pid of the broker's initial program while it runs.
        self._program = 0
        self._sweeping = False
        self.running = True
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.subprocesses = Subprocesses(self)
        self._handlers: dict[str, Callable[[Op], None]] = {
            "start": self._start,
            "ahead": self._ahead,
            "recall": self._recall,
            "kill": self._kill,
            "expiration": lambda op: self._with_job(op, lambda job: job.set_expiration(op["expiration"])),
            "peer": lambda op: self._with_job(op, lambda job: job.from_peer(op["from"], op["data"])),
            "barrier": lambda op: self._with_job(op, lambda job: job.barrier_done(op["seq"], op["kvs"])),
            "rpc": self._rpc,
            "exec": self.subprocesses.start,
            "exec-write": self.subprocesses.write,
            "exec-hold": self.subprocesses.hold,
            "exec-kill": self.subprocesses.kill,
            "program": self._program_runs,
            "shutdown": lambda _op: self.stop(),
        }

    # -- what jobs use

    def send(self, op: Op) -> None:
        """To the broker: at the end of this turn, or with what comes next if nobody acts on it."""
        self._out.append(op)
        # Nobody waits for a place that is taken already.
        if op["op"] not in _PATIENT and "heir" not in op:
            self._urgent = True
        elif len(self._out) == 1:
            self.after(_PATIENCE, self._hurry)

    def _hurry(self) -> None:
        self._urgent = True

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self._readers[fd] = on_readable
        self._epoll.register(fd, select.EPOLLIN)

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None:
        """Until `unwatch_writable`; the descriptor must not be watched for reading."""
        self._writers[fd] = on_writable
        self._epoll.register(fd, select.EPOLLOUT)

    def unwatch(self, fd: int) -> None:
        """Stop watching for reading; call before closing."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def unwatch_writable(self, fd: int) -> None:
        if self._writers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def afterwards(self, fn: Callable[[], None]) -> None:
        """Run `fn` once this turn's replies are on their way: for work nobody waits for."""
        self._later.append(fn)

    def after(self, seconds: float, fn: Callable[[], None]) -> None:
        """Run `fn` once; a timer cannot be cancelled, `fn` checks whether it still applies."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._sequence), fn))

    def job_over(self, job: ShellJob, status: int) -> None:
        """Report the end of `job`, remove what it left, and start who takes its place."""
        finish: Op = {"op": "finish", "id": job.id, "status": status}
        heir = self._heir_of(job)
        if heir is not None:
            finish["heir"], finish["t"] = heir["id"], time.time()
        self.send(finish)
        self.jobs.pop(job.id, None)
        self._sweep_later()
        if heir is None:
            self.afterwards(partial(self.folders.give_back, job.tmpdir))
        else:
            self.folders.leave(job.tmpdir)
            self._start(heir)
            self.folders.put_by()

    # -- the loop

    def run(self) -> None:
        """Until the broker's end closes or asks us to stop; then nothing we started is left."""
        # Jobs die by reference counting but for a few cycles: look for those rarely.
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The broker that forked us holds them.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(keeper.ORPHANED, lambda _number, _frame: self.stop())
        self.watch(self._sock.fileno(), self._readable)
        self.watch(self._wake_read, self._woken)
        while self.running:
            self._turn()
        self._kill_all()

    def _turn(self) -> None:
        timeout = -1.0
        if self._timers:
            timeout = min(_LONGEST, max(0.0, self._timers[0][0] - time.monotonic()))
        readers, writers = self._readers, self._writers
        ready = []
        for fd, events in self._epoll.poll(timeout):
            table = writers if events & select.EPOLLOUT else readers
            ready.append((fd, table.get(fd) or readers.get(fd) or writers.get(fd)))
        for fd, callback in ready:
            # An event of this turn may have closed the descriptor and started a job, which has it anew: what is said of
            # the old one would have us wait for the new one.
            if callback is None or (readers.get(fd) is not callback and writers.get(fd) is not callback):
                continue
            try:
                callback()
            except Exception:
                # A fault in one job's handling must not end all jobs of this node.
                traceback.print_exc(file=sys.stderr)
                self.unwatch(fd)
                self.unwatch_writable(fd)
        while self._timers and self._timers[0][0] <= time.monotonic():
            _guarded(heapq.heappop(self._timers)[2])
        self._flush()
        while self._later:
            _guarded(self._later.pop())

    def _flush(self) -> None:
        if self._urgent or len(self._out) > _MOST_WAITING:
            self._urgent = False
            if self._out:
                self._unsent += frame(self._out)
                self._out = []
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                # The broker reads slower than we produce: waiting here is what slows the tasks' output down.
                select.select([], [self._sock], [], 1.0)
                continue
            except OSError:
                self.running = False
                return
            del self._unsent[:sent]

    def _readable(self) -> None:
        try:
            size = self._sock.recv_into(self._in)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self.running = False
            return
        for op in self._reader.feed(self._in[:size]):
            handler = self._handlers.get(op.get("op", ""))
            if handler is not None:
                _guarded(partial(handler, op))

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        self.reap()

    def reap(self) -> None:
        """Collect every child that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self.children.pop(pid, None)
            if callback is not None:
                _guarded(partial(callback, status))
            else:
                # What it had started is our child from now on.
                self._sweep_later()

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self.after(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        """Kill what outlives its job: it left its process groups, and came to us as to a subreaper."""
        self._sweeping = False
        if not self.jobs:
            self.folders.remove_all()
        leftovers.kill_orphans(
            self._pid, self.children, self._instance, lambda: [job.path for job in self.jobs.values()]
        )

    def kill_leftovers(self, job: ShellJob, signum: int, doomed: set[int]) -> None:
        """`signum` to the processes `doomed` and all that says that it belongs to `job`, wherever it went."""
        leftovers.kill_job(job.path, signum, doomed, self._pid)

    # -- operations

    def _start(self, op: Op) -> None:
        job = ShellJob(self, op)
        self._instance = job.path.rpartition("/")[0]
        self.jobs[op["id"]] = job
        try:
            job.start()
        except Exception as exc:
            # A bad jobspec costs its own job, never the agent.
            job.fail(f"{type(exc).__name__}: {exc}", 1, trace=traceback.format_exc())

    def _ahead(self, op: Op) -> None:
        """Start one of `jobs` where one of the jobs `after`, or one of themselves, ends."""
        if op["first"]:
            self._leavers.clear()
        if op["traces"] and (self._traces is None or self._traces.path != op["traces"]):
            self._traces = begun.Traces(op["traces"])
        # The start of some of them may be on its way still.
        self._leavers.update(op["after"])
        self._next.extend(op["jobs"])

    def _recall(self, _op: Op) -> None:
        ids = [op["id"] for op in self._next]
        self._next.clear()
        self._leavers.clear()
        self.send({"op": "recalled", "ids": ids})

    def _heir_of(self, job: ShellJob) -> Op | None:
        """The start of the job that takes the place of one that is over."""
        if job.id not in self._leavers:
            return None
        self._leavers.discard(job.id)
        if not self._next or not self.running:
            return None
        heir = self._next.popleft()
        if self._traces is not None:
            self._traces.add(heir["id"])
        self._leavers.add(heir["id"])
        heir.update((key, job.op[key]) for key in _PLACE)
        if heir["duration"]:
            end = time.time() + heir["duration"]
            heir["expiration"] = min(end, heir["expiration"] or end)
        return heir

    def _with_job(self, op: Op, fn: Callable[[ShellJob], None]) -> None:
        job = self.jobs.get(op["id"])
        if job is not None:
            fn(job)

    def _kill(self, op: Op) -> None:
        self._with_job(op, lambda job: job.kill_all(op["signum"]) if op.get("all") else job.kill(op["signum"]))

    def _rpc(self, op: Op) -> None:
        job = self.jobs.get(op["id"])
        if job is None:
            reply = {"op": "rpc-reply", "token": op["token"], "errnum": errno.ENOENT, "payload": None, "text": ""}
            self.send(reply)
            return
        job.rpc(op)

    def _program_runs(self, op: Op) -> None:
        self._program = op["pid"]

    def stop(self) -> None:
        self.running = False

    def _kill_all(self) -> None:
        if self._program:
            # The broker was killed: its initial program would have nobody to talk to. Parents first: a script would go
            # on with its next line when what it waits for is killed.
            for pid in (self._program, *linux.descendants_of(self._program)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        for job in list(self.jobs.values()):
            job.abandon()
        self.subprocesses.abandon()
        self.folders.remove_all()
        # As a subreaper we inherit what tasks left behind.
        keeper.kill_children(2.0)


def _guarded(fn: Callable[[], None]) -> None:
    """Run `fn`; what it raises is told and costs nothing else."""
    try:
        fn()
    except Exception:
        traceback.print_exc(file=sys.stderr)


def run_agent(sock: socket.socket) -> None:
    """Be the agent of the broker at the other end of `sock`."""
    with contextlib.suppress(OSError):
        linux.become_subreaper()
    # The next job of a place waits for us, and the broker computes at length when there are many.
    linux.ask_for_short_slices()
    Agent(sock).run()


def spawn_agent(rundir: str = "", starter: int = 0, rank: int = 0) -> tuple[int, socket.socket]:
    """Fork the agent, under a keeper of its own where there is none; returns the pid of our child and the broker's end
    of the socket. Call before threads or a loop exist. `rank` is for who looks at processes; `rundir` is removed in the
    end if the broker, or process `starter`, could not do it.
    """
    ours, its = socket.socketpair()
    broker = os.getpid()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    code = 1
    try:
        ours.close()
        # Whoever types to `flux start` does not type to its jobs.
        null = os.open(os.devnull, os.O_RDONLY)
        if null:
            os.dup2(null, 0)
            os.close(null)
        code = _run_kept(its, rank)
        if rundir and _is_ours_to_remove(broker, starter):
            shutil.rmtree(rundir, ignore_errors=True)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _is_ours_to_remove(broker: int, starter: int) -> bool:
    """Whether nobody else is left to remove the run directory: the broker was killed, and `starter` with it."""
    if not starter:
        return True
    if os.getppid() == broker:
        return False
    deadline = time.monotonic() + _DYING
    while linux.is_running(starter):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _run_kept(sock: socket.socket, rank: int) -> int:
    """Be the agent, or its keeper; returns the exit code."""
    # A group of its own: what kills the broker's must leave us to clean up.
    os.setpgid(0, 0)
    if not keeper.is_kept():
        linux.become_subreaper()
        own = os.getpid()
        pid = os.fork()
        if pid:
            sock.close()
            linux.name_process(f"flux-keeper-{rank}", f"flux-keeper: of the tasks of rank {rank}")
            return os.waitstatus_to_exitcode(keeper.keep(pid)) & 0xFF
        keeper.follow(own)
    linux.name_process(f"flux-agent-{rank}", f"flux-agent: starts the tasks of rank {rank}")
    run_agent(sock)
    return 0
