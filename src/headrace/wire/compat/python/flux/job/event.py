"""Eventlogs of jobs: watching, and waiting for an event."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Union

from flux.future import Future, connection
from flux.job.JobID import JobID, to_id
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import FATAL, is_fatal

if TYPE_CHECKING:
    from flux.core.handle import Flux

MAIN_EVENTS = frozenset(
    ("submit", "validate", "depend", "priority", "alloc", "start", "finish", "release", "free", "clean", "exception")
)


class JobException(Exception):
    """A fatal exception was raised on the job."""

    def __init__(self, event: Any) -> None:
        context = event.context or {}
        self.timestamp = event.timestamp
        self.type = context.get("type", "")
        self.severity = context.get("severity", FATAL)
        self.note = context.get("note", "")
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"job.exception: type={self.type}: {self.note}"


class EventLogEvent(Dict[str, Any]):
    """One event, from its line or from its fields; fields are attributes and items."""

    def __init__(self, event: Union[str, Mapping[str, Any]]) -> None:
        if isinstance(event, str):
            line = decode_line(event)
            fields = {"timestamp": line.timestamp, "name": line.name, "context": line.context or {}}
        else:
            fields = {"timestamp": event["timestamp"], "name": event["name"], "context": event.get("context") or {}}
        super().__init__(fields)

    @property
    def timestamp(self) -> float:
        return float(self["timestamp"])

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def context(self) -> Dict[str, Any]:
        context: Dict[str, Any] = self["context"]
        return context

    @property
    def context_string(self) -> str:
        return json.dumps(self.context, ensure_ascii=False) if self.context else ""

    def __str__(self) -> str:
        return f"{self.timestamp:-0.6f}: {self.name} {self.context}"


def event_watch(flux_handle: Flux, jobid: Any, eventlog: str = "eventlog") -> Iterator[EventLogEvent]:
    """All events of the job, past and future, until its eventlog is complete."""
    body = {"id": to_id(jobid), "path": eventlog, "flags": 0}
    for answer in connection(flux_handle).stream("job-info.eventlog-watch", body):
        yield EventLogEvent(answer["event"])


class JobEventWatchFuture(Future):
    """The events of a job, one at a time."""

    def get_event(self, autoreset: bool = True) -> Any:
        """The next event; None after the last. With `autoreset`, the next call returns the event after it."""
        while True:
            try:
                event = self._decode(self.get())
            except OSError as exc:
                if exc.errno in (errno.ENODATA, errno.ECANCELED):
                    return None
                raise
            if autoreset or event is None:
                self.reset()
            if event is not None:
                return event

    def _decode(self, answer: Dict[str, Any]) -> Any:
        """The event of a response; None if it is to be skipped."""
        return EventLogEvent(answer["event"])


def event_watch_async(flux_handle: Flux, jobid: Any, eventlog: str = "eventlog") -> JobEventWatchFuture:
    """A future for all past and future events of the job; its callback runs for each, and at the end."""
    body = {"id": to_id(jobid), "path": eventlog, "flags": 0}
    return JobEventWatchFuture(flux_handle, connection(flux_handle).stream("job-info.eventlog-watch", body))


def event_wait(
    flux_handle: Flux, jobid: Any, name: str, eventlog: str = "eventlog", raiseJobException: bool = True
) -> EventLogEvent:
    """Wait for event `name`.

    Raises JobException after a fatal exception, OSError(ENODATA) if the log ends without the event.
    """
    for event in event_watch(flux_handle, jobid, eventlog):
        if event.name == name:
            return event
        if raiseJobException and is_fatal(event.name, event.context):
            raise JobException(event)
    raise OSError(errno.ENODATA, f"job {JobID(to_id(jobid))} event {name} will never be received")


def first_exception(events: Any) -> Optional[JobException]:
    """The first fatal exception among `events`, if any."""
    for event in events:
        if is_fatal(event.name, event.context):
            return JobException(event)
    return None
