"""Signals of an instance: those that end it, at any time of its life, and those that it passes on to its jobs.

From the creation of the first folder until the loop handles signals, and again from the loop's end until the process
has ended, signals are kept pending: an unhandled one would leave the run directory, or processes, behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .parts import BrokerBase

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Signals that warn a job before its time limit; an instance that is a job passes them on to its jobs.
FOR_JOBS = (signal.SIGUSR1, signal.SIGUSR2)
# The value of logging.INFO: processes that fork agents must not import logging, which would act after each fork.
_INFO = 20
# Seconds that a new program may take to join the process group to which a terminal sends interrupts.
YOUNG = 0.2


class Interrupted(Exception):
    """A signal arrived within `interruptible`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def hold() -> None:
    """Keep ending signals pending, also in processes that are forked from here."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def release() -> None:
    """Deliver ending signals from now on, including pending ones."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a held signal raise Interrupted inside the block, for a long wait without anything to undo."""

    raised = False

    def interrupt(number: int, _frame: Any) -> None:
        # Only the first signal raises, since the handling of Interrupted must not be interrupted. A second signal may
        # have arrived before `hold`.
        nonlocal raised
        hold()
        if not raised:
            raised = True
            raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        release()
        yield
    finally:
        hold()
        for number, handler in before.items():
            signal.signal(number, handler)


_caught = False


def catch() -> None:
    """Prepare for `listen`, in this process or in forks of it."""
    global _caught
    if _caught:
        return
    _caught = True
    # SIGALRM is how a job's time limit reaches an instance that is a job; SIGCHLD, that somebody stopped our agent.
    for number in (*_ENDING, *FOR_JOBS, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, _noted)


def let_go() -> None:
    """Undo `catch`, except for the signals that end an instance."""
    global _caught
    _caught = False
    for number in (*FOR_JOBS, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def forget() -> None:
    """In a process that a module has forked from a broker: signals to it are not for the broker."""
    signal.set_wakeup_fd(-1)
    let_go()
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


def listen(broker: BrokerBase) -> None:
    """Pass the signals that end an instance to `received`, in turns of the loop, beginning with those that were held.

    The loop's own `add_signal_handler` is not used, as each call of it examines all 64 signals.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def read() -> None:
        for number in os.read(reader, 64):
            received(broker, number)

    broker.loop.add_reader(reader, read)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    release()


def _noted(_number: int, _frame: Any) -> None:
    """A handler without an action of its own: the number of the signal is written to the pipe."""


def received(broker: BrokerBase, number: int) -> None:
    """Handle signal `number`: the leader passes it on to jobs, or shuts the instance down; a follower leaves alone."""
    if number == signal.SIGCHLD:
        if broker.agent is not None:
            broker.agent.keep_going()
        return
    name = signal.Signals(number).name
    if number in FOR_JOBS:
        # All brokers of a job get the signal, but only the leader passes it on.
        if not broker.rank:
            broker.log(_INFO, "broker", f"{name}: sent to all running jobs")
            broker.signal_jobs(number)
        return
    if broker.rank:
        # What a terminal sends reaches the leader too, whose shutdown reaches us through the tree; but if we have not
        # found it yet, it may be elsewhere.
        alone = broker.state == "join" and broker.boot.method != "test"
        if (number != signal.SIGINT or alone) and not broker.stopping:
            broker.log(_INFO, "broker", f"{name}: leaving")
            broker.leave()
        return
    broker.log(_INFO, "broker", f"{name}: shutting down")
    if number == signal.SIGINT and broker.program is not None and broker.program.running:
        # The program decides what an interrupt means.
        broker.program.interrupt()
        return
    again, broker.was_told_to_end = broker.was_told_to_end, True
    if not broker.past("run"):
        # Later the initial program has ended, and the status is its own.
        broker.ended_by = broker.ended_by or number
        if broker.attrs.get("broker.rc2_none") != "1":
            broker.exit_code = broker.exit_code or 128 + number
        broker.begin_shutdown()
    elif again and broker.state == "cleanup":
        # A second signal: do not wait for jobs any longer.
        broker.advance("cleanup-fail")
    elif again and broker.state == "shutdown":
        broker.advance("shutdown-timeout")
