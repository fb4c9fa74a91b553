"""The exec agents of a test instance: each is forked when its broker first has something for it to do.

A zygote does that, a process that is forked from `flux start` before what brokers need is loaded, and loads what agents
need meanwhile. It has the agents' ends of all sockets: one that can be read from is that of an agent to be born. So an
instance starts without agents, and one that is idle has few. The zygote outlives all brokers and agents, and removes
the run directory. It is the agents' reaper, and `flux start` is its own (`reaper`).
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

from . import linux, reaper

# Seconds to see what killed agents have left die.
_PATIENCE = 3.0


class Zygote:
    """The brokers' ends of the sockets, by rank, the pid of the process, and a pipe to it that ends with the last of
    them and with who forked them."""

    def __init__(self, pid: int, sockets: list[int], pipe: int) -> None:
        self.pid = pid
        self._sockets = sockets
        self._pipe = pipe

    def take(self, rank: int) -> socket.socket:
        """In the process of the broker of `rank`: its end of the socket to the agent that it has, or will have."""
        for fd in self._sockets[rank + 1 :]:
            os.close(fd)
        return _socket(self._sockets[rank])

    def taken(self, rank: int) -> None:
        """In the process that forked the broker of `rank`, after those of lower ranks: it has its end."""
        self._sockets[rank], fd = -1, self._sockets[rank]
        os.close(fd)

    def close(self) -> None:
        """There will be no more brokers."""
        for rank, fd in enumerate(self._sockets):
            if fd != -1:
                self.taken(rank)

    def wait(self, seconds: float) -> None:
        """When all brokers have ended: until the agents have, or `seconds` are over."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"x")
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.001)


def fork_zygote(size: int, rundir: str = "") -> Zygote:
    """For the agents of ranks 0 to `size` - 1; `rundir` is "" if it stays. Call before threads or a loop exist. Raises
    OSError."""
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
        # A group of its own: what kills that of the brokers leaves us to clean up.
        os.setpgid(0, 0)
        linux.become_subreaper()
        linux.name_process("flux-zygote", "flux-zygote: starts agents when they are needed")
        began = linux.began(os.getpid())
        _live(sockets)
        if rundir:
            # Somebody says that all brokers have ended; or all who could have ended themselves, and we see to the rest.
            if not os.read(life, 1):
                from . import leftovers

                leftovers.kill_nobodys_program(f"local://{rundir}/local-0", began)
            import shutil

            shutil.rmtree(rundir, ignore_errors=True)
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _live(sockets: list[int]) -> None:
    """Until every agent has ended, and every broker that has none, and what agents that were killed have left."""
    from .start import close_input, prepare

    close_input()
    prepare()
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    unborn = {fd: rank for rank, fd in enumerate(sockets)}
    for fd in unborn:
        poll.register(fd, select.POLLIN)
    agents: set[int] = set()
    while unborn or agents:
        for fd, _events in poll.poll():
            if fd == wake:
                os.read(wake, 4096)
                _see_to(agents)
                continue
            poll.unregister(fd)
            rank = unborn.pop(fd)
            if _is_wanted(fd):
                # One that cannot be forked has ended for its broker, which may have better luck later.
                with contextlib.suppress(OSError):
                    agents.add(_bear(fd, rank, (*unborn, wake, waker)))
            os.close(fd)
    reaper.kill_children(_PATIENCE)


def _is_wanted(fd: int) -> bool:
    """Whether there is something to read, and not just the end."""
    sock = _socket(fd)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False
    finally:
        sock.detach()


def _bear(fd: int, rank: int, others: tuple[int, ...]) -> int:
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


def _see_to(agents: set[int]) -> None:
    """Take note of those that have ended; those that were stopped, as a task can do with its parent, go on."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return
            if os.WIFSTOPPED(status):
                reaper.have_go_on(pid)
            else:
                agents.discard(pid)


def _socket(fd: int) -> socket.socket:
    # With all three, the kernel need not be asked what it is.
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
