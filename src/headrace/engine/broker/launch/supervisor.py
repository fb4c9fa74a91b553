"""The supervisor of `flux start --test-size=N`: starts brokers, forwards signals, waits for the end.

If a broker fails, it ends the others. The caller defines how a broker is started: as a fork of this process, or as a
program (`many.py`). The same loop serves the clients of the service `start` (`start_service.py`), which kill and
restart brokers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.agent import reaper
from headrace.engine.broker import signals
from headrace.engine.broker.launch.options import LaunchOptions
from headrace.engine.broker.state import machine

if TYPE_CHECKING:
    from headrace.engine.agent.zygote import Zygote
    from headrace.engine.broker.launch.start_service import StartService

# Seconds that followers may outlive their leader before they get SIGTERM, and then until they get SIGKILL.
_GRACE, _STUCK = 1.0, 4.0
# Seconds until an instance ends after a follower failed, unless `--test-exit-timeout` is given.
_EXIT_TIMEOUT = 20.0
# The number of attempts to query a leader that does not respond.
_TRIES = 10


class Supervisor:
    """The brokers of one test instance. `start(rank)` starts one and returns its pid.

    A follower that fails ends the instance: the remaining brokers get SIGKILL after `exit_timeout` seconds (20 by
    default), unless that follower was restarted. Followers that outlive their leader get SIGTERM and then SIGKILL, or
    SIGKILL after `exit_timeout` if that is given. The result is the largest exit code, counting only the last broker of
    each rank.

    With the exit mode "leader", the instance continues without a failed follower, and the result is the leader's exit
    code. In both modes, a follower that fails before the quorum is reached ends the instance at once, with its exit
    code: otherwise the leader might wait for it forever. This does not apply if an exit timeout is given, or if only
    the leader is started.
    """

    def __init__(
        self, options: LaunchOptions, rundir: str, quorum: int, start: Callable[[int], int], agents: Zygote | None
    ) -> None:
        self.size = options.size
        self._rundir = rundir
        self._quorum = quorum
        self._start = start
        self._agents = agents
        self._verbose = options.start_verbose
        self._any_counts = options.exit_mode != "leader"
        self._exit_timeout = options.exit_timeout
        self._waits_for_all = options.start_mode != "leader" and self._exit_timeout is None
        # Ranks by pid, and exit codes by rank.
        self._ranks: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        # Exit codes of brokers that count for the result, by rank. `_failed` takes precedence: the exit code of a
        # failed start.
        self._results: dict[int, int] = {}
        self._failed = 0
        self._leader_killed = False
        # The time at which the remaining brokers are signalled, and the signal.
        self._deadline: float | None = None
        self._next_signal = signal.SIGKILL
        self._signalled = False
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._listener: socket.socket | None = None
        self._service: StartService | None = None
        self._wakeup = self._waker = -1
        # Called with the rank of each broker that has ended.
        self.on_end: Callable[[int], None] = lambda _rank: None

    # -- actions of the service `start`

    def pid_of(self, rank: int) -> int:
        return next((pid for pid, other in self._ranks.items() if other == rank), -1)

    def exit_code_of(self, rank: int) -> int | None:
        return self._codes.get(rank)

    def kill(self, rank: int, signum: int) -> None:
        """Signal the broker of `rank`. Raises OSError."""
        os.kill(self.pid_of(rank), signum)

    def restart(self, rank: int) -> None:
        """Start the broker of `rank`. Raises OSError, with ESHUTDOWN if the instance is ending."""
        if self._signalled:
            raise OSError(errno.ESHUTDOWN, "the instance ends")
        self.start(rank)
        self._results.pop(rank, None)
        if rank == 0:
            self._leader_killed = False
        if 0 not in self._results and not any(self._results.values()):
            self._deadline = None

    # -- life

    def listen(self) -> None:
        """Create the socket of the service `start` in the run directory, and set FLUX_START_URI.

        Raises OSError.
        """
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = f"{self._rundir}/start"
        with contextlib.suppress(FileNotFoundError):
            # The socket of an earlier instance in this run directory.
            os.unlink(path)
        self._listener.bind(path)
        self._listener.listen()
        os.environ["FLUX_START_URI"] = f"local://{path}"

    def start(self, rank: int) -> None:
        """Start the broker of `rank`. Raises OSError."""
        self._ranks[self._start(rank)] = rank

    def leave(self) -> None:
        """Release the supervisor's sockets in a process that was forked to be a broker."""
        if self._listener is not None:
            self._listener.close()
        if self._wakeup != -1:
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup)
            os.close(self._waker)
        if self._service is not None:
            self._service.close_all()

    def run(self) -> int:
        """Wait until all brokers have ended; returns the exit code of the instance."""
        self._install_handlers()
        assert self._listener is not None
        self.watch(self._listener.fileno(), self._accept)
        self._reap()
        while self._ranks:
            for fd, _events in self._poll.poll(self._poll_timeout()):
                # A callback called earlier in this loop may have closed the descriptor.
                readable = self._readers.get(fd)
                if readable is not None:
                    readable()
            self._reap()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._signal_remaining()
        self._kill_strays()
        # The run directory may be kept.
        with contextlib.suppress(OSError):
            os.unlink(f"{self._rundir}/start")
        return self._failed or max(self._results.values(), default=0)

    def watch(self, fd: int, readable: Callable[[], None] | None) -> None:
        """Register `readable()` for a descriptor; None removes it."""
        if readable is None:
            del self._readers[fd]
            self._poll.unregister(fd)
        else:
            self._readers[fd] = readable
            self._poll.register(fd, select.POLLIN)

    def _install_handlers(self) -> None:
        self._wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._wakeup, self._drain)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._forward)
        if signal.SIGINT in signal.sigpending():
            # Sent by a terminal, perhaps before there was a leader. Ignoring the signal after this discards it.
            self._forward(signal.SIGINT, None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock()

    def _drain(self) -> None:
        os.read(self._wakeup, 4096)

    def _forward(self, number: int, _frame: Any) -> None:
        leader = self.pid_of(0)
        if leader != -1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, number)

    def _poll_timeout(self) -> float | None:
        """The milliseconds until the next deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000

    def _accept(self) -> None:
        if self._service is None:
            from headrace.engine.broker.launch.start_service import StartService

            self._service = StartService(self, self.watch, self._verbose)
        assert self._listener is not None
        self._service.accept(self._listener)

    def _reap(self) -> None:
        """Handle all processes that have ended or were stopped since the last call."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if not os.WIFSTOPPED(status):
                rank = self._ranks.pop(pid, None)
                if rank is not None:
                    self._ended(rank, pid, os.waitstatus_to_exitcode(status))
            elif pid not in self._ranks and self._agents is not None:
                # The zygote, or an agent that has outlived it: tasks can stop processes of their user.
                reaper.continue_stopped(pid)

    def _ended(self, rank: int, pid: int, code: int) -> None:
        """Handle the end of the broker of `rank` with an exit code, or by a signal if `code` is negative."""
        is_lost = bool(rank and code and self.pid_of(0) != -1 and len(self._ranks) < self._quorum)
        too_few = self._waits_for_all and is_lost and not (self._signalled or self._failed or self._has_run())
        shell_code = code if code >= 0 else 128 - code
        self._codes[rank] = shell_code
        if code and not self._signalled and self.size > 1:
            how = f"exited with rc={code}" if code > 0 else f"killed by signal {-code}"
            print(f"flux-start: {rank} (pid {pid}) {how}", file=sys.stderr, flush=True)
        if too_few:
            self._failed = shell_code
            text = f"{self._quorum} brokers are needed and {len(self._ranks)} are left: ending the instance"
            print(f"flux-start: {text}", file=sys.stderr)
            self._forward(signal.SIGTERM, None)
        if rank == 0:
            self._leader_killed = code < 0
        if rank == 0 or (self._any_counts and not (self._signalled and self._exit_timeout is None)):
            self._results[rank] = shell_code
        self._set_deadline_of_others(rank, code)
        if code and self._agents is not None:
            # If the broker's agent was killed with it, the agent's tasks are children of this process now.
            reaper.kill_strays(self._ranks, f"local://{self._rundir}/local-{rank}")
        if self._service is not None:
            self._service.ended(rank, shell_code)
        self.on_end(rank)

    def abort(self, rank: int, code: int, text: str) -> None:
        """End all brokers at the request of one of them."""
        print(f"flux-start: {rank}: PMI abort: {text}", file=sys.stderr, flush=True)
        self._failed = self._failed or code & 0xFF or 1
        self._signal_remaining()

    def _set_deadline_of_others(self, rank: int, code: int) -> None:
        """Set the deadline of the other brokers after the broker of `rank` has ended with `code`.

        A follower that ends with success belongs to an instance that is ending, so its leader will follow.
        """
        if rank == 0 and self._exit_timeout is None:
            self._signal_within(_GRACE, signal.SIGTERM)
        elif rank == 0 or (code and self._any_counts):
            timeout = _EXIT_TIMEOUT if self._exit_timeout is None else self._exit_timeout
            if rank and timeout and self.pid_of(0) != -1 and not (self._signalled or self._failed):
                text = f"the instance ends in {timeout:g} s; with --test-exit-mode=leader it would continue"
                print(f"flux-start: {text}", file=sys.stderr, flush=True)
            self._signal_within(timeout, signal.SIGKILL)

    def _signal_within(self, seconds: float, number: signal.Signals) -> None:
        """Schedule a signal to the remaining brokers. The earliest of several times applies."""
        deadline = time.monotonic() + seconds
        if not self._signalled and (self._deadline is None or deadline < self._deadline):
            self._deadline, self._next_signal = deadline, number

    def _signal_remaining(self) -> None:
        """Signal the remaining brokers, which have not met the leader or cannot leave."""
        number, self._next_signal = self._next_signal, signal.SIGKILL
        self._signalled = True
        for pid in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        # SIGKILL needs no repetition, but a broker may have been started in the meantime.
        self._deadline = time.monotonic() + _STUCK

    def _has_run(self) -> bool:
        """True if the leader has reached its quorum, or has ended."""
        from headrace.wire.client.handle import Handle

        leader = self.pid_of(0)
        for _ in range(_TRIES):
            if os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            try:
                handle = Handle(f"local://{self._rundir}/local-0")
                reached = handle.rpc("state-machine.get").get(_GRACE)["state"]
                handle.close()
            except OSError:
                # The leader does not listen yet, or not any more.
                time.sleep(_GRACE / _TRIES)
            else:
                return not machine.before(reached, "run")
        return False

    def _kill_strays(self) -> None:
        """Clean up after all brokers have ended."""
        if self._agents is None:
            return
        if self._leader_killed:
            # Kill the leader's initial program first, and after the zygote's end the processes inherited from a killed
            # zygote.
            reaper.kill_strays((self._agents.pid,))
        self._agents.wait(_STUCK)
        if self._leader_killed:
            reaper.kill_strays(())
