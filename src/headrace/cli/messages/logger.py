"""`flux logger`: appends a message, or the lines of standard input, to the broker's log."""

from __future__ import annotations

import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec.message import request
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-logger: "

_COMMAND = Command(
    "flux-logger",
    "[OPTIONS] [message ...]",
    "Write a line to the broker's log",
    (
        ("s", "severity", "LEVEL", "Severity: emerg, alert, crit, err, warning, notice (default), info or debug"),
        ("n", "appname", "NAME", "Name of the application (default: logger)"),
    ),
)
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_USER_FACILITY = 1 << 3


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    words = options.need(0)
    level = options.get("severity", "notice")
    if level not in _SEVERITIES:
        raise CommandError(f"invalid severity: {level}: use one of {', '.join(_SEVERITIES)}")
    app = options.get("appname", "logger")
    if not app.isprintable() or len(app.split()) != 1:
        raise CommandError(f"invalid appname: {app!r}: use one word")
    handle = Handle()
    head = f"<{_USER_FACILITY | _SEVERITIES.index(level)}>1"
    name = f"{handle.attr_get('rank')} {app} {os.getpid()} - -"
    data = os.fsencode(" ".join(words)) if words else sys.stdin.buffer.read()
    # Each line is an entry. With line breaks in an entry, a user could forge entries of others.
    for text in data.decode("utf-8", "replace").splitlines():
        if text.strip("\r\n\0"):
            # Flux's brokers do not respond to log.append. The response to the next request shows that it was processed.
            handle.send(request("log.append", payload=f"{head} {_stamp(time.time())} {name} {text}".encode()))
    handle.attr_get("size")
    return 0


def _stamp(now: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06d}Z"
