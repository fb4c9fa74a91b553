"""The reaper: an ancestor of exec agents that outlives them only to kill what they left.

An agent that dies of `kill -9` cannot clean up, and its broker never owned those processes. The reaper is a subreaper:
what an agent leaves becomes its child, whatever process group or session it made for itself, so no journal of process
groups is needed and none can be stale. A broker started alone puts one between itself and its agent. A test instance
has one for all its agents, the zygote, and one for that, the process that forked its brokers. (One for each of 64
brokers would cost a fifth of their boot.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Container

from . import linux

# What an agent gets when its own reaper is gone. INT, TERM and HUP reach whole groups and must not end it.
ORPHANED = signal.SIGUSR1
_PATIENCE = 5.0

_reapers: tuple[int, ...] = ()
_followed = 0


def become_reaper() -> None:
    """Make this process the reaper of all agents forked below it. Raises OSError."""
    global _reapers
    linux.become_subreaper()
    _reapers = (os.getpid(),)


def share_with(pid: int) -> None:
    """Process `pid`, forked from this reaper, keeps the agents below it."""
    global _reapers
    _reapers = (pid, *_reapers)


def leave_agents_to_others() -> None:
    """Agents forked from this process on have reapers of their own."""
    global _reapers
    _reapers = ()


def reapers() -> tuple[int, ...]:
    """Those whom processes of an agent can come to when it dies; none if agents are to have reapers of their own."""
    return _reapers


def kill_children(patience: float, wanted: Callable[[int], bool] = lambda _pid: True, parent: int = 0) -> bool:
    """Kill our children that are `wanted`, and theirs as they become ours; False when some are left after `patience`
    seconds. The dead ones are collected. Those of another `parent`, who collects them itself, are killed likewise.
    """
    return _kill_all(
        lambda: [pid for pid in linux.children_of(parent or os.getpid()) if wanted(pid)], patience, not parent
    )


def _kill_all(find: Callable[[], list[int]], patience: float, ours: bool) -> bool:
    """Kill what `find()` returns until that is nothing; `ours` says whether they are our children, to be collected."""
    deadline = time.monotonic() + patience
    while True:
        mine = find()
        if not mine:
            return True
        if time.monotonic() > deadline:
            return False
        left = not ours
        for pid in mine:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                left |= os.waitpid(pid, os.WNOHANG)[0] == 0
        if left:
            time.sleep(0.002)


def kill_strays(known: Container[int], uri: str = "") -> bool:
    """For a reaper of many, when a broker ended: kill our children not in `known`; with `uri` only tasks of jobs of the
    broker at this address, whoever of us they have come to. False when some could not be killed."""

    def is_stray(pid: int) -> bool:
        return pid not in known and (not uri or _is_task(pid, uri))

    parents = [each for each in _reapers if each != os.getpid()] if uri else []
    return all([kill_children(_PATIENCE, is_stray, parent) for parent in (*parents, 0)])


def _is_task(pid: int, uri: str) -> bool:
    env = linux.environment_of(pid)
    return env.get("FLUX_URI") == uri and "FLUX_JOB_ID" in env


def kill_remains(agent: int, reapers: Collection[int], uri: str) -> None:
    """For the broker at `uri`, whose agent has died: wait until nothing is left of that and its tasks.

    `agent` is our child, the agent's own reaper, who sees to all that; or with `reapers`, who have others to keep as
    well, it is the agent itself, another's child, or 0 if it was never born. Then we kill the tasks that came to one
    of the reapers. If a reaper was killed as well, those may be anybody's children: they are known by their
    environment, from which `flux proxy` and initial programs take the job.
    """
    killed = False
    try:
        if agent:
            killed = os.WIFSIGNALED(os.waitpid(agent, 0)[1])
    except ChildProcessError:
        while linux.is_running(agent):
            time.sleep(0.002)
    for reaper in reapers:
        kill_children(_PATIENCE, lambda pid: _is_task(pid, uri), reaper)
    if killed or not all(linux.is_running(reaper) for reaper in reapers):
        _kill_all(lambda: [pid for pid in linux.processes() if _is_task(pid, uri)], _PATIENCE, False)


def ignore_signals() -> None:
    """Have this process, and the agent that it forks, outlive what ends a whole process group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker that forked us holds them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def keep(agent: int) -> int:
    """Wait for process `agent`, then kill what it left. Returns its wait status."""
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            if pid == agent:
                have_go_on(agent)
        elif pid == agent:
            break
    kill_children(_PATIENCE)
    return status


def have_go_on(pid: int) -> None:
    """A process of ours was stopped, as a task can do with its parent: all jobs of the node would stand still."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def follow(reaper: int) -> None:
    """In the agent: be told when process `reaper` ends. Raises OSError when it has ended already."""
    global _followed
    _followed = reaper
    linux.die_with_parent(ORPHANED)
    if os.getppid() != reaper:
        raise ProcessLookupError("the exec agent's reaper is gone")


def is_followed() -> bool:
    """In the agent: whether it has a reaper of its own."""
    return _followed != 0


def is_orphaned() -> bool:
    """In the agent: whether its own reaper is gone. A task may send the signal that says so, too."""
    return _followed not in (0, os.getppid())
