"""A small event loop over poll(2), for commands that follow several streams, and for `import flux`.

Importing asyncio and selectors takes longer than a whole command may take. This loop watches file descriptors, timers
and signals. A handle is watched as a descriptor, and its messages are dispatched after each read.
"""

from __future__ import annotations

import errno
import os
import select
import time
from heapq import heappop, heappush

from headrace.formats.spec.stdlib_parts import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from headrace.wire.client.handle import Handle

POLLIN = select.POLLIN
POLLOUT = select.POLLOUT
POLLERR = select.POLLERR
# The longest timeout in seconds; poll(2) takes milliseconds as an int.
_LONGEST = 2e6


class Timer:
    """A timer in a reactor; after `stop()` it does not fire."""

    __slots__ = ("active", "callback", "repeat")

    def __init__(self, callback: Callable[[], None], repeat: float) -> None:
        self.callback = callback
        self.repeat = repeat
        self.active = True

    def stop(self) -> None:
        self.active = False


class Reactor:
    """Watches descriptors, timers and signals, and runs their callbacks until `stop()`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fds: Dict[int, Callable[[int], None]] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = 0
        self._handles: List[Handle] = []
        self._signals: Dict[int, Any] = {}
        self._wakeup: Optional[Tuple[int, int]] = None
        self._running = False
        self._turns: Dict[str, List[Callable[[], None]]] = {"prepare": [], "check": [], "idle": []}
        # The number of watched items that do not keep the loop from being idle.
        self.ignored = 0

    def add_fd(self, fd: int, callback: Callable[[int], None], events: int = POLLIN) -> None:
        """Call `callback(revents)` when `fd` has one of `events`, an error or a hang-up."""
        self._fds[fd] = callback
        self._poll.register(fd, events)

    def remove_fd(self, fd: int) -> None:
        if self._fds.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def add_timer(self, after: float, callback: Callable[[], None], repeat: float = 0.0) -> Timer:
        """Call `callback()` in `after` seconds, then every `repeat` seconds if that is not zero."""
        timer = Timer(callback, repeat)
        self._push(time.monotonic() + after, timer)
        return timer

    def _push(self, when: float, timer: Timer) -> None:
        self._count += 1
        heappush(self._timers, (when, self._count, timer))

    def add_signal(self, signum: int, callback: Callable[[], None]) -> None:
        """Call `callback()` in the loop when `signum` arrives; `run` restores the previous handler at its end."""
        if self._wakeup is None:
            self._wakeup = os.pipe()
            for fd in self._wakeup:
                os.set_blocking(fd, False)
            self.add_fd(self._wakeup[0], self._drain_wakeup)
            signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)

        def handler(_signum: int, _frame: object) -> None:
            callback()

        old = signal.signal(signum, handler)
        self._signals.setdefault(signum, old)

    def remove_signal(self, signum: int) -> None:
        """Restore the handler that `signum` had before."""
        if signum in self._signals:
            signal.signal(signum, self._signals.pop(signum))

    def _drain_wakeup(self, _revents: int) -> None:
        assert self._wakeup is not None
        try:
            os.read(self._wakeup[0], 512)
        except BlockingIOError:
            pass

    def add_handle(self, handle: Handle) -> None:
        """Dispatch the handle's responses and events to their callbacks."""
        self._handles.append(handle)

        def readable(_revents: int) -> None:
            handle.pump(0)

        self.add_fd(handle.fileno(), readable)

    def stop(self) -> None:
        self._running = False

    def add_turn(self, when: str, callback: Callable[[], None]) -> None:
        """Call `callback()` in each turn: before the loop waits ("prepare") or after it ("check").

        With "idle", the loop calls it instead of waiting.
        """
        self._turns[when].append(callback)

    def remove_turn(self, when: str, callback: Callable[[], None]) -> None:
        if callback in self._turns[when]:
            self._turns[when].remove(callback)

    def run(self, until_idle: bool = False) -> bool:
        """Run until `stop()`. Exceptions of callbacks are raised here; signal handlers are restored.

        With `until_idle`, also stop when no callback can be called any more: no timer, signal or descriptor is watched
        and no handle has a call with a callback. Returns whether a callback can still be called.
        """
        self._running = True
        try:
            while self._running:
                if any([handle.dispatch() for handle in self._handles]):
                    continue
                if until_idle and self._is_idle():
                    return False
                self._run_once(self._next_timeout())
            return not self._is_idle()
        finally:
            self._restore_signals()

    def step(self, wait: bool = True) -> bool:
        """Wait for the next events and run their callbacks; may be called in a callback of `run`.

        Without `wait`, only handle events that have occurred. Returns whether a callback can still be called.
        """
        running, self._running = self._running, True
        try:
            if not any([handle.dispatch() for handle in self._handles]):
                self._run_once(self._next_timeout() if wait else 0.0)
                if not wait:
                    for handle in self._handles:
                        handle.dispatch()
        finally:
            self._running = running
        return not self._is_idle()

    def _is_idle(self) -> bool:
        watched = (
            len(self._signals)
            + len(self._fds)
            - len(self._handles)
            - (self._wakeup is not None)
            + sum(handle.expected() for handle in self._handles)
            + sum(timer.active for _, _, timer in self._timers)
            + sum(map(len, self._turns.values()))
        )
        return watched <= self.ignored

    def _next_timeout(self) -> Optional[float]:
        while self._timers and not self._timers[0][2].active:
            heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _call_turns(self, when: str) -> None:
        for callback in self._turns[when][:]:
            callback()

    def _run_once(self, timeout: Optional[float]) -> None:
        self._call_turns("prepare")
        if self._turns["idle"]:
            timeout = 0.0
        if not self._running:
            return
        try:
            ready = self._poll.poll(None if timeout is None else min(timeout, _LONGEST) * 1000 + 0.5)
        except OSError as exc:
            if exc.errno != errno.EINTR:
                raise
            return
        if not ready:
            self._call_turns("idle")
        for fd, revents, callback in [(fd, revents, self._fds.get(fd)) for fd, revents in ready]:
            # A callback in this turn may have closed the descriptor and opened another one with the same number.
            if callback is not None and self._fds.get(fd) is callback:
                callback(revents)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now and self._running:
            when, _, timer = heappop(self._timers)
            if timer.active:
                if timer.repeat:
                    self._push(max(when + timer.repeat, now), timer)
                else:
                    timer.active = False
                timer.callback()
        self._call_turns("check")

    def _restore_signals(self) -> None:
        for signum, old in self._signals.items():
            signal.signal(signum, old)
        self._signals.clear()
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            self.remove_fd(self._wakeup[0])
            for fd in self._wakeup:
                os.close(fd)
            self._wakeup = None
