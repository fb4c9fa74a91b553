"""`flux.resource.ResourceJournalConsumer`: all events of the resource service (RFC 44)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from flux._journal import JournalConsumerBase
from flux.job.event import EventLogEvent

if TYPE_CHECKING:
    from flux.core.handle import Flux


class ResourceJournalEvent(EventLogEvent):
    """An event; `resource-define` has the resources as `R` (otherwise None)."""

    def __init__(self, event: Dict[str, Any], R: Any = None) -> None:
        super().__init__(event)
        self.R = R

    def is_empty(self) -> bool:
        """True for the sentinel between past and new events."""
        return not self.name

    def __str__(self) -> str:
        if self.is_empty():
            return "-1: End of historical data stream"
        extra = f" R={self.R}" if self.R else ""
        return f"t={self.timestamp:.6f} {self.name} {self.context_string}".rstrip() + extra


class ResourceJournalConsumer(JournalConsumerBase):
    """Events of resources since time `since`.

    `include_sentinel` adds an event without a name after the past events. Read events with `poll`, or register a
    callback.
    """

    SENTINEL_EVENT = ResourceJournalEvent({"timestamp": 0.0, "name": ""})
    _topic = "resource.journal"

    def __init__(self, flux_handle: Flux, since: float = 0.0, include_sentinel: bool = False) -> None:
        super().__init__(flux_handle, None, since, include_sentinel)

    def _read(self, body: Dict[str, Any]) -> List[EventLogEvent]:
        return [
            ResourceJournalEvent(event, body.get("R") if event["name"] == "resource-define" else None)
            for event in body.get("events", ())
        ]
