"""Schedules of cron entries: dates given by calendar fields, and numbers of events. Pure.

Times are seconds since the epoch. As in Flux, calendar fields have the origins of C's `struct tm`: months count from 0,
years from 1900, and weekdays from Sunday (0).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
# The fields of a date, with their lowest and highest values.
FIELDS = {
    "second": (0, 60),
    "minute": (0, 59),
    "hour": (0, 23),
    "mday": (1, 31),
    "month": (0, 11),
    "year": (0, 3000),
    # Sunday has two numbers in crontab(5).
    "weekday": (0, 7),
}
_NAMES = {"month": _MONTHS, "weekday": _WEEKDAYS}
# If a date does not occur in this many years, it never occurs, like February 30. Leap years are at most eight years
# apart.
_HORIZON = 9


class ScheduleError(ValueError):
    """Arguments that are not a valid schedule. The message names the field."""


class Dates:
    """The dates on which all calendar fields match. A field that is not given always matches."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """Parse fields. Each is a number, or text as in crontab(5): `*`, `1,2`, `8-17`, `*/15`, `mon-fri`."""
        self.texts = {name: str(fields.get(name, "*")) for name in FIELDS}
        self._sets = {name: _values(name, text) for name, text in self.texts.items()}

    def next_after(self, now: float) -> float | None:
        """The first matching second after `now`; None if there is none."""
        here = datetime.fromtimestamp(int(now) + 1)
        years = self._sets["year"]
        last = here.year + _HORIZON if years is None else max(years) + 1900
        while here.year <= last:
            following = self._step(here)
            if following is not None:
                here = following
            elif here.timestamp() > now:
                return here.timestamp()
            else:
                # The clock was set back at the end of daylight saving time and shows this hour again.
                here += timedelta(seconds=1)
        return None

    def _step(self, here: datetime) -> datetime | None:
        """None if the date matches, else the next date that may match."""
        midnight = here.replace(hour=0, minute=0, second=0)
        if not self._has("year", here.year - 1900):
            return midnight.replace(year=here.year + 1, month=1, day=1)
        if not self._has("month", here.month - 1):
            return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
        if not (self._has("mday", here.day) and self._has("weekday", here.isoweekday() % 7)):
            return midnight + timedelta(days=1)
        if not self._has("hour", here.hour):
            return here.replace(minute=0, second=0) + timedelta(hours=1)
        if not self._has("minute", here.minute):
            return here.replace(second=0) + timedelta(minutes=1)
        return None if self._has("second", here.second) else here + timedelta(seconds=1)

    def _has(self, name: str, value: int) -> bool:
        values = self._sets[name]
        return values is None or value in values


def _values(name: str, text: str) -> frozenset[int] | None:
    """The values of a field; None means all. Raises ScheduleError."""
    if text == "*":
        return None
    low, high = FIELDS[name]
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = _value(name, first, text)
            end = _value(name, last, text) if dash else high if slash else begin
        if slash and not (step.isascii() and step.isdigit() and int(step)):
            raise ScheduleError(f"{name}: '{text}' has the step '{step}', it must be a number above 0")
        if not low <= begin <= end <= high:
            raise ScheduleError(f"{name}: '{text}' is not in the range of {low}-{high}")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(value % 7 for value in found) if name == "weekday" else frozenset(found)


def _value(name: str, text: str, item: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    for number, known in enumerate(_NAMES.get(name, ())):
        if len(text) >= 3 and known.startswith(text.lower()):
            return number
    raise ScheduleError(f"{name}: '{item}' is neither a number nor a range, a list or *")


class Events:
    """The events after which an entry is due: the event number `after`, then every `nth` event."""

    def __init__(self, nth: int, after: int) -> None:
        self.nth = nth
        self.after = after
        self.counter = 0

    def came(self) -> bool:
        """Count an event. True if the entry is due."""
        self.counter += 1
        if self.counter < self.after:
            return False
        return not (self.nth and (self.counter - self.after) % self.nth)
