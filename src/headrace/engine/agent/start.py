"""The start of an agent: the broker forks a reaper, which forks the agent.

Both set their process names. (The agents of a test instance are forked by its zygote, which is their reaper.)

The leader's agent is forked at once, because it starts the initial program. A follower's agent is forked for the first
operation of its broker, so an instance whose jobs use few nodes has no cost for the agents of the others.

An agent that replaces a dead one is not forked, since the broker has threads by then. It is a new Python process that
runs this module.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from headrace.engine.agent import reaper
from headrace.engine.process import linux
from headrace.engine.process.spawn import raise_file_limit, running, spawn

from .protocol import frame

if TYPE_CHECKING:
    from headrace.engine.process.user import User

# Seconds to wait for the end of `starter`, if it was killed together with the broker.
_STARTER_EXIT_TIMEOUT = 0.5
# The descriptor of the socket in an agent that is a new process.
_SOCKET = 3


def spawn_agent(rundir: str = "", starter: int = 0, rank: int = 0) -> tuple[int, socket.socket]:
    """Fork the agent, or its reaper if none is above this process.

    Returns the child's pid and the broker's end of the socket. Call before threads or a loop exist. `rank` is part of
    the process names. `starter` is the pid of the `flux start` that removes `rundir` (0: none). The agent removes it at
    its end if broker and starter were killed before they could.
    """
    ours, its = socket.socketpair()
    broker = os.getpid()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    ours.close()
    be_agent(its, broker, rundir, starter, rank)


def spawn_another(rundir: str, starter: int, rank: int) -> tuple[int, socket.socket]:
    """Like `spawn_agent`, but may be called at any time, and always with a new reaper. Raises OSError."""
    ours, its = socket.socketpair()
    with its:
        values = (_SOCKET, os.getpid(), rundir, starter, rank)
        argv = running(__name__, *map(str, values))
        pid = spawn(argv, os.environ, [(its.fileno(), _SOCKET)])
    return pid, ours


def be_agent(its: socket.socket, broker: int, rundir: str, starter: int, rank: int) -> NoReturn:
    """Run the agent of `rank`, and exit.

    `broker` is the pid of the broker, or 0 for an agent that a zygote forks: such an agent has the zygote as its
    reaper, and sends its pid to the broker.
    """
    code = 1
    # The start time distinguishes the broker from a later process with the same pid.
    born = linux.began(broker) if broker else 0
    try:
        if broker:
            close_input()
        else:
            # If the broker has ended in the meantime, the agent's first read detects it.
            with contextlib.suppress(BrokenPipeError):
                its.sendall(frame([{"op": "hello", "pid": os.getpid()}]))
        code = _be_reaper_or_agent(its, rank)
        if rundir and _is_ours_to_remove(broker, born, starter):
            shutil.rmtree(rundir, ignore_errors=True)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def close_input() -> None:
    """Make /dev/null the standard input, so that jobs do not read the input of `flux start`."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null:
        os.dup2(null, 0)
        os.close(null)


def _is_ours_to_remove(broker: int, born: int, starter: int) -> bool:
    """True if the broker and `starter` were killed, so that this process must remove the run directory."""
    if linux.began(broker) == born and not linux.is_ending(broker):
        return False
    deadline = time.monotonic() + _STARTER_EXIT_TIMEOUT
    while starter and linux.is_running(starter):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _be_reaper_or_agent(sock: socket.socket, rank: int) -> int:
    """Run as the agent, or without a reaper above this process, as its reaper; returns the exit code.

    A reaper forks the agent, and waits for its end.
    """
    # A new process group, so that a signal to the broker's group does not reach this process, which must clean up.
    os.setpgid(0, 0)
    if not reaper.reapers():
        linux.become_subreaper()
        linux.name_process(f"flux-reaper-{rank}", f"flux-reaper: of the tasks of rank {rank}")
        reaper.ignore_signals()
        if rank and not _is_wanted(sock):
            return 0
        own = os.getpid()
        pid = os.fork()
        if pid:
            sock.close()
            return os.waitstatus_to_exitcode(reaper.keep(pid)) & 0xFF
        reaper.follow(own)
    linux.name_process(f"flux-agent-{rank}", f"flux-agent: starts the tasks of rank {rank}")
    run_agent(sock)
    return 0


def _is_wanted(sock: socket.socket) -> bool:
    """Wait for the broker's first operation. False if the broker ends without one."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


_prepared = False


def prepare() -> None:
    """Set up the process of an agent, once for all agents that are forked from it."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    # Imported here, because a reaper and a broker do not need the shell, and a follower may never have a job.
    from . import agent as _agent  # noqa: F401 - loaded before the fork

    # Almost all objects of jobs are freed by reference counting, so search for cycles rarely.
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    for number in (signal.SIGCHLD, reaper.ORPHANED):
        # A handler without an action: SIG_IGN would discard the signal, and children would inherit it.
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker blocks these signals, and a fork inherits the mask.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def run_agent(sock: socket.socket, user: User | None = None) -> None:
    """Run as the agent of the broker at the other end of `sock`.

    With `user`, run as the shell of one job of that user, a guest.
    """
    prepare()
    from .agent import Agent

    with contextlib.suppress(OSError):
        linux.become_subreaper()
    # The resources of an ended job are unused until this process runs, and the broker may keep the CPU for long.
    linux.ask_for_short_slices()
    Agent(sock, user).run()


if __name__ == "__main__":
    raise_file_limit()
    _fd, _broker, _rundir, _starter, _rank = sys.argv[1:]
    be_agent(socket.socket(fileno=int(_fd)), int(_broker), _rundir, int(_starter), int(_rank))
