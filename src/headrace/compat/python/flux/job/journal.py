"""`flux.job.JournalConsumer`: every event of every job, past ones first, as one stream."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional

from flux.job.event import EventLogEvent
from flux.job.JobID import JobID

if TYPE_CHECKING:
    from flux.core.handle import Flux
    from headrace.client.handle import Rpc


class JournalEvent(EventLogEvent):
    """An event with its `jobid`, and the job's `jobspec` and `R` where they came with it (else None)."""

    def __init__(self, jobid: int, event: Dict[str, Any], jobspec: Any = None, R: Any = None) -> None:
        super().__init__(event)
        self.jobid = JobID(jobid)
        self.jobspec = jobspec
        self.R = R

    def is_empty(self) -> bool:
        """True of the sentinel that separates the past from the present."""
        return not self.name

    def __str__(self) -> str:
        if self.is_empty():
            return "-1: End of historical data stream"
        extra = "".join(f" {name}={value}" for name, value in (("jobspec", self.jobspec), ("R", self.R)) if value)
        return f"{self.jobid.f58}: t={self.timestamp:.6f} {self.name} {self.context_string}".rstrip() + extra


# The event that separates the past from the present.
SENTINEL_EVENT = JournalEvent(-1, {"timestamp": 0.0, "name": ""})


class JournalConsumer:
    """Events since time `since`; `full` includes those of finished jobs; the past comes in order of time.

    `include_sentinel` adds an event without name where the past ends. Read with `poll`, or have the reactor call back.
    """

    def __init__(
        self, flux_handle: Flux, full: bool = True, since: float = 0.0, include_sentinel: bool = False
    ) -> None:
        self.handle = flux_handle
        self._full = full
        self._since = since
        self._sentinel = include_sentinel
        self._call: Optional[Rpc] = None
        self._past: Optional[List[JournalEvent]] = []
        self._events: Deque[JournalEvent] = collections.deque()
        self._callback: Optional[Callable[[Optional[JournalEvent]], Any]] = None

    def start(self) -> JournalConsumer:
        """Ask for the events. Raises RuntimeError the second time."""
        if self._call is not None:
            raise RuntimeError("JournalConsumer is already running")
        self._call = self.handle.handle.stream("job-manager.events-journal", {"full": self._full})
        if self._callback is not None:
            self._call.then(self._arrived)
        return self

    def stop(self) -> None:
        """Ask the service to end the stream; `poll` gives what has arrived, then None."""
        if self._call is not None:
            self._call.cancel()

    def set_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Have the reactor call `callback(event, ...)` for every event, with None at the end of the stream."""
        self._callback = lambda event: callback(event, *args, **kwargs)
        if self._call is not None:
            self._call.then(self._arrived)

    def poll(self, timeout: float = -1.0) -> Optional[JournalEvent]:
        """The next event, None at the end. Raises TimeoutError after `timeout` seconds (negative: wait for ever)."""
        if self._call is None:
            raise RuntimeError("JournalConsumer is not running: call start()")
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
        import errno
        import os

        # ECANCELED is how a stream that was stopped ends.
        if errnum not in (errno.ENODATA, errno.ECANCELED):
            raise OSError(errnum, text or os.strerror(errnum))

    def _arrived(self, call: Rpc) -> None:
        assert self._callback is not None
        msg = call.next_message()
        if msg.errnum:
            self._check_end(msg.errnum, msg.text)
            self.handle.guard(self._callback, None)
            return
        self._take(msg.obj)
        while self._events:
            self.handle.guard(self._callback, self._events.popleft())

    def _take(self, body: Dict[str, Any]) -> None:
        job, events = body.get("id", -1), body.get("events", [])
        if not events:
            if self._past is not None:
                past, self._past = self._past, None
                # Jobs come one after another, each with all its events.
                self._events.extend(sorted(past, key=lambda event: event.timestamp))
                if self._sentinel:
                    self._events.append(SENTINEL_EVENT)
            return
        target: Any = self._events if self._past is None else self._past
        for event in events:
            if event["timestamp"] > self._since:
                jobspec = body.get("jobspec") if event["name"] == "submit" else None
                r = body.get("R") if event["name"] == "alloc" else None
                target.append(JournalEvent(job, event, jobspec, r))
