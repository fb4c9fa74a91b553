"""Runs functions on chosen processors, one at a time, in a thread that sleeps in between.

What is spawned here is bound from its first instruction on, as a process has the processors of the thread that spawns
it. A thread that binds itself moves at once, and waits behind what runs there until that has used up its slice. One
that sleeps is bound without a move, and runs soon when it is woken, as its slices are short. The caller does not move.
"""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable

from headrace.engine.process import linux


class Bound:
    """The thread. It starts with the first call, and lasts as long as its process."""

    def __init__(self) -> None:
        self._id = 0
        self._begin, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._todo: Callable[[], int] = int
        self._result = 0
        self._error: BaseException | None = None

    def run(self, cpus: frozenset[int], todo: Callable[[], int]) -> int:
        """The result of `todo()` on the processors `cpus`. Raises what that raises, and OSError for no processors."""
        if not self._id:
            self._start()
        # At each call: others may bind threads, too.
        os.sched_setaffinity(self._id, cpus)
        self._todo = todo
        self._begin.release()
        self._ended.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def _start(self) -> None:
        self._begin.acquire()
        self._ended.acquire()
        # Signals are for the main thread. This one inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            _thread.start_new_thread(self._serve, ())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._ended.acquire()

    def _serve(self) -> None:
        linux.ask_for_short_slices()
        self._id = _thread.get_native_id()
        while True:
            self._ended.release()
            self._begin.acquire()
            try:
                self._result = self._todo()
            except BaseException as exc:
                self._error = exc
