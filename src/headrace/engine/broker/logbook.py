"""The broker's log: a ring of RFC 5424 lines.

Lines are copied to stderr, a file and the leader. `flux dmesg -f` follows the ring.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from .attrs import AttrError, AttrTable

LEVEL_NAMES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_FROM_LOGGING = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_FACILITY_USER = 1 << 3
# The source in the log lines of guests, and their highest severity.
GUEST, _GUEST_SEVERITY = "user", 6
# Longer lines are cut to this many characters: with the ring's limit in lines, this bounds its memory.
_LONGEST = 8 << 10


def severity(level: int) -> int:
    """Convert a syslog severity or a level of the logging module to a syslog severity."""
    return _FROM_LOGGING.get(level, min(max(level, 0), 7))


def format_line(level: int, host: str, appname: str, text: str, now: float) -> str:
    """One RFC 5424 line without newline. `host` is the broker's rank, as in Flux."""
    stamp = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).isoformat("T", "microseconds")[:26]
    return f"<{_FACILITY_USER | level}>1 {stamp}Z {host} {appname} - - - {text}"


def parse_line(line: str) -> tuple[int, str, str, str, str]:
    """Split a line of `format_line` into (severity, timestamp, host, appname, text).

    Raises ValueError for any other line.
    """
    head, stamp, host, appname, _procid, _msgid, _data, text = line.split(" ", 7)
    if not head.startswith("<") or ">" not in head:
        raise ValueError(f"not a syslog line: {line!r}")
    return int(head[1 : head.index(">")]) & 7, stamp, host, appname, text


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(char if char.isprintable() else " " for char in line)


def _parse(line: str) -> tuple[int, str, str, str, str]:
    """Parse a line as `parse_line` does. Raises ValueError(EPROTO)."""
    try:
        return parse_line(line)
    except ValueError:
        raise ValueError(errno.EPROTO) from None


class Logbook:
    """Log of one broker. Raises AttrError for an invalid log-* attribute."""

    def __init__(self, attrs: AttrTable, rank: int) -> None:
        self.rank = rank
        self._attrs = attrs
        self.ring: deque[str] = deque(maxlen=int(attrs.get("log-ring-size", "1024")))
        attrs.watchers.append(self._changed)
        # The number of lines ever added to the ring. The newest line has this number minus one.
        self.count = 0
        self.level = int(attrs.get("log-level", "7"))
        self.stderr_level = int(attrs.get("log-stderr-level", "3"))
        self.critical_level = int(attrs.get("log-critical-level", "2"))
        self.followers: list[Callable[[str], None]] = []
        # Sends a line to the leader: severity, line, and the userid of a guest (None: the broker's own line).
        self.forward: Callable[[int, str, int | None], None] | None = None
        # Sends the lines that wait to be forwarded.
        self.flush: Callable[[], None] = lambda: None
        self._file: TextIO | None = None
        # The instance has one log file, on the leader. Followers forward their lines.
        if rank == 0 and attrs.get("log-filename"):
            try:
                self._file = open(
                    attrs.get("log-filename"), "a", buffering=1, encoding="utf-8", errors="backslashreplace"
                )
            except OSError as exc:
                raise AttrError(f"log-filename: {exc.filename}: {exc.strerror}") from None

    def __call__(self, level: int, appname: str, text: str) -> None:
        level, host = severity(level), str(self.rank)
        for piece in text.rstrip("\n").split("\n"):
            line = format_line(level, host, appname, piece, time.time())
            self._add(line, level, line.split(" ", 2)[1], host, appname, piece, True)

    def append(self, line: str, local: bool = True) -> None:
        """Add a formatted line. Lines from another rank are not forwarded.

        Line breaks and control characters become spaces, since they could fake other lines or control a terminal.
        Raises ValueError for an invalid line.
        """
        line = _printable(line)
        self._add(line, *_parse(line), local)

    def append_for(self, userid: int, line: str) -> None:
        """Add the line of a guest on this rank. Raises ValueError.

        The broker sets rank, time and source, so that the line cannot pass for another, and the severity is `info` or
        lower. The source that the guest gave becomes part of the text.
        """
        level, _stamp, _host, appname, text = _parse(_printable(line))
        level, host, text = max(level, _GUEST_SEVERITY), str(self.rank), f"{userid} {appname}: {text}"
        line = format_line(level, host, GUEST, text, time.time())
        self._add(line, level, line.split(" ", 2)[1], host, GUEST, text, True, userid)

    def _add(
        self,
        line: str,
        level: int,
        stamp: str,
        host: str,
        appname: str,
        text: str,
        local: bool,
        userid: int | None = None,
    ) -> None:
        if len(line) > _LONGEST:
            line, text = line[:_LONGEST] + " [cut]", text[:_LONGEST] + " [cut]"
        if level <= self.level:
            self.ring.append(line)
            self.count += 1
            for follower in list(self.followers):
                follower(line)
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.write(line + "\n")
        leader = self.rank == 0
        # Print a critical line on its own rank, since the connection to the leader may be the problem.
        mine = leader or self._attrs.get("log-stderr-mode") == "local"
        if (level <= self.stderr_level and mine) or (level <= self.critical_level and local):
            with contextlib.suppress(OSError, ValueError):
                # strptime() would import a module, which fails if the problem is a lack of descriptors.
                readable = stamp
                with contextlib.suppress(ValueError):
                    moment = datetime.datetime.fromisoformat(stamp.removesuffix("Z"))
                    readable = moment.strftime("%b %d %H:%M:%S.%f UTC %Y")
                print(f"{readable} {appname}.{LEVEL_NAMES[level]}[{host}]: {text}", file=sys.stderr, flush=True)
        if not leader and local and self.forward is not None and level <= int(self._attrs.get("log-forward-level")):
            self.forward(level, line, userid)

    def clear(self) -> None:
        self.ring.clear()

    def _changed(self, name: str, value: str | None) -> None:
        if name == "log-ring-size" and value is not None:
            self.ring = deque(self.ring, maxlen=int(value))
        elif name == "log-stderr-level" and value is not None:
            self.stderr_level = int(value)
        elif name == "log-critical-level" and value is not None:
            self.critical_level = int(value)
