"""`flux logger`: append a message to the broker's log."""

from __future__ import annotations

import os
import time

from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command
from headrace.client.handle import Handle
from headrace.spec.message import request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-logger: "

_COMMAND = Command(
    "flux-logger",
    "[OPTIONS] message ...",
    "create a flux log entry",
    (
        ("s", "severity", "LEVEL", "Set the severity of the message (default: notice)"),
        ("n", "appname", "NAME", "Set the application name (default: logger)"),
    ),
)
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_USER_FACILITY = 1 << 3


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    words = options.need(1)
    level = options.get("severity", "notice")
    if level not in _SEVERITIES:
        raise CommandError(f"invalid severity: {level}: use one of {', '.join(_SEVERITIES)}")
    handle = Handle()
    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06d}Z"
    app = options.get("appname", "logger")
    rank = handle.attr_get("rank")
    line = f"<{_USER_FACILITY | _SEVERITIES.index(level)}>1 {stamp} {rank} {app} {os.getpid()} - - {' '.join(words)}"
    # Real brokers do not answer log.append; the next answer shows that it was taken.
    handle.send(request("log.append", payload=line.encode()))
    handle.attr_get("size")
    return 0
