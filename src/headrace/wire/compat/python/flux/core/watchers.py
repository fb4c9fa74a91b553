"""Watchers of timers, descriptors, signals, messages and turns in a handle's reactor."""

from __future__ import annotations

import errno
import fnmatch
import select
from _signal import NSIG  # type: ignore[import-not-found]
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from flux.constants import FLUX_POLLERR, FLUX_POLLIN, FLUX_POLLOUT
from flux.message import Message
from headrace.formats.spec.message import EVENT, REQUEST, ROLE_OWNER

if TYPE_CHECKING:
    from flux.core.handle import Flux
    from headrace.wire.client.reactor import Reactor

W = TypeVar("W", bound="Watcher")


# The C interface has its own constants for poll events.
_POLL_EVENTS = ((FLUX_POLLIN, select.POLLIN), (FLUX_POLLOUT, select.POLLOUT), (FLUX_POLLERR, select.POLLERR))


_UNPRIVILEGED = "Request rejected due to insufficient privilege"


class Watcher:
    """Calls `callback(handle, watcher, what, args)` for an event while it is started.

    `what` is the descriptor, the number of the signal, or the message of the event, otherwise 0.
    """

    def __init__(self, flux_handle: Flux, callback: Callable[..., Any], args: Any) -> None:
        self.flux_handle = flux_handle
        self.callback = callback
        self.args = args
        self._started = False
        self._counted = True
        self._destroyed = False

    @property
    def handle(self) -> Optional[Watcher]:
        """The argument for functions of the C interface: the watcher itself, None after `destroy`."""
        return None if self._destroyed else self

    def __enter__(self: W) -> W:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self: W) -> W:
        if not self._started:
            self._started = True
            self._begin(self.flux_handle.reactor)
            self._ignore(not self._counted)
        return self

    def stop(self: W) -> W:
        if self._started:
            self._started = False
            self._end(self.flux_handle.reactor)
            self._ignore(-(not self._counted))
        return self

    def destroy(self) -> None:
        self.stop()
        self._destroyed = True

    def is_active(self) -> bool:
        return self._started

    def unref(self: W) -> W:
        """Do not keep `reactor_run` from returning."""
        self._ignore(self._counted and self._started)
        self._counted = False
        return self

    def ref(self: W) -> W:
        """Undo `unref`."""
        self._ignore(-(not self._counted and self._started))
        self._counted = True
        return self

    def _ignore(self, count: int) -> None:
        self.flux_handle.reactor.ignored += count

    def _begin(self, reactor: Reactor) -> None:
        raise NotImplementedError

    def _end(self, reactor: Reactor) -> None:
        raise NotImplementedError

    def _fire(self, what: int = 0) -> None:
        self.flux_handle.guard(self.callback, self.flux_handle, self, what, self.args)


class TimerWatcher(Watcher):
    """Fires `after` seconds after the start, then every `repeat` seconds unless that is 0.

    Raises OSError EINVAL for a negative time.
    """

    def __init__(
        self, flux_handle: Flux, after: float, callback: Callable[..., Any], repeat: float = 0.0, args: Any = None
    ) -> None:
        super().__init__(flux_handle, callback, args)
        if after < 0 or repeat < 0:
            raise OSError(errno.EINVAL, "a timer's seconds must not be negative")
        self.after = after
        self.repeat = repeat
        self._timer: Any = None

    def _begin(self, reactor: Reactor) -> None:
        self._timer = reactor.add_timer(self.after, self._expired, self.repeat)

    def _end(self, reactor: Reactor) -> None:
        self._timer.stop()

    def _expired(self) -> None:
        if not self.repeat:
            self.stop()
        self._fire()

    def reset(self, after: Optional[float] = None, repeat: Optional[float] = None) -> TimerWatcher:
        """Restart the timer, with new times if they are given."""
        self.stop()
        self.after = self.after if after is None else after
        self.repeat = self.repeat if repeat is None else repeat
        return self.start()


class FDWatcher(Watcher):
    """Fires when `fd` is ready: `callback(handle, watcher, fd, revents, args)`.

    `events` and `revents` are masks of FLUX_POLLIN, FLUX_POLLOUT and FLUX_POLLERR.
    """

    def __init__(
        self, flux_handle: Flux, fd_int: int, events: Optional[int], callback: Callable[..., Any], args: Any = None
    ) -> None:
        super().__init__(flux_handle, callback, args)
        self.fd = fd_int
        self.events = FLUX_POLLIN if events is None else events

    def _begin(self, reactor: Reactor) -> None:
        mask = sum(bit for event, bit in _POLL_EVENTS if self.events & event)
        reactor.add_fd(self.fd, self._ready, mask)

    def _end(self, reactor: Reactor) -> None:
        reactor.remove_fd(self.fd)

    def _ready(self, ready: int) -> None:
        revents = sum(event for event, bit in _POLL_EVENTS if ready & bit)
        if ready & select.POLLHUP:
            # The end of a stream counts as readable, as in libev.
            revents |= self.events & FLUX_POLLIN or FLUX_POLLERR
        self.flux_handle.guard(self.callback, self.flux_handle, self, self.fd, revents, self.args)


class SignalWatcher(Watcher):
    """Fires when the process receives `signum`."""

    def __init__(self, flux_handle: Flux, signal_int: int, callback: Callable[..., Any], args: Any = None) -> None:
        super().__init__(flux_handle, callback, args)
        if not 0 < signal_int < NSIG:
            raise OSError(errno.EINVAL, f"there is no signal {signal_int}")
        self.signum = signal_int

    def _begin(self, reactor: Reactor) -> None:
        reactor.add_signal(self.signum, self._arrived)

    def _end(self, reactor: Reactor) -> None:
        reactor.remove_signal(self.signum)

    def _arrived(self) -> None:
        if self._started:
            self._fire(self.signum)


class TurnWatcher(Watcher):
    """Fires in each turn of the reactor: before it waits (`prepare`), after (`check`) or instead (`idle`)."""

    def __init__(self, handle: Flux, when: str, callback: Callable[..., Any], args: Any) -> None:
        super().__init__(handle, callback, args)
        self.when = when

    def _begin(self, reactor: Reactor) -> None:
        reactor.add_turn(self.when, self._fire)

    def _end(self, reactor: Reactor) -> None:
        reactor.remove_turn(self.when, self._fire)


class MessageWatcher(Watcher):
    """Calls `callback(handle, watcher, message, args)` for messages that match.

    `type_mask` has FLUX_MSGTYPE constants, `topic_glob` is a shell pattern. Events are passed to all watchers that
    match, requests and responses to the first. Responses are those to requests of `send`; responses to calls are passed
    to their futures. A request is rejected if its user is not the owner and has no role in `rolemask`. A request that
    matches no watcher gets the error ENOSYS.
    """

    def __init__(
        self,
        handle: Flux,
        type_mask: int,
        callback: Callable[..., Any],
        topic_glob: str = "*",
        args: Any = None,
        rolemask: Optional[int] = None,
    ) -> None:
        super().__init__(handle, callback, args)
        self.type_mask = type_mask
        self.topic_glob = topic_glob
        self.rolemask = ROLE_OWNER | (rolemask or 0)

    def _begin(self, reactor: Reactor) -> None:
        self.flux_handle.message_watchers.append(self)
        _watch_messages(self.flux_handle)

    def _end(self, reactor: Reactor) -> None:
        self.flux_handle.message_watchers.remove(self)
        _watch_messages(self.flux_handle)

    def wants(self, msg: Any) -> bool:
        return bool(self.type_mask & msg.type) and fnmatch.fnmatchcase(msg.topic, self.topic_glob)

    def deliver(self, msg: Any) -> None:
        if msg.type == REQUEST and not msg.rolemask & self.rolemask:
            owner_only = self.rolemask == ROLE_OWNER
            why = "Request requires owner credentials" if owner_only else _UNPRIVILEGED
            self.flux_handle.respond_error(Message(message=msg), errno.EPERM, why)
        else:
            self.flux_handle.guard(self.callback, self.flux_handle, self, Message(message=msg), self.args)


def _watch_messages(flux_handle: Flux) -> None:
    """Register the receiver that passes the connection's messages to the watchers."""
    watchers, handle = flux_handle.message_watchers, flux_handle.handle
    handle.watching = len(watchers)
    handle.message_types = 0
    for watcher in watchers:
        handle.message_types |= watcher.type_mask

    def deliver(msg: Any) -> None:
        taken = False
        for watcher in watchers[:]:
            if watcher.wants(msg):
                taken = True
                watcher.deliver(msg)
                if msg.type != EVENT:
                    break
        if msg.type == REQUEST and not taken:
            flux_handle.respond_error(Message(message=msg), errno.ENOSYS)

    handle.message_callback = deliver if watchers else None
