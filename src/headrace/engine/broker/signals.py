"""Signals of an instance: signals that end it at any time, and signals that it passes to its jobs.

Signals are held pending from the creation of the first folder until the loop handles them, and again from the end of
the loop until the process ends. An unhandled one would leave the run directory or processes behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Signals that warn a job before its time limit. An instance that is a job passes them to its own jobs.
FOR_JOBS = (signal.SIGUSR1, signal.SIGUSR2)
# Seconds that a new program may need to join the process group to which a terminal sends interrupts.
YOUNG = 0.2


class Interrupted(Exception):
    """A signal arrived within `interruptible`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def block() -> None:
    """Keep ending signals pending, also in processes that are forked from here."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def unblock() -> None:
    """Deliver ending signals from now on, including pending ones."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a pending signal raise Interrupted inside the block, for a long wait without anything to undo."""

    raised = False

    def interrupt(number: int, _frame: Any) -> None:
        # Only the first signal raises, since the handling of Interrupted must not be interrupted. A second signal may
        # have arrived before `block`.
        nonlocal raised
        block()
        if not raised:
            raised = True
            raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        unblock()
        yield
    finally:
        block()
        for number, handler in before.items():
            signal.signal(number, handler)


_caught = False


def catch() -> None:
    """Prepare for `listen`, in this process or in forks of it."""
    global _caught
    if _caught:
        return
    _caught = True
    # A job's time limit reaches an instance that is a job as SIGALRM. SIGCHLD reports that the agent was stopped.
    for number in (*_ENDING, *FOR_JOBS, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, _noted)


def restore_defaults() -> None:
    """Undo `catch`, except for the signals that end an instance."""
    global _caught
    _caught = False
    for number in (*FOR_JOBS, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def forget() -> None:
    """Reset all signals in a process that a module has forked from a broker: they are not for the broker."""
    signal.set_wakeup_fd(-1)
    restore_defaults()
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


def listen(loop: asyncio.AbstractEventLoop, received: Callable[[int], None]) -> None:
    """Call `received` in the loop with the number of each signal, beginning with pending ones.

    The loop's own `add_signal_handler` is not used, since each call of it examines all 64 signals.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def read() -> None:
        for number in os.read(reader, 64):
            received(number)

    loop.add_reader(reader, read)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    unblock()


def _noted(_number: int, _frame: Any) -> None:
    """A handler without an action: Python writes the signal's number to the wakeup pipe."""
