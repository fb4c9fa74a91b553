"""Eventlogs as text: `TIMESTAMP NAME KEY=VALUE…`, JSON lines, or times for people (as dmesg -H gives them)."""

from __future__ import annotations

import json
import sys
import time

from headrace.cli.errors import CommandError
from headrace.spec import eventlog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from headrace.cli.getopts import Options

# Options that every command with an eventlog takes.
OPTIONS = (
    ("f", "format", "FORMAT", "Specify output format: text, json"),
    ("T", "time-format", "FORMAT", "Specify time format: raw, iso, offset, human"),
    ("H", "human", "", "Display human-readable output"),
    ("L", "color", "[WHEN]", "Colorize output when supported"),
)
_MINUTE = 60.0


class HumanTime:
    """Times as `[Nov21 00:51]` for the first event of a minute, then as `[  +0.011926]` since that one."""

    __slots__ = ("_base",)

    def __init__(self) -> None:
        self._base = 0.0

    def show(self, timestamp: float) -> str:
        if self._base and 0 <= timestamp - self._base < _MINUTE:
            return f"[{timestamp - self._base:>+11.6f}]"
        self._base = timestamp
        return time.strftime("[%b%d %H:%M]", time.localtime(timestamp))


class Formatter:
    """Formats one eventlog's events in order: `form` is text or json, `times` raw, iso, offset or human.

    Raises CommandError for anything else.
    """

    __slots__ = ("_human", "_json", "_start", "_times")

    def __init__(self, form: str = "text", times: str = "raw") -> None:
        self._times = times
        if form not in ("text", "json"):
            raise CommandError(f"invalid format type '{form}'")
        if self._times not in ("raw", "iso", "offset", "human", "reltime"):
            raise CommandError(f"invalid time-format '{self._times}'")
        self._json = form == "json"
        self._human = HumanTime()
        self._start = -1.0

    def start_at(self, timestamp: float) -> None:
        """Fix what offsets count from; else it is the first event shown."""
        if self._start < 0:
            self._start = timestamp

    def line(self, event: Any) -> str:
        """One line, with its newline."""
        self.start_at(event.timestamp)
        if self._json:
            return str(eventlog.encode(event))
        return f"{self._time(event.timestamp)} {text(event)}\n"

    def _time(self, timestamp: float) -> str:
        if self._times == "human":
            return self._human.show(timestamp)
        if self._times == "iso":
            whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(timestamp))
            return f"{whole}.{int(timestamp % 1 * 1e6):06d}Z"
        if self._times == "offset":
            return f"{timestamp - self._start:.6f}"
        return f"{timestamp:.6f}"


def formatter(options: Options) -> Formatter:
    """The formatter that a command's options (OPTIONS) ask for."""
    times = "human" if options.has("human") else options.get("time-format", "raw")
    return Formatter(options.get("format", "text"), times)


def text(event: Any) -> str:
    """Name and context of an event: `submit userid=0 urgency=16`."""
    if not event.context:
        return str(event.name)
    return f"{event.name} " + " ".join(
        f"{key}={json.dumps(value, separators=(',', ':'), ensure_ascii=False)}" for key, value in event.context.items()
    )


def split_match(option: str) -> Tuple[str, str]:
    """KEY and VALUE of `--match-context`. Raises CommandError."""
    key, sep, value = option.partition("=")
    if not sep or not key:
        raise CommandError("must specify a context test as key=value")
    return key, value


def matches(event: Any, key: str, value: str) -> bool:
    """Whether the event's context holds `key` with this value, written as JSON or as plain text."""
    if not event.context or key not in event.context:
        return False
    found = event.context[key]
    return value in (json.dumps(found, separators=(",", ":")), str(found))


def write(text: str) -> None:
    """Write and flush: what follows an eventlog wants each event as it comes."""
    sys.stdout.write(text)
    sys.stdout.flush()
