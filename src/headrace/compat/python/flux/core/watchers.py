"""Timers, descriptors and signals in a handle's reactor."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from flux.core.handle import Flux


class Watcher:
    """Something that calls `callback(handle, watcher, events, args)` while it is started."""

    def __init__(self, handle: Flux, callback: Callable[..., Any], args: Any) -> None:
        self.flux_handle = handle
        self.callback = callback
        self.args = args

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> Watcher:
        raise NotImplementedError

    def stop(self) -> Watcher:
        raise NotImplementedError

    def _fire(self, events: int = 0) -> None:
        self.flux_handle.guard(self.callback, self.flux_handle, self, events, self.args)


class TimerWatcher(Watcher):
    """Fires `after` seconds from start, then every `repeat` seconds if that is not 0."""

    def __init__(self, handle: Flux, after: float, callback: Callable[..., Any], repeat: float, args: Any) -> None:
        super().__init__(handle, callback, args)
        self.after = after
        self.repeat = repeat
        self._timer: Any = None

    def start(self) -> TimerWatcher:
        self.stop()
        self._timer = self.flux_handle.reactor.add_timer(self.after, self._fire, self.repeat)
        return self

    def stop(self) -> TimerWatcher:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        return self

    def reset(self, after: float = 0.0, repeat: float = 0.0) -> TimerWatcher:
        self.after, self.repeat = after, repeat
        return self.start()


class FDWatcher(Watcher):
    """Fires while `fd` is ready."""

    def __init__(self, handle: Flux, fd: int, events: Optional[int], callback: Callable[..., Any], args: Any) -> None:
        super().__init__(handle, callback, args)
        self.fd = fd
        self.events = select.POLLIN if events is None else events

    def start(self) -> FDWatcher:
        self.flux_handle.reactor.add_fd(self.fd, self._fire, self.events)
        return self

    def stop(self) -> FDWatcher:
        self.flux_handle.reactor.remove_fd(self.fd)
        return self


class SignalWatcher(Watcher):
    """Fires when the process gets `signum`."""

    def __init__(self, handle: Flux, signum: int, callback: Callable[..., Any], args: Any) -> None:
        super().__init__(handle, callback, args)
        self.signum = signum
        self._started = False

    def start(self) -> SignalWatcher:
        self._started = True
        self.flux_handle.reactor.add_signal(self.signum, self._on_signal)
        return self

    def stop(self) -> SignalWatcher:
        if self._started:
            self._started = False
            self.flux_handle.reactor.remove_signal(self.signum)
        return self

    def _on_signal(self) -> None:
        if self._started:
            self._fire()
