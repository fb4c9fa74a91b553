"""Processes that left their job's process groups (setsid, a shell's job control, a nested instance): found and killed.

They descend from the agent, which is a subreaper, and they carry FLUX_JOB_ID_PATH: their job's path or, where the job
is an instance itself, the path of a job in it. A process that has cleared its environment and lost its parent does not
say whose it is. It belongs to one of the jobs that ran when it began, and is killed when all of these are over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING

from headrace.engine.process import linux

if TYPE_CHECKING:
    from headrace.engine.process.operations import Program

# Users whose jobs run here as themselves. Their processes are ended by their own shells, and by the agent by their user
# (`guests`): a read of the environment of one of them would wait for as long as its user likes, whose file system its
# memory may be of.
users: set[int] = set()

# Rounds in which the kill catches up with processes that fork.
_ROUNDS = 10
# Seconds from a program's fork within which its exec is done, and its environment shows whose it is.
_EXEC_WITHIN = 0.5


def kill_job(path: str, signum: int, doomed: Iterable[int], agent: int) -> None:
    """Send `signum` to each process below `agent` that is in `doomed` or whose job path is `path` or lies below it."""
    wanted, killed = frozenset(doomed), set[int]()
    for _ in range(_ROUNDS):
        found = {pid for pid in linux.descendants_of(agent) if pid in wanted or _below(_path(pid), path)}
        if found <= killed:
            return
        for pid in found - killed:
            _kill(pid, signum)
        killed |= found


def kill_orphans(
    agent: int, known: Container[int], instance: str, live: Callable[[], Iterable[str]], between: tuple[int, float]
) -> None:
    """Send SIGKILL to children of `agent` whose job has ended: the job path in their environment is one of the instance
    `instance` ("" for a root), and not among the paths of running jobs, which `live()` returns. Pids in `known` are
    kept.

    A child without a job path is killed if it began between two moments, `between`, in clock ticks since boot. Before
    the first, others than jobs may have started it; after the second, a job that still runs may have.
    """
    paths: list[str] | None = None
    for pid in linux.children_of(agent):
        if pid in known or _is_users(pid):
            continue
        own = _path(pid)
        if not own and between[0] < linux.began(pid) < between[1]:
            _kill(pid, signal.SIGKILL)
        elif own.startswith(instance + "/"):
            if paths is None:
                paths = list(live())
            if not any(_below(own, path) for path in paths):
                _kill(pid, signal.SIGKILL)


def kill_program(program: Program) -> None:
    """Send SIGKILL to the initial program of a broker that is gone, and to the processes that it has started.

    `program` is the broker's last message about it (docs/dev/interfaces.md). Its `pid` is 0, and it has the instance's
    `uri`, if the broker ended between the fork and a further message. The program is then found by its environment.
    """
    pid = program["pid"]
    deadline = time.monotonic() + _EXEC_WITHIN
    while not pid and "uri" in program and time.monotonic() < deadline:
        pid = _oldest_client_of(program["uri"], program["since"])
        if not pid:
            time.sleep(0.01)
    if pid:
        _kill_tree(pid)


def kill_unknown_program(uri: str, since: int) -> None:
    """Send SIGKILL to the initial program of the instance at `uri`, begun in tick `since` or later, and to what it has
    started. For the zygote, when the broker and every process that it told of the program are gone.
    """
    pid = _oldest_client_of(uri, since)
    if pid:
        _kill_tree(pid)


def _kill_tree(pid: int) -> None:
    """Kill a process and its descendants. They are stopped first, as one that runs on would start others meanwhile: a
    script with its next line, when what it waits for is killed.
    """
    stopped: list[int] = []
    for _ in range(_ROUNDS):
        fresh = [each for each in (pid, *linux.descendants_of(pid)) if each not in stopped]
        if not fresh:
            break
        for each in fresh:
            _kill(each, signal.SIGSTOP)
        stopped += fresh
    for each in stopped:
        _kill(each, signal.SIGKILL)


def _oldest_client_of(uri: str, since: int) -> int:
    """The first process of our session that began in tick `since` or later and talks to the instance at `uri`, or 0."""
    found = []
    for pid in linux.processes():
        if linux.began(pid) >= since:
            with contextlib.suppress(OSError):
                if os.getsid(pid) == os.getsid(0) and linux.environment_of(pid).get("FLUX_URI") == uri:
                    found.append((linux.began(pid), pid))
    return min(found, default=(0, 0))[1]


def _is_users(pid: int) -> bool:
    return bool(users) and linux.user_of(pid) in users


def _path(pid: int) -> str:
    return "" if _is_users(pid) else linux.environment_of(pid).get("FLUX_JOB_ID_PATH", "")


def _below(path: str, job: str) -> bool:
    return path == job or path.startswith(job + "/")


def _kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
