"""The exec agents of a test instance, forked all at once by a process that has little else in its memory.

That is cheaper by half than a fork by each broker, and goes on while the brokers' own code is loaded. The process that
calls `fork_agents`, a keeper, becomes the parent of the agents; each ends when the broker that has its socket does.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import traceback

from . import keeper
from .birth import be_agent, close_input, prepare

_PID = struct.Struct("=i")


class Brood:
    """Agents that wait for their brokers. `pids` are theirs by rank, once `meet` has returned."""

    def __init__(self, nurse: int, told: int, sockets: list[int]) -> None:
        self.pids: list[int] = []
        self._nurse = nurse
        self._told = told
        self._sockets = sockets

    def meet(self) -> None:
        """Wait until all are there. Raises OSError if they are not."""
        with open(self._told, "rb") as told:
            data = told.read()
        _, status = os.waitpid(self._nurse, 0)
        self.pids = [pid for (pid,) in _PID.iter_unpack(data)]
        if len(self.pids) < len(self._sockets):
            number = os.waitstatus_to_exitcode(status)
            why = os.strerror(number) if number > 0 else f"killed by signal {-number}"
            raise OSError(number, f"the exec agent of rank {len(self.pids)} cannot be forked: {why}")

    def take(self, rank: int) -> tuple[int, socket.socket]:
        """In the process of the broker of `rank`: the pid of its agent, and our end of the socket."""
        own = self._sockets[rank]
        for fd in self._sockets[rank + 1 :]:
            os.close(fd)
        return self.pids[rank], _socket(own)

    def taken(self, rank: int) -> None:
        """In the process that forked the broker of `rank`, after those of lower ranks: it has its agent."""
        self._sockets[rank], fd = -1, self._sockets[rank]
        os.close(fd)

    def close(self) -> None:
        """Let those end that have no broker."""
        for rank, fd in enumerate(self._sockets):
            if fd != -1:
                self.taken(rank)

    def go_on(self, pid: int) -> None:
        """Somebody stopped process `pid`, as a task can do with its parent."""
        if pid in self.pids:
            keeper.have_go_on(pid)


def fork_agents(size: int, rundir: str = "") -> Brood:
    """The agents of ranks 0 to `size` - 1; `rundir` is what they remove when they and we are all that was not killed.
    Call before threads or a loop exist. Raises OSError.
    """
    starter = os.getpid()
    keeper.become_keeper()
    ours, theirs = [], []
    for _ in range(size):
        here, there = socket.socketpair()
        ours.append(here.detach())
        theirs.append(there.detach())
    told, tell = os.pipe()
    nurse = os.fork()
    if nurse:
        for fd in (*theirs, tell):
            os.close(fd)
        return Brood(nurse, told, ours)
    code = errno.EIO
    try:
        for fd in (*ours, told):
            os.close(fd)
        close_input()
        prepare()
        for rank, fd in enumerate(theirs):
            pid = os.fork()
            if not pid:
                for other in (*theirs[rank + 1 :], tell):
                    os.close(other)
                be_agent(_socket(fd), 0, rundir, starter, rank)
            os.close(fd)
            os.write(tell, _PID.pack(pid))
        code = 0
    except OSError as exc:
        code = exc.errno or code
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _socket(fd: int) -> socket.socket:
    # With all three, the kernel need not be asked what it is.
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
