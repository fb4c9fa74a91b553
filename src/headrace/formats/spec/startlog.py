"""The record of an instance's starts and ends: an eventlog (RFC 18) under the KVS key `admin.eventlog`.

A `start` event has in its context the `version` of this form and the `core_version` of the broker, a `finish` event the
`version`. A start that follows a start tells that the instance before was not shut down: it was killed, or its machine
was. Events of a later version and other events are passed over.
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

    `start` and `end` are seconds since the epoch, `end` is None for a run that goes on or crashed.
    """

    __slots__ = ("core_version", "crashed", "end", "start")

    def __init__(self, start: float, core_version: str) -> None:
        self.start = start
        self.core_version = core_version
        self.end: Optional[float] = None
        self.crashed = False

    @property
    def goes_on(self) -> bool:
        return self.end is None and not self.crashed


def start_event(now: float, core_version: str) -> Event:
    """The event of a start at `now`, seconds since the epoch."""
    return Event(now, "start", {"version": VERSION, "core_version": core_version})


def finish_event(now: float) -> Event:
    """The event of an orderly end at `now`, seconds since the epoch."""
    return Event(now, "finish", {"version": VERSION})


def runs(events: Iterable[Event]) -> List[Run]:
    """The runs that the events tell of, the first one first."""
    found: List[Run] = []
    for event in events:
        context = event.context or {}
        version = context.get("version")
        if type(version) is not int or not 0 <= version <= VERSION:
            continue
        last = found[-1] if found and found[-1].goes_on else None
        if event.name == "start":
            if last is not None:
                last.crashed = True
            found.append(Run(event.timestamp, str(context.get("core_version", ""))))
        elif event.name == "finish" and last is not None:
            last.end = event.timestamp
    return found


def follows_a_crash(found: List[Run]) -> bool:
    """Whether the last run goes on and the one before it crashed."""
    return len(found) > 1 and found[-1].goes_on and found[-2].crashed
