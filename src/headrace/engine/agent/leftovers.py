"""Finding and killing processes that left their job's process groups.

They leave by setsid, a shell's job control, or a nested instance. They descend from the agent, which is a subreaper,
and have FLUX_JOB_ID_PATH in their environment: their job's path or, if the job is an instance itself, the path of a job
in it. A process that has cleared its environment and lost its parent belongs to one of the jobs that ran when it began,
and is killed when all of these have ended.
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

# Users whose jobs run here as themselves. Their shells end their processes, and the agent finds the rest by user id
# (`guests`). Their environments are not read: the memory may be mapped from the user's own file system, which could
# delay the read as long as the user likes.
users: set[int] = set()

# Rounds of killing, to catch up with processes that fork.
_ROUNDS = 10
# Seconds after a program's fork within which it has called exec, so that its environment identifies it.
_EXEC_WITHIN = 0.5


def kill_job(path: str, signum: int, doomed: Iterable[int], agent: int) -> None:
    """Send `signum` to each process below `agent` that is in `doomed`, or in job `path` or a job below it."""
    wanted, killed = frozenset(doomed), set[int]()
    for _ in range(_ROUNDS):
        found = {pid for pid in linux.descendants_of(agent) if pid in wanted or _is_in_job(_job_path(pid), path)}
        if found <= killed:
            return
        for pid in found - killed:
            _kill(pid, signum)
        killed |= found


def kill_orphans(
    agent: int, known: Container[int], instance: str, live: Callable[[], Iterable[str]], between: tuple[int, float]
) -> None:
    """Send SIGKILL to children of `agent` whose job has ended, except pids in `known`.

    The job has ended if the job path in the environment is in the instance `instance` ("" for the root instance), and
    is not among the paths of running jobs, which `live()` returns.

    A child without a job path is killed if it began between two moments, `between`, in clock ticks since boot. Before
    the first, another process than a job may have started it; after the second, a job that still runs may have.
    """
    paths: list[str] | None = None
    for pid in linux.children_of(agent):
        if pid in known or _runs_as_guest(pid):
            continue
        own = _job_path(pid)
        if not own and between[0] < linux.began(pid) < between[1]:
            _kill(pid, signal.SIGKILL)
        elif own.startswith(instance + "/"):
            if paths is None:
                paths = list(live())
            if not any(_is_in_job(own, path) for path in paths):
                _kill(pid, signal.SIGKILL)


def kill_program(program: Program) -> None:
    """Send SIGKILL to the initial program of a broker that has ended, and to its descendants.

    `program` is the broker's last message about it (docs/dev/interfaces.md). If the broker ended between the fork and
    the next message, its `pid` is 0, and it has the instance's `uri`. The program is then found by its environment.
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
    """Send SIGKILL to the initial program of the instance at `uri`, and to its descendants.

    The program began in tick `since` or later. For the zygote, if the broker and every process that knew the program's
    pid have ended.
    """
    pid = _oldest_client_of(uri, since)
    if pid:
        _kill_tree(pid)


def _kill_tree(pid: int) -> None:
    """Kill a process and its descendants.

    They are stopped first, since a running process could start others: a script continues with its next line when the
    command that it waits for is killed.
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
    """The first process of our session since tick `since` that uses the instance at `uri`, or 0."""
    found = []
    for pid in linux.processes():
        if linux.began(pid) >= since:
            with contextlib.suppress(OSError):
                if os.getsid(pid) == os.getsid(0) and linux.environment_of(pid).get("FLUX_URI") == uri:
                    found.append((linux.began(pid), pid))
    return min(found, default=(0, 0))[1]


def _runs_as_guest(pid: int) -> bool:
    return bool(users) and linux.user_of(pid) in users


def _job_path(pid: int) -> str:
    return "" if _runs_as_guest(pid) else linux.environment_of(pid).get("FLUX_JOB_ID_PATH", "")


def _is_in_job(path: str, job: str) -> bool:
    return path == job or path.startswith(job + "/")


def _kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
