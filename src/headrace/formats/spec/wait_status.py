"""Conversion of a wait status (wait(2)) to the forms in which Flux shows it.

A job's `finish` event has a wait status (RFC 21). os.waitstatus_to_exitcode() needs CPython 3.9, but commands and
bindings also run on 3.8.
"""

from __future__ import annotations

import os


def exit_code(status: int) -> int:
    """The exit code as in a shell: that of the process, or 128 plus the number of the fatal signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def returncode(status: int) -> int:
    """The same as `subprocess.Popen.returncode`: the exit code, or the negative number of the signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def how_ended(status: int) -> str:
    """The text for users: `Exit 3`, `Hangup`."""
    return strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else f"Exit {os.WEXITSTATUS(status)}"


def strsignal(number: int) -> str:
    """strsignal(3), also for an invalid number: an exit code of 255, for example, looks like signal 127."""
    from headrace.formats.spec.stdlib_parts import signal

    try:
        return signal.strsignal(number) or f"Unknown signal {number}"
    except ValueError:
        return f"Unknown signal {number}"
