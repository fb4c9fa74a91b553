"""The keeper: an ancestor of exec agents that outlives them only to kill what they left.

An agent that dies of `kill -9` cannot clean up, and its broker never owned those processes. The keeper is a subreaper:
what an agent leaves becomes its child, whatever process group or session it made for itself, so no journal of process
groups is needed and none can be stale. A test instance has one keeper, the process that forked its brokers; a broker
started alone puts one between itself and its agent. (One for each of 64 brokers would cost a fifth of their boot.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container

from . import linux

# What an agent gets when its own keeper is gone. INT, TERM and HUP reach whole groups and must not end it.
ORPHANED = signal.SIGUSR1
_PATIENCE = 5.0

_keeping = False


def become_keeper() -> None:
    """Make this process the keeper of all agents forked below it. Raises OSError."""
    global _keeping
    linux.become_subreaper()
    _keeping = True


def is_kept() -> bool:
    """True when this process or one it was forked from is a keeper."""
    return _keeping


def kill_children(patience: float, wanted: Callable[[int], bool] = lambda _pid: True) -> bool:
    """Kill our children that are `wanted`, and theirs as they become ours; False when some are left after `patience`
    seconds. The dead ones are collected."""
    deadline = time.monotonic() + patience
    while True:
        mine = [pid for pid in linux.children_of(os.getpid()) if wanted(pid)]
        if not mine:
            return True
        if time.monotonic() > deadline:
            return False
        left = False
        for pid in mine:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                left |= os.waitpid(pid, os.WNOHANG)[0] == 0
        if left:
            time.sleep(0.002)


def kill_strays(known: Container[int], uri: str = "") -> bool:
    """For a keeper of many, when a broker ended: kill our children not in `known`; with `uri` only tasks of jobs of the
    broker at this address. False when some could not be killed."""

    def wanted(pid: int) -> bool:
        if pid in known:
            return False
        if not uri:
            return True
        env = linux.environment_of(pid)
        return env.get("FLUX_URI") == uri and "FLUX_JOB_ID" in env

    return kill_children(_PATIENCE, wanted)


def keep(agent: int) -> int:
    """Wait for process `agent`, then kill what it left. Returns its wait status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker that forked us holds them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            break
    kill_children(_PATIENCE)
    return status


def follow(keeper: int) -> None:
    """In the agent: be told when process `keeper` ends. Raises OSError when it has ended already."""
    linux.die_with_parent(ORPHANED)
    if os.getppid() != keeper:
        raise ProcessLookupError("the exec agent's keeper is gone")
