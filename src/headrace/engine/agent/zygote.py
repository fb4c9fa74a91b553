"""The zygote of a test instance: the process that forks an exec agent when its broker first needs it.

The zygote is forked from `flux start` before the modules of brokers are imported, and imports those of agents. It has
the agents' ends of all sockets. When a socket becomes readable, it forks the agent of that socket. So an instance
starts without agents, and an idle instance has few. The zygote outlives all brokers and agents, and removes the run
directory. It is the reaper of the agents, and `flux start` is the reaper of the zygote (`reaper`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import NoReturn

from headrace.engine.agent import reaper
from headrace.engine.process import linux

# Seconds to wait for the end of processes of dead agents that were killed.
_KILL_TIMEOUT = 3.0


class Zygote:
    """The handle of a zygote: its pid, the brokers' ends of the sockets by rank, and a pipe to it.

    The zygote reads an end of file from the pipe once all brokers, and the process that forked them, have ended.
    """

    def __init__(self, pid: int, sockets: list[int], pipe: int) -> None:
        self.pid = pid
        self._sockets = sockets
        self._pipe = pipe

    def take(self, rank: int) -> socket.socket:
        """In the broker of `rank`: its end of the socket to its agent, which may not have been forked yet."""
        for fd in self._sockets[rank + 1 :]:
            os.close(fd)
        return _socket(self._sockets[rank])

    def taken(self, rank: int) -> None:
        """Close the broker's end, in the process that has forked the broker of `rank` after all lower ranks."""
        self._sockets[rank], fd = -1, self._sockets[rank]
        os.close(fd)

    def close(self) -> None:
        """Close the ends of brokers that were not forked."""
        for rank, fd in enumerate(self._sockets):
            if fd != -1:
                self.taken(rank)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the agents, `seconds` at most, after the end of all brokers."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"x")
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.001)


def fork_zygote(size: int, rundir: str = "") -> Zygote:
    """Fork the zygote for ranks 0 to `size` - 1. It removes `rundir` unless that is "".

    Call before threads or a loop exist. Raises OSError.
    """
    reaper.become_reaper()
    ours, theirs = [], []
    for _ in range(size):
        here, there = socket.socketpair()
        ours.append(here.detach())
        theirs.append(there.detach())
    life, pipe = os.pipe()
    pid = os.fork()
    if not pid:
        for fd in (*ours, pipe):
            os.close(fd)
        _be_zygote(theirs, rundir, life)
    reaper.share_with(pid)
    for fd in (*theirs, life):
        os.close(fd)
    return Zygote(pid, ours, pipe)


def _be_zygote(sockets: list[int], rundir: str, life: int) -> NoReturn:
    code = 1
    try:
        # A new process group, so that a signal to the brokers' group does not reach this process, which must clean up.
        os.setpgid(0, 0)
        linux.become_subreaper()
        linux.name_process("flux-zygote", "flux-zygote: starts agents when they are needed")
        began = linux.began(os.getpid())
        _serve(sockets)
        if rundir:
            # A byte means that all brokers have ended. End of file means that all processes that could send it are
            # dead.
            if not os.read(life, 1):
                from . import leftovers

                leftovers.kill_unknown_program(f"local://{rundir}/local-0", began)
            import shutil

            shutil.rmtree(rundir, ignore_errors=True)
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _serve(sockets: list[int]) -> None:
    """Fork agents until all agents, and all brokers without one, have ended.

    Then kill the remaining processes.
    """
    from .start import close_input, prepare

    close_input()
    prepare()
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    waiting = {fd: rank for rank, fd in enumerate(sockets)}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    agents: set[int] = set()
    while waiting or agents:
        for fd, _events in poll.poll():
            if fd == wake:
                os.read(wake, 4096)
                _collect(agents)
                continue
            poll.unregister(fd)
            rank = waiting.pop(fd)
            if _is_wanted(fd):
                # If the fork fails, the broker sees the end of its socket and starts another agent.
                with contextlib.suppress(OSError):
                    agents.add(_fork_agent(fd, rank, (*waiting, wake, waker)))
            os.close(fd)
    reaper.kill_children(_KILL_TIMEOUT)


def _is_wanted(fd: int) -> bool:
    """True if the socket has data, not just an end of file."""
    sock = _socket(fd)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False
    finally:
        sock.detach()


def _fork_agent(fd: int, rank: int, others: tuple[int, ...]) -> int:
    """Fork an agent; returns its pid."""
    from .start import be_agent

    pid = os.fork()
    if not pid:
        try:
            signal.set_wakeup_fd(-1)
            for other in others:
                os.close(other)
            be_agent(_socket(fd), 0, "", 0, rank)
        finally:
            os._exit(1)
    return pid


def _collect(agents: set[int]) -> None:
    """Collect agents that have ended, and continue stopped agents: a task can stop its parent."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return
            if os.WIFSTOPPED(status):
                reaper.continue_stopped(pid)
            else:
                agents.discard(pid)


def _socket(fd: int) -> socket.socket:
    # With explicit family, type and protocol, socket() makes no system calls to find them.
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
