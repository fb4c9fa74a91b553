"""Timers, descriptors, signals and messages in a handle's reactor."""

from __future__ import annotations

import errno
import fnmatch
import select
from typing import TYPE_CHECKING, Any, Callable, Optional

from flux.message import Message
from headrace.spec.message import EVENT, REQUEST, ROLE_OWNER

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


class MessageWatcher(Watcher):
    """Gets events and requests that no earlier watcher took: `callback(handle, watcher, message, args)`.

    `type_mask` holds FLUX_MSGTYPE numbers, `topic_glob` is a shell pattern; a request of a user whose roles are not in
    `rolemask` (default: the owner's alone) is refused. A request that no watcher wants gets ENOSYS.
    """

    def __init__(
        self,
        handle: Flux,
        type_mask: int,
        callback: Callable[..., Any],
        topic_glob: str,
        args: Any,
        rolemask: Optional[int],
    ) -> None:
        super().__init__(handle, callback, args)
        self.type_mask = type_mask
        self.topic_glob = topic_glob
        self.rolemask = ROLE_OWNER if rolemask is None else rolemask

    def start(self) -> MessageWatcher:
        watchers, handle = self.flux_handle.message_watchers, self.flux_handle.handle
        if self not in watchers:
            watchers.append(self)
        if self._deliver not in handle.event_callbacks and self.type_mask & EVENT:
            handle.event_callbacks.append(self._deliver)
        if self.type_mask & REQUEST:
            handle.request_callback = _requests_to(self.flux_handle)
        self.flux_handle.reactor  # noqa: B018 - the handle has to be in it
        return self

    def stop(self) -> MessageWatcher:
        watchers, handle = self.flux_handle.message_watchers, self.flux_handle.handle
        if self in watchers:
            watchers.remove(self)
        if self._deliver in handle.event_callbacks:
            handle.event_callbacks.remove(self._deliver)
        if not any(watcher.type_mask & REQUEST for watcher in watchers):
            handle.request_callback = None
        return self

    def wants(self, msg: Any) -> bool:
        return bool(self.type_mask & msg.type) and fnmatch.fnmatchcase(msg.topic, self.topic_glob)

    def _deliver(self, msg: Any) -> None:
        if self.wants(msg):
            self.flux_handle.guard(self.callback, self.flux_handle, self, Message(message=msg), self.args)

    def request(self, msg: Any) -> None:
        if msg.rolemask & self.rolemask:
            self._deliver(msg)
        else:
            self.flux_handle.respond_error(Message(message=msg), errno.EPERM)


def _requests_to(handle: Flux) -> Callable[[Any], None]:
    def deliver(msg: Any) -> None:
        for watcher in handle.message_watchers:
            if watcher.wants(msg):
                watcher.request(msg)
                return
        handle.respond_error(Message(message=msg), errno.ENOSYS)

    return deliver
