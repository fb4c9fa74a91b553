"""Eventlogs as text (`TIMESTAMP NAME KEY=VALUE…`) or JSON lines.

Times are optionally in the form of `dmesg -H`.
"""

from __future__ import annotations

import json
import time

from headrace.formats.spec import eventlog
from headrace.wire.query import QueryError
from headrace.wire.query.color import stdout_colored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

_TIME, _BREAK, _NAME, _EXCEPTION = "\033[32m", "\033[1m\033[32m", "\033[33m", "\033[1m\033[31m"
_KEY, _VALUE, _NUMBER, _OFF = "\033[34m", "\033[35m", "\033[37m", "\033[0m"


class HumanTime:
    """Times as `[Nov21 00:51]` for the first event of a minute, then as `[  +0.011926]` since that event."""

    __slots__ = ("_base", "_minute", "breaks")

    def __init__(self) -> None:
        self._base = 0.0
        self._minute = ""
        self.breaks = False

    def show(self, timestamp: float) -> str:
        """The time as text. Sets `breaks`, which is True if the time is the first of its minute."""
        now = time.localtime(timestamp)
        minute = time.strftime("%Y-%m-%d %H:%M", now)
        self.breaks = minute != self._minute
        if not self.breaks:
            return f"[{timestamp - self._base:>+11.6f}]"
        self._base, self._minute = timestamp, minute
        return time.strftime("[%b%d %H:%M]", now)


class DeltaTime(HumanTime):
    """Like HumanTime, but further times of a minute are relative to the previous line."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0

    def show(self, timestamp: float) -> str:
        since, self._last = timestamp - self._last, timestamp
        shown = super().show(timestamp)
        return shown if self.breaks else f"[{since:>+11.6f}]"


class Formatter:
    """Formats one eventlog's events in order: `form` is text or json, `times` raw, iso, offset or human.

    Raises QueryError for any other value. Colors are those of Flux: the names of events, and in red those of
    exceptions.
    """

    __slots__ = ("_colored", "_human", "_json", "_start", "_times")

    def __init__(self, form: str = "text", times: str = "raw", colored: bool = False) -> None:
        self._times = "human" if times == "reltime" else times
        if form not in ("text", "json"):
            raise QueryError(f"invalid format type '{form}'")
        if self._times not in ("raw", "iso", "offset", "human"):
            raise QueryError(f"invalid time-format '{self._times}'")
        self._json = form == "json"
        self._colored = colored
        self._human = HumanTime()
        self._start = -1.0

    def start_at(self, timestamp: float) -> None:
        """Set the time that offsets are relative to; the default is the first event formatted."""
        if self._start < 0:
            self._start = timestamp

    def line(self, event: Any) -> str:
        """Format an event as a line with a newline."""
        self.start_at(event.timestamp)
        if self._json:
            return str(eventlog.encode(event))
        shown = self._time(event.timestamp)
        if not self._colored:
            return f"{shown} {text(event)}\n"
        stamp = _BREAK if self._times == "human" and self._human.breaks else _TIME
        return f"{stamp}{shown}{_OFF} {_colored_text(event)}\n"

    def _time(self, timestamp: float) -> str:
        if self._times == "human":
            return self._human.show(timestamp)
        if self._times == "iso":
            there = time.localtime(timestamp)
            return f"{time.strftime('%Y-%m-%dT%H:%M:%S', there)}.{int(timestamp % 1 * 1e6):06d}{_zone(there)}"
        if self._times == "offset":
            return f"{timestamp - self._start:.6f}"
        return f"{timestamp:.6f}"


def _zone(there: time.struct_time) -> str:
    """`Z`, or the time zone's offset as `+01:00`."""
    minutes = there.tm_gmtoff // 60
    if not minutes:
        return "Z"
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def wants_color(when: str) -> bool:
    """True if stdout is to be colored with `--color=WHEN`. Raises QueryError."""
    if when not in ("always", "never", "auto"):
        raise QueryError(f"Invalid argument to --color: {when}: use always, never or auto")
    return stdout_colored(when)


def _pairs(event: Any) -> List[Tuple[str, str]]:
    """The context's keys with their values as JSON."""
    return [
        (key, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
        for key, value in (event.context or {}).items()
    ]


def text(event: Any) -> str:
    """Name and context of an event: `submit userid=0 urgency=16`."""
    return " ".join([str(event.name), *[f"{key}={value}" for key, value in _pairs(event)]])


def _colored_text(event: Any) -> str:
    words = [f"{_EXCEPTION if event.name == 'exception' else _NAME}{event.name}{_OFF}"]
    for key, value in _pairs(event):
        tint = _NUMBER if isinstance(event.context[key], (int, float)) and value not in ("true", "false") else _VALUE
        words.append(f"{_KEY}{key}{_OFF}={tint}{value}{_OFF}")
    return " ".join(words)


def split_match(option: str) -> Tuple[str, str]:
    """KEY and VALUE of `--match-context`. Raises QueryError."""
    key, sep, value = option.partition("=")
    if not sep or not key:
        raise QueryError("must specify a context test as key=value")
    return key, value


def matches(event: Any, key: str, value: str) -> bool:
    """True if the event's context has `key` with this value, given as JSON or as plain text."""
    if not event.context or key not in event.context:
        return False
    found = event.context[key]
    return value in (json.dumps(found, separators=(",", ":")), str(found))
