"""`flux dmesg`: shows the broker's ring buffer of log messages."""

from __future__ import annotations

import calendar
import errno
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.eventlog_options import option_wants_color
from headrace.cli.common.getopts import Command
from headrace.wire.client.handle import Handle, response_error
from headrace.wire.query.eventlog_format import DeltaTime, HumanTime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

PREFIX = "flux-dmesg: "

_COMMAND = Command(
    "flux-dmesg",
    "[OPTIONS]",
    "Print, follow or clear this broker's log",
    (
        ("C", "clear", "", "Clear the log and print nothing"),
        ("c", "read-clear", "", "Print the log, then clear it"),
        ("f", "follow", "", "Print the log, then new lines as they come"),
        ("n", "new", "", "Print only new lines as they come"),
        ("H", "human", "", "Print short times, with the date when a new minute begins"),
        ("d", "delta", "", "With --human, print the time since the previous line"),
        ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
    ),
)
_TIME, _BREAK, _NAME, _OFF = "\033[32m", "\033[1m\033[32m", "\033[33m", "\033[0m"
# Escape sequences for the text of a message, by severity.
_TINTS = {
    "emerg": "\033[1m\033[7m\033[31m",
    "alert": "\033[7m\033[31m",
    "crit": "\033[1m\033[31m",
    "err": "\033[31m",
    "warning": "\033[1m",
    "debug": "\033[34m",
}
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    options.need(0, 0)
    if options.has("delta") and not options.has("human"):
        raise CommandError("--delta can only be used with --human")
    colored = option_wants_color(options)
    handle = Handle()
    if not options.has("clear"):
        human = None
        if options.has("human"):
            human = DeltaTime() if options.has("delta") else HumanTime()
        follow = options.has("follow") or options.has("new")
        call = handle.stream("log.dmesg", {"follow": follow, "nobacklog": options.has("new")})
        while True:
            msg = call.next_message()
            if msg.errnum == errno.ENODATA:
                break
            if msg.errnum:
                raise response_error(msg)
            sys.stdout.write(format_line(msg.text, human, colored) + "\n")
            if follow:
                sys.stdout.flush()
    if options.has("clear") or options.has("read-clear"):
        handle.rpc("log.clear").get()
    return 0


def format_line(line: str, human: Optional[HumanTime], colored: bool = False) -> str:
    """Format a log line as `TIME APPNAME.SEVERITY[RANK]: TEXT`; `human` formats the time if it is given."""
    stamp, severity, app, rank, text = split(line)
    shown = local_stamp(stamp) if human is None else human.show(_seconds(stamp))
    if not colored:
        return f"{shown} {app}.{severity}[{rank}]: {text}"
    time_tint = _BREAK if human is not None and human.breaks else _TIME
    tint = _TINTS.get(severity, "")
    said = f"{tint}{text}{_OFF}" if tint else text
    return f"{time_tint}{shown}{_OFF} {_NAME}{app}.{severity}[{rank}]{_OFF}: {said}"


def split(line: str) -> Tuple[str, str, str, str, str]:
    """Split an RFC 5424 line `<PRI>1 TIME HOST APP PID MSGID - TEXT`.

    Returns (time, severity, application, rank, text).
    """
    priority, _, rest = line.partition(">")
    words = rest.split(" ", 7)
    severity = _SEVERITIES[int(priority[1:]) & 7]
    return words[1], severity, words[3], words[2], words[7].strip("\n\0") if len(words) > 7 else ""


def local_stamp(text: str) -> str:
    """A time of the log in the local time zone, with its offset (RFC 3339), or `Z` if that is UTC."""
    seconds = _seconds(text)
    now = time.localtime(seconds)
    if not now.tm_gmtoff:
        return text
    minutes = abs(now.tm_gmtoff) // 60
    offset = f"{'-' if now.tm_gmtoff < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    fraction = text.rstrip("Z").partition(".")[2]
    return time.strftime("%Y-%m-%dT%H:%M:%S", now) + (f".{fraction}" if fraction else "") + offset


def _seconds(text: str) -> float:
    """Seconds since the epoch of `2026-11-21T05:37:24.123456Z`."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))
