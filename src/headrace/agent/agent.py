"""The exec agent: one small single-threaded process per broker that starts and watches the tasks of many jobs.

It is forked before the broker has threads or a loop, so spawning stays cheap, and the shell runs in it as a library: a
process per job would halve throughput. Replies of one turn leave in one write. When the broker's end of the socket
closes, the agent kills every process group it started and ends: `kill -9` of a broker leaves no orphans.
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

from ..shell.job import ShellJob
from ..shell.pmix.port import Port
from ..shell.tmpdir import Folders
from ..spec.os_error import with_class
from . import begun, fatal_signals, keeper, leftovers, linux
from .deputies import BUSY, IDLE, MINE, MOST, NOT_MINE, SETTLED, Deputies
from .environments import Read
from .handout import Handout
from .processes import Subprocesses
from .protocol import Op, Reader, frame

_READ = 1 << 18
# Reports that wait (seconds) for company: a short job's end follows its start at once, and each write wakes the broker.
_PATIENT = frozenset({"started", "event", "output", "input"})
_PATIENCE = 0.002
# A deputy runs when many jobs wait, and then it is the broker's processor time that is short.
_PATIENCE_OF_DEPUTIES = 0.006
_MOST_WAITING = 64
# Seconds until orphans are looked for, so that a burst of short jobs costs one look.
_SWEEP = 0.05
# Seconds that epoll is asked to wait at most: it takes no more than 24 days.
_LONGEST = 1e6
# The fields of a start that say where.
_PLACE = ("R", "nodeid", "nnodes", "rank", "hosts", "ranks")


class Agent:
    """The loop: descriptors, child processes and timers, each with its callback."""

    def __init__(self, sock: socket.socket, handout: Handout | None = None, index: int = 0) -> None:
        """The agent of the broker at the other end of `sock`, or with `handout` the deputy `index` of one."""
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
        self._handout = handout
        self._leavers: set[int] = set()
        self._traces: begun.Traces | None = None
        self._untraced = ""
        self._index = index
        # A deputy has none.
        self._is_deputy = handout is not None
        self._deputies = Deputies(self, self._serve_as_deputy, 0 if self._is_deputy else MOST)
        # Where a deputy has started jobs, while it is one place only.
        self._only_place: str | None = None
        self.stays = False
        self.folders = Folders()
        self.pmix = Port(self)
        self._environments = Read()
        # The job path of the instance whose jobs these are.
        self._instance = ""
        # What the broker said last of its initial program.
        self._program: Op = {"pid": 0}
        self._alone = False
        self._sweeping = False
        self.running = True
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.subprocesses = Subprocesses(self)

    # -- what jobs use

    def send(self, op: Op) -> None:
        """To the broker: at the end of this turn, or with what comes next if nobody acts on it."""
        self._out.append(op)
        # Nobody waits for a place that is taken already.
        if op["op"] not in _PATIENT and "heir" not in op:
            self._urgent = True
        elif len(self._out) == 1:
            self.after(_PATIENCE_OF_DEPUTIES if self._is_deputy else _PATIENCE, self._hurry)

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
            return
        if self._traces is not None:
            self._traces.add(heir["id"])
        if self._deputies.start(_place(job.op), heir):
            self.afterwards(partial(self.folders.give_back, job.tmpdir))
            return
        self._leavers.add(heir["id"])
        self.folders.leave(job.tmpdir)
        self._start(heir)
        self.folders.put_by()

    def handout_fd(self) -> int:
        """The descriptor that starts are taken from."""
        assert self._handout is not None
        return self._handout.fileno()

    def relay(self, frames: bytes) -> None:
        """Say what is packed already, such as a deputy's reports: after what we have said ourselves, which may be that
        it has the job."""
        if frames:
            self._pack()
            self._unsent += frames

    # -- the loop

    def run(self) -> None:
        """Until the broker's end closes or asks us to stop; then nothing we started is left."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        if keeper.is_followed():
            signal.signal(keeper.ORPHANED, lambda _number, _frame: self.stop() if keeper.is_orphaned() else None)
            if keeper.is_orphaned():
                # It ended before we listened.
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
            self._pack()
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                # The broker reads slower than we produce: waiting here is what slows the tasks' output down.
                select.select([], [self._sock], [], 1.0)
                continue
            except OSError:
                self._be_alone()
                return
            del self._unsent[:sent]

    def _pack(self) -> None:
        self._urgent = False
        if self._out:
            self._unsent += frame(self._out)
            self._out = []

    def _readable(self) -> None:
        try:
            size = self._sock.recv_into(self._in)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._be_alone()
            return
        for op in self._reader.feed(self._in[:size]):
            handler = _HANDLERS.get(op.get("op", ""))
            if handler is not None:
                _guarded(partial(handler, self, op))

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
                self._deputies.stopped(pid)
                continue
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
        jobs = self.jobs.values()
        between = self.subprocesses.latest(), next((job.begun for job in jobs), math.inf)
        leftovers.kill_orphans(self._pid, self.children, self._instance, lambda: [job.path for job in jobs], between)

    def kill_leftovers(self, job: ShellJob, signum: int, doomed: set[int]) -> None:
        """`signum` to the processes `doomed` and all that says that it belongs to `job`, wherever it went."""
        leftovers.kill_job(job.path, signum, doomed, self._pid)

    # -- operations

    def _start(self, op: Op) -> None:
        if self._is_deputy:
            self._stay_at(_place(op))
            if op.get("leaves"):
                self._leavers.add(op["id"])
        try:
            named = op.get("environment")
            job = ShellJob(self, op, None if named is None else self._environments.environment(named))
        except Exception as exc:
            note = with_class(exc)
            traceback.print_exc(file=sys.stderr)
            self.send({"op": "exception", "id": op["id"], "severity": 0, "type": "exec", "note": note})
            self.send({"op": "finish", "id": op["id"], "status": 1 << 8})
            return
        self._instance = job.path.rpartition("/")[0]
        self.jobs[op["id"]] = job
        try:
            job.start()
        except Exception as exc:
            # A bad jobspec costs its own job, never the agent.
            job.fail(with_class(exc), 1, trace=traceback.format_exc())

    def _stay_at(self, place: str) -> None:
        """Bound to its only place, a deputy need not move to where it starts the next task."""
        self.stays = self._only_place in (None, place)
        self._only_place = place if self.stays else "-"

    def _ahead(self, op: Op) -> None:
        """Start one of `jobs` where one of the jobs `after`, or one of themselves, ends."""
        if op["first"]:
            self._leavers.clear()
        self._trace(op["traces"])
        # The start of some of them may be on its way still.
        self._leavers.update(op["after"])
        if self._handout is None:
            self._handout = Handout()
        if op["first"] or op["after"]:
            self._deputies.pass_on({**op, "jobs": []})
        self._handout.add((job["id"], job["start"]) for job in op["jobs"])

    def _trace(self, path: str) -> None:
        if path not in ("", self._untraced) and (self._traces is None or self._traces.path != path):
            try:
                self._traces = begun.Traces(path, self._index)
            except (OSError, ValueError) as exc:
                # Somebody cleaned up. Jobs go on: only what is started as we are killed may be started again.
                self._traces, self._untraced = None, path
                print(f"flux-agent: no traces are left of starts: {with_class(exc)}", file=sys.stderr)

    def _recall(self, op: Op) -> None:
        self._leavers.clear()
        if self._is_deputy:
            self.relay(SETTLED)
        else:
            ids = list(self._handout.drain()) if self._handout is not None else []
            self._deputies.recall({"op": "recalled", "ids": ids, "by": op["by"]})

    def _heir_of(self, job: ShellJob) -> Op | None:
        """The start of the job that takes the place of one that is over."""
        if job.id not in self._leavers:
            return None
        self._leavers.discard(job.id)
        if self._handout is None or not self.running:
            return None
        heir = self._handout.take()
        if heir is None:
            return None
        heir.update((key, job.op[key]) for key in _PLACE)
        if heir["duration"]:
            end = time.time() + heir["duration"]
            heir["expiration"] = min(end, heir["expiration"] or end)
        return heir

    def _serve_as_deputy(self, sock: socket.socket, index: int) -> None:
        """In a process forked from this agent's: be its deputy."""
        with contextlib.suppress(OSError):
            linux.become_subreaper()
        linux.ask_for_short_slices()
        assert self._handout is not None
        self._handout.inherited()
        self.pmix.inherited()
        deputy = Agent(sock, self._handout, index + 1)
        if self._traces is not None:
            deputy._trace(self._traces.path)
        deputy.run()

    def _with_job(self, op: Op, fn: Callable[[ShellJob], None]) -> None:
        job = self.jobs.get(op["id"])
        if job is not None:
            fn(job)
        else:
            self._deputies.pass_on(op)

    def _job_op(self, op: Op) -> None:
        self._with_job(op, lambda job: _JOB_HANDLERS[op["op"]](job, op))

    def _kill(self, op: Op) -> None:
        self._with_job(op, lambda job: job.kill_all(op["signum"]) if op.get("all") else job.kill(op["signum"]))

    def _rpc(self, op: Op) -> None:
        job = self.jobs.get(op["id"])
        if job is not None:
            job.rpc(op)
        elif not self._deputies.pass_on(op) and not self._is_deputy:
            reply = {"op": "rpc-reply", "token": op["token"], "errnum": errno.ENOENT, "payload": None, "text": ""}
            self.send(reply)

    def _exec(self, op: Op) -> None:
        start = partial(self.subprocesses.start, op)
        if op.get("job", 0) in (0, *self.jobs) or not self._deputies.ask(op, start):
            start()

    def _asked(self, op: Op) -> None:
        """The agent does not know who of us has the job of what it was told."""
        mine = op["what"]["job"] in self.jobs
        if mine:
            self._exec(op["what"])
        self.relay(MINE if mine else NOT_MINE)

    def _idle(self, _op: Op) -> None:
        self.relay(BUSY if self.jobs or self.subprocesses else IDLE)

    def _with_process(self, op: Op, fn: Callable[[Op], None]) -> None:
        if self.subprocesses.has(op["handle"]) or not self._deputies.pass_on(op):
            fn(op)

    def _program_runs(self, op: Op) -> None:
        self._program = op

    def stop(self) -> None:
        self.running = False

    def _be_alone(self) -> None:
        """Nobody is at the other end of our socket any more."""
        self._alone = True
        self.stop()

    def _hear_the_rest(self) -> None:
        """What the broker said of its program before it was killed: that it was we may know by other means."""
        try:
            while size := self._sock.recv_into(self._in):
                for op in self._reader.feed(self._in[:size]):
                    if op.get("op") == "program":
                        self._program_runs(op)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._alone = True

    def _kill_all(self) -> None:
        self._hear_the_rest()
        if self._alone:
            # The broker was killed: its initial program would have nobody to talk to.
            leftovers.kill_program(self._program)
        for job in list(self.jobs.values()):
            job.abandon()
        self.subprocesses.abandon()
        self._deputies.end()
        self.folders.remove_all()
        # As a subreaper we inherit what tasks left behind.
        keeper.kill_children(2.0)


_JOB_HANDLERS: dict[str, Callable[[ShellJob, Op], None]] = {
    "expiration": lambda job, op: job.set_expiration(op["expiration"]),
    "peer": lambda job, op: job.from_peer(op["from"], op["data"]),
    "barrier": lambda job, op: job.barrier_done(op["seq"], op["kvs"]),
}
# One for all, not a table of each agent: to bind what none of them needs touches memory in each that is forked.
_HANDLERS: dict[str, Callable[[Agent, Op], None]] = {
    **dict.fromkeys(_JOB_HANDLERS, Agent._job_op),
    "start": Agent._start,
    "ahead": Agent._ahead,
    "recall": Agent._recall,
    "kill": Agent._kill,
    "rpc": Agent._rpc,
    "ask": Agent._asked,
    "idle": Agent._idle,
    "exec": Agent._exec,
    "exec-write": lambda agent, op: agent._with_process(op, agent.subprocesses.write),
    "exec-hold": lambda agent, op: agent._with_process(op, agent.subprocesses.hold),
    "exec-kill": lambda agent, op: agent._with_process(op, agent.subprocesses.kill),
    "program": Agent._program_runs,
    "shutdown": lambda agent, _op: agent.stop(),
}


def _place(op: Op) -> str:
    """The cores of a start."""
    cores: str = op["R"]["execution"]["R_lite"][0]["children"].get("core", "")
    return cores


def _guarded(fn: Callable[[], None]) -> None:
    """Run `fn`; what it raises is told and costs nothing else."""
    try:
        fn()
    except Exception:
        traceback.print_exc(file=sys.stderr)
