"""What a wait status (wait(2)) says, in the forms in which Flux shows it.

A job's `finish` event has a wait status (RFC 21). Functions of `os` that read a wait status at once came with CPython
3.9; commands and bindings run on 3.8.
"""

from __future__ import annotations

import os


def exit_code(status: int) -> int:
    """The exit code that a shell shows: the process's own, or 128 plus the number of the signal that ended it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def returncode(status: int) -> int:
    """As `subprocess.Popen.returncode`: the exit code, or the negative number of the signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def how_ended(status: int) -> str:
    """For users: `Exit 3`, `Hangup`."""
    return strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else f"Exit {os.WEXITSTATUS(status)}"


def strsignal(number: int) -> str:
    """strsignal(3), also for a number that is no signal: a program may well exit with 255, as if by signal 127."""
    from headrace.formats.spec.stdlib_parts import signal

    try:
        return signal.strsignal(number) or f"Unknown signal {number}"
    except ValueError:
        return f"Unknown signal {number}"
