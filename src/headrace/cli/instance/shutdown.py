"""The end of an instance: `flux shutdown` and `flux admin cleanup-push`.

`flux shutdown` stops an instance and shows its log meanwhile. `flux admin cleanup-push` registers commands that run
after the initial program.
"""

from __future__ import annotations

import errno
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options


PREFIX = "flux-{name}: "

_SHUTDOWN = Command(
    "flux-shutdown",
    "[OPTIONS] [TARGET]",
    "Stop an instance; its jobs are canceled",
    (
        ("", "background", "", "Return as soon as the shutdown has begun"),
        ("", "dump", "FILE", "Write an archive of the instance for flux restore (auto: in the statedir)"),
        ("", "skip-gc", "", "Write no archive, even if content.dump is set"),
        ("", "quiet", "", "Print only warnings and errors of the log meanwhile"),
        ("v", "verbose", "[LEVEL]", "Print the whole log meanwhile (0: without debug lines, the default)"),
    ),
)
_INFO, _WARNING, _DEBUG = 6, 4, 7


def _shutdown(argv: List[str]) -> int:
    options = _SHUTDOWN.parse(argv)
    operands = options.need(0, 1)
    if operands:
        from headrace.wire.query.uri import resolve

        handle = Handle(resolve(operands[0]))
    else:
        handle = Handle()
    if handle.attr_get("rank") != "0":
        raise CommandError("shutdown may only be run on the rank 0 broker")
    verbose = options.has("verbose") and options.get("verbose") != "0"
    level = _WARNING if options.has("quiet") else _DEBUG if verbose else _INFO
    request: Dict[str, Any] = {"loglevel": level}
    _set_dump(handle, options)
    if options.has("background"):
        handle.rpc("shutdown.start", request).get()
        return 0
    return _follow(handle, request)


def _set_dump(handle: Handle, options: Options) -> None:
    """Set the instance's attribute content.dump by the options. Raises CommandError."""
    path = options.get("dump")
    if options.has("skip-gc"):
        path = ""
    elif not path:
        return
    if path and path != "auto":
        # The broker may run in another directory.
        path = os.path.abspath(path)
    try:
        handle.rpc("attr.set", {"name": "content.dump", "value": path}).get()
    except OSError as exc:
        raise CommandError(f"error setting content.dump: {exc.strerror}") from None
    if path:
        sys.stderr.write(f"flux-shutdown: shutdown will dump KVS to {path} (this may take some time)\n")


def _follow(handle: Handle, request: Dict[str, Any]) -> int:
    """Start the shutdown and show log lines until the broker closes the connection."""
    call = handle.stream("shutdown.start", request)
    try:
        for answer in call:
            line = (answer or {}).get("log")
            if line:
                sys.stderr.write(line if line.endswith("\n") else line + "\n")
    except OSError as exc:
        if exc.errno not in (errno.ECONNRESET, errno.EPIPE):
            raise CommandError(str(exc.strerror)) from None
    return 0


_ADMIN = {"cleanup-push": ("Register commands that run after the initial program", None)}
_PUSH = Command(
    "flux-admin cleanup-push",
    "[COMMAND ARGS...]",
    "Register a command to run at cleanup; without COMMAND, each line of standard input is one",
    (),
)


def _admin(argv: List[str]) -> int:
    _name, rest = dispatch("flux-admin", argv, _ADMIN)
    words = _PUSH.parse(rest, stop_early=True).need(0)
    commands = [" ".join(words)] if words else [line.strip() for line in sys.stdin if line.strip()]
    # Each command is put before earlier ones. Reversed, so that the commands of one call run in their given order.
    body = {"name": "cleanup", "commands": commands[::-1]}
    Handle().rpc("runat.push", body).get()
    return 0


def main(argv: List[str], name: str) -> int:
    return _admin(argv) if name == "admin" else _shutdown(argv)
