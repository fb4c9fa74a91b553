"""`flux.eventlog`: events as lines of text, in the form of `flux job eventlog`."""

from __future__ import annotations

from typing import Any, Dict

from headrace.formats.spec.eventlog import Event
from headrace.wire.query.eventlog_format import Formatter, wants_color


class EventLogFormatter:
    """Formats the events of one eventlog in order.

    `format` is text or json, `timestamp_format` raw, iso, offset or human, `color` always, never or auto. Raises
    ValueError for any other value.
    """

    def __init__(self, format: str = "text", timestamp_format: str = "raw", color: str = "auto") -> None:
        self._formatter = Formatter(format, timestamp_format, wants_color(color))

    def format(self, entry: Dict[str, Any]) -> str:
        """One line, without a newline, for an entry (RFC 18)."""
        event = Event(entry["timestamp"], entry["name"], entry.get("context"))
        return self._formatter.line(event).rstrip("\n")
