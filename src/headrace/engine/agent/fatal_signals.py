"""Fatal signals to the agent: if a task signals its parent, only the shell of its own job ends.

In Flux each job has a shell process on each node, the parent of its tasks there. Here one agent is the parent of all
tasks of a node, so a SIGQUIT from one task would end all jobs. The agent blocks such signals and reads them from a
descriptor. Each has the sender's pid, from which the sender's job is found. SIGKILL cannot be blocked, and still ends
all jobs of the node.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.engine.process import linux

if TYPE_CHECKING:
    from ..shell.job import ShellJob

# Signals whose default action ends the process, except for signals that the agent ignores or uses.
FATAL = frozenset(
    number
    for number in signal.valid_signals()
    if number >= signal.SIGRTMIN
    or number
    in {
        signal.SIGQUIT,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGXCPU,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGIO,
        signal.SIGPWR,
        signal.SIGSYS,
    }
)

# How often the environment of a sender is read again while it is empty, and the seconds between two reads.
_ATTEMPTS, _PAUSE = 20, 0.001


def listen() -> int:
    """Block the signals. Returns the descriptor to read them from. Raises OSError."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FATAL)
    return linux.signal_descriptor(FATAL)


def take(fd: int, jobs: Mapping[int, ShellJob]) -> None:
    """Read the signals on `fd`, and end each of the `jobs` that has sent one.

    A signal from the kernel, or from a process outside the jobs, ends the agent.
    """
    for signum, sender in linux.read_signals(fd):
        if not sender:
            _die_of(signum)
        job, has_ended = _job_of(sender, jobs)
        if job is not None:
            job.shell_killed(signum)
        elif has_ended:
            # The sender's job is not known, and ending the agent would end all jobs of the node.
            print(
                f"flux-agent: ignoring {signal.strsignal(signum)} of process {sender}, which is gone", file=sys.stderr
            )
        else:
            _die_of(signum)


def _job_of(sender: int, jobs: Mapping[int, ShellJob]) -> tuple[ShellJob | None, bool]:
    """The job of process `sender`, and whether the sender ended before its job could be determined.

    A process belongs to a job if it descends from one of its tasks, or has the job's path in its environment.
    """
    by_task: dict[int, ShellJob] = {task.pid: job for job in jobs.values() for task in job.tasks.all if task.pid > 0}
    pid, parent_of = sender, linux.parent_of
    path = _job_path_of(sender)
    while pid and pid not in by_task:
        pid = parent_of(pid)
    if pid:
        return by_task[pid], False
    for job in jobs.values():
        if path == job.path or path.startswith(job.path + "/"):
            return job, False
    if parent_of(sender):
        return None, False
    return (next(iter(jobs.values())) if len(jobs) == 1 else None), True


def _job_path_of(pid: int) -> str:
    for _ in range(_ATTEMPTS):
        environment = linux.environment_of(pid)
        if environment or not linux.parent_of(pid):
            return environment.get("FLUX_JOB_ID_PATH", "")
        # A process has no environment for a moment during execve(2).
        time.sleep(_PAUSE)
    return ""


def _die_of(signum: int) -> None:
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
