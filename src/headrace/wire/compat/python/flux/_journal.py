"""The common base of journal consumers: one stream of past events, and then each event as it occurs."""

from __future__ import annotations

import collections
import errno
import os
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Deque, Dict, List, Optional, TypeVar

if TYPE_CHECKING:
    from flux.core.handle import Flux
    from flux.job.event import EventLogEvent
    from headrace.wire.client.handle import Rpc


C = TypeVar("C", bound="JournalConsumerBase")


class JournalConsumerBase:
    """Events since time `since`; past events are sorted by time.

    `include_sentinel` adds `SENTINEL_EVENT` after the past events. Read events with `poll`, or register a callback.
    """

    SENTINEL_EVENT: ClassVar[Any]
    _topic: ClassVar[str]

    def __init__(self, flux_handle: Flux, request: Any, since: float, include_sentinel: bool) -> None:
        self.handle = flux_handle
        self._request = request
        self._since = since
        self._sentinel = include_sentinel
        self._call: Optional[Rpc] = None
        self._past: Optional[List[Any]] = []
        self._events: Deque[Any] = collections.deque()
        self._callback: Optional[Callable[[Any], Any]] = None
        self._stopped = False

    def _read(self, body: Dict[str, Any]) -> List[EventLogEvent]:
        """The events in one response."""
        raise NotImplementedError

    def start(self: C) -> C:
        """Request the events. Raises RuntimeError for a second call."""
        if self._call is not None:
            raise RuntimeError(f"{type(self).__name__} is already running")
        self._call = self.handle.handle.stream(self._topic, self._request)
        if self._callback is not None:
            self._call.then(self._arrived)
        return self

    def stop(self) -> None:
        """Ask the service to end the stream.

        `poll` returns the events that have arrived already, then None. The callback is not called with None.
        """
        self._stopped = True
        if self._call is not None:
            self._call.cancel()

    def set_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register `callback(event, ...)` for every event; it gets None when the service ends the stream."""
        self._callback = lambda event: callback(event, *args, **kwargs)
        if self._call is not None:
            self._call.then(self._arrived)

    def poll(self, timeout: float = -1.0) -> Any:
        """The next event; None at the end. Raises TimeoutError after `timeout` seconds (negative: no limit)."""
        if self._call is None:
            raise RuntimeError(f"{type(self).__name__} is not running: call start()")
        if self._callback is not None:
            raise RuntimeError("poll() cannot be used with a callback")
        while not self._events:
            if self._call.done and not self._call.ready:
                return None
            msg = self._call.next_message(None if timeout < 0 else timeout)
            if msg.errnum:
                self._check_end(msg.errnum, msg.text)
                return None
            self._take(msg.obj)
        return self._events.popleft()

    def is_empty(self) -> bool:
        return not self._events

    def _check_end(self, errnum: int, text: str) -> None:
        # A stopped stream ends with ECANCELED.
        if errnum not in (errno.ENODATA, errno.ECANCELED):
            raise OSError(errnum, text or os.strerror(errnum))

    def _arrived(self, call: Rpc) -> None:
        assert self._callback is not None
        msg = call.next_message()
        if msg.errnum:
            self._check_end(msg.errnum, msg.text)
            if not self._stopped:
                self.handle.guard(self._callback, None)
            return
        self._take(msg.obj)
        while self._events:
            self.handle.guard(self._callback, self._events.popleft())

    def _take(self, body: Dict[str, Any]) -> None:
        events = self._read(body)
        if not body.get("events"):
            if self._past is not None:
                past, self._past = self._past, None
                # The journal sends past events grouped by job.
                self._events.extend(sorted(past, key=lambda event: event.timestamp))
                if self._sentinel:
                    self._events.append(self.SENTINEL_EVENT)
            return
        target: Any = self._events if self._past is None else self._past
        target.extend(event for event in events if event.timestamp > self._since)
