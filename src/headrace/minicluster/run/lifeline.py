"""Cleans up when this process is killed, by another process that waits for its end.

`kill -9`, or a machine out of memory, leaves no time for a `finally`. The waiting process has a session of its own, so
that no terminal ends it, and one end of a pipe; the pipe closes when this process, which has the other end, ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def lifeline(when_killed: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """Run `when_killed(number)` in another process if this one is killed inside the block, or leaves it by an error.

    Yields a function that sets the number (0 before). Call it before threads exist. Raises OSError.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    guard = os.fork()
    if guard == 0:
        try:
            os.close(writing)
            os.setsid()
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(signum, signal.SIG_IGN)
            words = _read_all(reading).split()
            if b"end" not in words:
                when_killed(int(words[-1]) if words else 0)
        finally:
            os._exit(0)
    os.close(reading)
    try:
        yield lambda number: _say(writing, str(number))
        _say(writing, "end")
    finally:
        os.close(writing)
        os.waitpid(guard, 0)


def _say(pipe: int, word: str) -> None:
    os.write(pipe, word.encode() + b"\n")


def _read_all(pipe: int) -> bytes:
    out = b""
    while data := os.read(pipe, 4096):
        out += data
    return out
