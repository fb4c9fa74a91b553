"""The log of an instance's starts and ends: an eventlog (RFC 18) under the KVS key `admin.eventlog`.

The context of a `start` event has the `version` of this format and the `core_version` of the broker; the context of a
`finish` event has the `version`. Two successive `start` events mean that the earlier run crashed: the broker was killed
or its machine failed. Other events, and events of a later version, are ignored.
"""

from __future__ import annotations

from headrace.formats.spec.eventlog import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Optional

KEY = "admin.eventlog"
VERSION = 1


class Run:
    """One run of an instance.

    `start` and `end` are seconds since the epoch; `end` is None for a run that is active or crashed.
    """

    __slots__ = ("core_version", "crashed", "end", "start")

    def __init__(self, start: float, core_version: str) -> None:
        self.start = start
        self.core_version = core_version
        self.end: Optional[float] = None
        self.crashed = False

    @property
    def is_active(self) -> bool:
        return self.end is None and not self.crashed


def start_event(now: float, core_version: str) -> Event:
    """The event for a start at `now`, seconds since the epoch."""
    return Event(now, "start", {"version": VERSION, "core_version": core_version})


def finish_event(now: float) -> Event:
    """The event for an orderly shutdown at `now`, seconds since the epoch."""
    return Event(now, "finish", {"version": VERSION})


def runs(events: Iterable[Event]) -> List[Run]:
    """The runs that the events record, oldest first."""
    found: List[Run] = []
    for event in events:
        context = event.context or {}
        version = context.get("version")
        if type(version) is not int or not 0 <= version <= VERSION:
            continue
        last = found[-1] if found and found[-1].is_active else None
        if event.name == "start":
            if last is not None:
                last.crashed = True
            found.append(Run(event.timestamp, str(context.get("core_version", ""))))
        elif event.name == "finish" and last is not None:
            last.end = event.timestamp
    return found


def follows_a_crash(found: List[Run]) -> bool:
    """True if the last run is active and the run before it crashed."""
    return len(found) > 1 and found[-1].is_active and found[-2].crashed
