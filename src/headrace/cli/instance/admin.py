"""`flux admin cleanup-push`: have commands run when the initial program has ended."""

from __future__ import annotations

import sys

from headrace.cli.common.getopts import Command, dispatch
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-admin: "

_TABLE = {"cleanup-push": ("Add commands that run when the initial program has ended", None)}
_PUSH = Command(
    "flux-admin cleanup-push",
    "[COMMAND ARGS...]",
    "Add a command to run at cleanup, or each line of standard input as one",
    (),
)


def main(argv: List[str]) -> int:
    _name, rest = dispatch("flux-admin", argv, _TABLE)
    words = _PUSH.parse(rest, stop_early=True).need(0)
    commands = [" ".join(words)] if words else [line.strip() for line in sys.stdin if line.strip()]
    # Each is put in front of those before; lines of one call run as they were given.
    body = {"name": "cleanup", "commands": commands[::-1]}
    Handle().rpc("runat.push", body).get()
    return 0
