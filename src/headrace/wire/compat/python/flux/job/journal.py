"""`flux.job.JournalConsumer`: one stream of all events of all jobs, beginning with past events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from flux._journal import JournalConsumerBase
from flux.job.event import EventLogEvent
from flux.job.JobID import JobID

if TYPE_CHECKING:
    from flux.core.handle import Flux


class JournalEvent(EventLogEvent):
    """An event with its `jobid`, and with `jobspec` and `R` if the event includes them, otherwise None."""

    def __init__(self, jobid: int, event: Dict[str, Any], jobspec: Any = None, R: Any = None) -> None:
        super().__init__(event)
        self.jobid = JobID(jobid)
        self.jobspec = jobspec
        self.R = R

    def is_empty(self) -> bool:
        """True for the sentinel between past and new events."""
        return not self.name

    def __str__(self) -> str:
        if self.is_empty():
            return "-1: End of historical data stream"
        extra = "".join(f" {name}={value}" for name, value in (("jobspec", self.jobspec), ("R", self.R)) if value)
        return f"{self.jobid.f58}: t={self.timestamp:.6f} {self.name} {self.context_string}".rstrip() + extra


# The event between past and new events.
SENTINEL_EVENT = JournalEvent(-1, {"timestamp": 0.0, "name": ""})


class JournalConsumer(JournalConsumerBase):
    """Events of jobs since time `since`; past events are sorted by time.

    `full` includes the events of inactive jobs. `include_sentinel` adds an event without a name after the past events.
    Read events with `poll`, or register a callback.
    """

    SENTINEL_EVENT = SENTINEL_EVENT
    _topic = "job-manager.events-journal"

    def __init__(
        self, flux_handle: Flux, full: bool = True, since: float = 0.0, include_sentinel: bool = False
    ) -> None:
        super().__init__(flux_handle, {"full": full}, since, include_sentinel)

    def _read(self, body: Dict[str, Any]) -> List[EventLogEvent]:
        # Only these events come with a jobspec or R.
        extra = {"submit": {"jobspec": body.get("jobspec")}, "alloc": {"R": body.get("R")}}
        return [JournalEvent(body["id"], event, **extra.get(event["name"], {})) for event in body.get("events", ())]
