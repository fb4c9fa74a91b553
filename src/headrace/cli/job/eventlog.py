"""`flux job info`, `eventlog` and `wait-event`: a job's data in the KVS, from job-info (RFC 41)."""

from __future__ import annotations

import errno
import sys
import time

from headrace.cli.common import eventlog_options
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.main import parse_id
from headrace.formats.spec import duration
from headrace.formats.spec.eventlog import decode, decode_line
from headrace.wire.client.handle import Handle
from headrace.wire.query import eventlog_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

_LOOKUP_CURRENT = 2
_SHORT_PATHS = {"exec": "guest.exec.eventlog", "output": "guest.output", "input": "guest.input"}

_INFO = Command(
    "flux-job info",
    "[OPTIONS] id key",
    "Print stored data of a job: jobspec, R, an eventlog ...",
    (
        ("o", "original", "", "Print the jobspec as it was submitted, before defaults were set"),
        ("b", "base", "", "Print jobspec or R without the updates in the job's eventlog"),
    ),
)
_EVENTLOG = Command(
    "flux-job eventlog",
    "[OPTIONS] id",
    "Print the events of a job",
    (
        *eventlog_options.OPTIONS,
        ("F", "follow", "", "Show new events as they happen, until the job has ended"),
        ("p", "path", "PATH", "Use another eventlog of the job: exec, output, guest.exec.eventlog ..."),
    ),
)
_WAIT_EVENT = Command(
    "flux-job wait-event",
    "[OPTIONS] id event",
    "Wait until a job has had this event",
    (
        *eventlog_options.OPTIONS,
        ("c", "count", "N", "Wait until the event has happened N times (default: 1)"),
        ("m", "match-context", "KEY=VAL", "Wait for an event whose context has KEY=VAL"),
        ("p", "path", "PATH", "Use another eventlog of the job: exec, output, guest.exec.eventlog ..."),
        ("q", "quiet", "", "Do not print the event"),
        ("t", "timeout", "N", "Give up after this time"),
        ("v", "verbose", "", "Also print the events before it"),
        ("W", "waitcreate", "", "If the eventlog does not exist yet, wait for it"),
    ),
)


def info(argv: List[str]) -> int:
    options = _INFO.parse(argv)
    text, key = options.need(2, 2)
    job = parse_id(text)
    if options.has("original"):
        value = _original_jobspec(_lookup(job, "J", 0)) if key == "jobspec" else _lookup(job, key, 0)
    else:
        value = _lookup(job, key, 0 if options.has("base") else _LOOKUP_CURRENT)
    sys.stdout.write(value + "\n")
    return 0


def _lookup(job: int, key: str, flags: int) -> str:
    return str(Handle().rpc("job-info.lookup", {"id": job, "keys": [key], "flags": flags}).get()[key])


def _original_jobspec(signed: str) -> str:
    """The jobspec inside a J (RFC 39): HEADER.PAYLOAD.SIGNATURE, the payload in base64."""
    from binascii import a2b_base64

    return a2b_base64(signed.split(".")[1]).decode()


def _path(options: Any) -> str:
    given: str = options.get("path", "eventlog")
    return _SHORT_PATHS.get(given, given)


def eventlog(argv: List[str]) -> int:
    options = _EVENTLOG.parse(argv)
    (text,) = options.need(1, 1)
    job = parse_id(text)
    path = _path(options)
    formatter = eventlog_options.formatter(options)
    handle = Handle()
    try:
        if options.has("follow"):
            for answer in handle.stream("job-info.eventlog-watch", {"id": job, "path": path, "flags": 0}):
                eventlog_options.write(formatter.line(decode_line(answer["event"])))
            return 0
        log = handle.rpc("job-info.lookup", {"id": job, "keys": [path], "flags": 0}).get()[path]
    except OSError as exc:
        raise _eventlog_error(exc, path) from None
    sys.stdout.write("".join([formatter.line(event) for event in decode(log)]))
    return 0


def _eventlog_error(exc: OSError, path: str) -> Exception:
    if exc.errno == errno.ENOENT:
        return CommandError("job eventlog not found" if path == "eventlog" else f"eventlog path {path} not found")
    return exc


def wait_event(argv: List[str]) -> int:
    options = _WAIT_EVENT.parse(argv)
    text, name = options.need(2, 2)
    job = parse_id(text)
    match = eventlog_format.split_match(options.get("match-context")) if options.has("match-context") else None
    wanted = options.get_int("count", 1)
    if wanted < 1:
        raise CommandError("count must be > 0")
    limit: Optional[float] = None
    if options.has("timeout"):
        try:
            limit = time.monotonic() + duration.parse(options.get("timeout"))
        except ValueError as exc:
            raise CommandError(f"invalid timeout: {exc}") from None
    formatter = eventlog_options.formatter(options)
    path = _path(options)
    watch = {"id": job, "path": path, "flags": 1 if options.has("waitcreate") else 0}
    call = Handle().stream("job-info.eventlog-watch", watch)
    seen = 0
    while True:
        try:
            event: Any = decode_line(call.get(None if limit is None else max(0.0, limit - time.monotonic()))["event"])
        except TimeoutError:
            raise CommandError(f"wait-event timeout on event '{name}'") from None
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                raise CommandError(f"event '{name}' never received") from None
            raise _eventlog_error(exc, path) from None
        formatter.start_at(event.timestamp)
        if event.name == name and (match is None or eventlog_format.matches(event, *match)):
            seen += 1
            if seen == wanted:
                if not options.has("quiet"):
                    eventlog_options.write(formatter.line(event))
                call.cancel()
                return 0
        if options.has("verbose") and not options.has("quiet"):
            eventlog_options.write(formatter.line(event))
