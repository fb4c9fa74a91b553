"""The reaper: an ancestor of exec agents that outlives them and kills their remaining processes.

An agent killed by SIGKILL cannot clean up, and its processes are not children of its broker. The reaper is a child
subreaper (prctl(2)): the processes of a dead agent become its children, regardless of their process group or session,
so no record of process groups is needed. A broker that is started alone has a reaper between itself and its agent. In a
test instance, the zygote is the reaper of all agents, and the process that forked the brokers is the reaper of the
zygote. (A reaper for each of 64 brokers would cost a fifth of their boot.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Container

from headrace.engine.process import linux

# The signal that an agent gets when its reaper ends. An agent ignores INT, TERM and HUP, which may be sent to whole
# process groups.
ORPHANED = signal.SIGUSR1
# Seconds to wait for killed processes to end.
_KILL_TIMEOUT = 5.0
# Prefixes of the command names of reapers, for nested instances that are tasks of this one.
_REAPERS = ("flux-reaper-", "flux-zygote")

_reapers: tuple[int, ...] = ()
_followed = 0


def become_reaper() -> None:
    """Make this process the reaper of all agents forked below it. Raises OSError."""
    global _reapers
    linux.become_subreaper()
    _reapers = (os.getpid(),)


def share_with(pid: int) -> None:
    """Register process `pid`, a child of this reaper, as the reaper of the agents below it."""
    global _reapers
    _reapers = (pid, *_reapers)


def leave_agents_to_others() -> None:
    """Let agents that this process forks have their own reapers."""
    global _reapers
    _reapers = ()


def reapers() -> tuple[int, ...]:
    """The pids of the reapers that may inherit processes of a dead agent.

    Empty if each agent has its own reaper.
    """
    return _reapers


def kill_children(timeout: float, wanted: Callable[[int], bool] = lambda _pid: True, parent: int = 0) -> bool:
    """Kill and wait for the `wanted` children of this process, and descendants that become its children.

    With another `parent`, that process's children are killed, and it waits for them. False if processes remain after
    `timeout` seconds.
    """
    return _kill_all(
        lambda: [pid for pid in linux.children_of(parent or os.getpid()) if wanted(pid)], timeout, not parent
    )


def _kill_all(find: Callable[[], list[int]], timeout: float, ours: bool) -> bool:
    """Kill the processes of `find()` until there are none.

    If `ours`, they are children of this process, which waits for them. A reaper ends on its own once its broker is
    dead, after removing the broker's run directory. It is killed only after half of the timeout.
    """
    now = time.monotonic()
    deadline, patient_until = now + timeout, now + timeout / 2
    while True:
        mine = find()
        if not mine:
            return True
        if time.monotonic() > deadline:
            return False
        remaining = not ours
        for pid in mine:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if time.monotonic() > patient_until or not linux.name_of(pid).startswith(_REAPERS):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                remaining |= os.waitpid(pid, os.WNOHANG)[0] == 0
        if remaining:
            time.sleep(0.002)


def kill_strays(known: Container[int], uri: str = "") -> bool:
    """In a reaper of several agents: kill its children that are not `known`.

    With `uri`, kill only tasks of the broker at this URI, whichever reaper has inherited them. False if some did not
    end.
    """

    def is_stray(pid: int) -> bool:
        return pid not in known and (not uri or _is_task(pid, uri))

    parents = [each for each in _reapers if each != os.getpid()] if uri else []
    return all([kill_children(_KILL_TIMEOUT, is_stray, parent) for parent in (*parents, 0)])


def _is_task(pid: int, uri: str) -> bool:
    env = linux.environment_of(pid)
    return env.get("FLUX_URI") == uri and "FLUX_JOB_ID" in env


def kill_remains(agent: int, reapers: Collection[int], uri: str) -> None:
    """In the broker at `uri`, after its agent has died: wait until the agent and all its tasks have ended.

    Without `reapers`, `agent` is the agent's own reaper, a child of this process, which kills the tasks. Otherwise
    `reapers` also serve other agents: then `agent` is the agent itself (0: it was never forked), and the tasks that a
    reaper has inherited are killed here. If a reaper was killed too, the tasks may be children of any process. They are
    found by FLUX_URI and FLUX_JOB_ID in their environment; `flux proxy` and initial programs unset FLUX_JOB_ID.
    """
    killed = False
    try:
        if agent:
            killed = os.WIFSIGNALED(os.waitpid(agent, 0)[1])
    except ChildProcessError:
        while linux.is_running(agent):
            time.sleep(0.002)
    for reaper in reapers:
        kill_children(_KILL_TIMEOUT, lambda pid: _is_task(pid, uri), reaper)
    if killed or not all(linux.is_running(reaper) for reaper in reapers):
        _kill_all(lambda: [pid for pid in linux.processes() if _is_task(pid, uri)], _KILL_TIMEOUT, False)


def ignore_signals() -> None:
    """Ignore signals that end a whole process group, in this process and the agent that it forks."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker that forked this process had these signals blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def keep(agent: int) -> int:
    """Wait for process `agent`, then kill its remaining processes. Returns its wait status."""
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            if pid == agent:
                continue_stopped(agent)
        elif pid == agent:
            break
    kill_children(_KILL_TIMEOUT)
    return status


def continue_stopped(pid: int) -> None:
    """Continue a stopped agent or reaper.

    A task can stop its parent, which would stop all jobs of the node.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def follow(reaper: int) -> None:
    """In the agent: request ORPHANED from the kernel when `reaper` ends. Raises OSError if it has ended."""
    global _followed
    _followed = reaper
    linux.die_with_parent(ORPHANED)
    if os.getppid() != reaper:
        raise ProcessLookupError("the exec agent's reaper is gone")


def is_followed() -> bool:
    """In the agent: True if it has its own reaper."""
    return _followed != 0


def is_orphaned() -> bool:
    """In the agent: True if its own reaper has ended.

    The signal ORPHANED is not enough, since tasks may send it too.
    """
    return _followed not in (0, os.getppid())
