"""`flux job cancelall`, `killall`, `raiseall`: one request for all jobs of a user.

Without `--force` the jobs are only counted.
"""

from __future__ import annotations

import signal
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.control import signal_option
from headrace.formats.spec.job_exception import CANCEL, FATAL, SEVERITIES
from headrace.formats.spec.message import USERID_UNKNOWN
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query.listing import STATE_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options

_USER = ("u", "user", "USER", "Jobs of this user, or all (owner of the instance only)")
_FORCE = ("f", "force", "", "Act on the jobs instead of only counting them")
_KILLALL = Command(
    "flux-job killall",
    "[OPTIONS]",
    "Send a signal to every running job of a user",
    (_USER, ("s", "signal", "SIG", "The signal, by name or number (default: SIGTERM)"), _FORCE),
)
_RAISEALL = Command(
    "flux-job raiseall",
    "OPTIONS type [message ...]",
    "Raise an exception on every job of a user; severity 0 ends them",
    (
        _USER,
        ("S", "states", "STATES", "Only jobs in these states (default: all that have not ended)"),
        ("s", "severity", "N", "From 0 (ends the jobs) to 7 (informational, the default)"),
        _FORCE,
    ),
)
_CANCELALL = Command(
    "flux-job cancelall",
    "[OPTIONS] [message ...]",
    "Cancel every job of a user",
    (
        _USER,
        ("S", "states", "STATES", "Only jobs in these states (default: all that have not ended)"),
        _FORCE,
        ("q", "quiet", "", "Print nothing if no job matches"),
    ),
)


def _user(options: Options) -> int:
    """The userid that `--user` names, by default the caller's. Raises CommandError."""
    text = options.get("user")
    if not text:
        return own_userid()
    if text == "all":
        return USERID_UNKNOWN
    if text.isdigit():
        return int(text)
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise CommandError(f"unknown user {text}") from None


def _send(topic: str, request: Dict[str, Any], options: Options, done: str) -> int:
    force = options.has("force")
    try:
        answer = Handle().rpc(topic, {**request, "userid": _user(options), "dry_run": not force}).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    if not answer["count"]:
        if not options.has("quiet"):
            sys.stderr.write("flux-job: Command matched 0 jobs\n")
    elif force:
        sys.stderr.write(f"flux-job: {done} {answer['count']} jobs ({answer['errors']} errors)\n")
    else:
        sys.stderr.write(f"flux-job: Command matched {answer['count']} jobs (-f to confirm)\n")
    return 1 if answer["errors"] else 0


def killall(argv: List[str]) -> int:
    options = _KILLALL.parse(argv)
    options.need(0, 0)
    signum = signal_option(options, "killall")
    # The summary names the signal: "Terminated 3 jobs (0 errors)".
    return _send("job-manager.killall", {"signum": signum}, options, signal.strsignal(signum) or f"Signal {signum} to")


def cancelall(argv: List[str]) -> int:
    options = _CANCELALL.parse(argv)
    return _raise(options, CANCEL, FATAL, options.need(0), "Canceled")


def raiseall(argv: List[str]) -> int:
    options = _RAISEALL.parse(argv)
    kind, *words = options.need(1)
    severity = options.get_int("severity", 7)
    if severity not in SEVERITIES:
        raise CommandError("Invalid severity: it must be from 0 to 7")
    return _raise(options, kind, severity, words, "Raised exception on")


def _raise(options: Options, kind: str, severity: int, words: List[str], done: str) -> int:
    states = 0
    for name in options.get("states", "active").lower().split(","):
        if name not in STATE_NAMES or name == "inactive":
            raise CommandError(f"error parsing states: {name} unknown")
        states |= STATE_NAMES[name]
    request: Dict[str, Any] = {"states": states, "severity": severity, "type": kind}
    if words:
        request["note"] = " ".join(words)
    return _send("job-manager.raiseall", request, options, done)
