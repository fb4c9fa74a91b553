"""`flux kvs eventlog append|get|wait-event`: eventlogs (RFC 18) under any KVS key."""

from __future__ import annotations

import errno
import json
import os
import sys
import time

from headrace.cli.common import eventlog_options
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec import duration
from headrace.formats.spec.eventlog import Event, decode, encode
from headrace.formats.spec.kvs_flags import APPEND, STREAM, WAITCREATE, WATCH, WATCH_APPEND
from headrace.wire.client.handle import Handle
from headrace.wire.query import eventlog_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional

    from headrace.cli.common.getopts import Options

_TABLE = {
    "append": ("Add an event to an eventlog", None),
    "get": ("Print the events of an eventlog", None),
    "wait-event": ("Wait until an eventlog has this event", None),
}
_APPEND = Command(
    "flux-kvs eventlog append",
    "[OPTIONS] key name [context ...]",
    "Add an event to an eventlog",
    (kvs.NAMESPACE, ("t", "timestamp", "SECONDS", "Time of the event, in seconds since 1970 (default: now)")),
)
_SHOW = (
    ("u", "unformatted", "", "Print each event as it is stored: JSON (RFC 18)"),
    ("H", "human", "", "Short for --time-format=human"),
    ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
)
_GET = Command(
    "flux-kvs eventlog get",
    "[OPTIONS] key",
    "Print the events of an eventlog",
    (
        kvs.NAMESPACE,
        ("W", "waitcreate", "", "If the key does not exist yet, wait for it"),
        ("w", "watch", "", "Print new events as they are added"),
        ("c", "count", "COUNT", "Stop after COUNT events"),
        ("S", "stream", "", "Read a large eventlog in pieces"),
        *_SHOW,
    ),
)
_WAIT_EVENT = Command(
    "flux-kvs eventlog wait-event",
    "[OPTIONS] key event",
    "Wait until an eventlog has this event",
    (
        kvs.NAMESPACE,
        ("W", "waitcreate", "", "If the key does not exist yet, wait for it"),
        ("t", "timeout", "SECONDS", "Give up after this time"),
        ("q", "quiet", "", "Do not print the event"),
        ("v", "verbose", "", "Also print the events before it"),
        *_SHOW,
    ),
)


def eventlog(argv: List[str]) -> int:
    name, rest = dispatch("flux-kvs eventlog", argv, _TABLE)
    return {"append": _append, "get": _get, "wait-event": _wait_event}[name](rest)


def _append(argv: List[str]) -> int:
    options = _APPEND.parse(argv)
    key, name, *words = options.need(2)
    context: Any = None
    if words:
        try:
            context = json.loads(" ".join(words))
        except ValueError as exc:
            raise CommandError(f"context is not a JSON object: {exc}") from None
    try:
        stamp = float(options.get("timestamp")) if options.has("timestamp") else time.time()
    except ValueError:
        raise CommandError(f"--timestamp: '{options.get('timestamp')}' is not a number of seconds") from None
    line = encode(Event(stamp, name, context))
    kvs.commit(Handle(), kvs.namespace(options), [kvs.op(key, kvs.val(line.encode()), APPEND)])
    return 0


def _watch(handle: Handle, key: str, options: Options, limit: Optional[float]) -> Iterator[Any]:
    """Events as they are appended. Raises TimeoutError when `limit` (monotonic seconds) passes."""
    for data in _portions(handle, key, options, WATCH | WATCH_APPEND, limit):
        yield from _events(key, data)


def _events(key: str, data: bytes) -> List[Event]:
    try:
        return decode(data.decode())
    except ValueError as exc:
        raise CommandError(f"{key}: not an eventlog: {exc}") from None


def _stream(handle: Handle, key: str, options: Options) -> Iterator[Any]:
    """The existing events. They arrive in portions that may end in the middle of a line."""
    rest = b""
    for data in _portions(handle, key, options, STREAM, None):
        complete, newline, rest = (rest + data).rpartition(b"\n")
        yield from _events(key, complete + newline)
    yield from _events(key, rest)


def _portions(handle: Handle, key: str, options: Options, flags: int, limit: Optional[float]) -> Iterator[bytes]:
    flags |= WAITCREATE if options.has("waitcreate") else 0
    request = {"key": key, "namespace": kvs.namespace(options), "flags": flags}
    call = handle.stream("kvs-watch.lookup", request)
    while True:
        try:
            answer = call.get(None if limit is None else max(0.0, limit - time.monotonic()))
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return
            raise
        yield kvs.data_of(answer["val"])


def _formatter(options: Options) -> eventlog_format.Formatter:
    if options.has("human") and options.has("unformatted"):
        raise CommandError("Do not specify --unformatted and --human")
    return eventlog_options.formatter(options)


def _line(formatter: eventlog_format.Formatter, event: Any, options: Options) -> str:
    return encode(event) if options.has("unformatted") else formatter.line(event)


def _get(argv: List[str]) -> int:
    options = _GET.parse(argv)
    (key,) = options.need(1, 1)
    formatter = _formatter(options)
    handle = Handle()
    remaining = options.get_int("count", 0)
    if options.has("stream") and options.has("watch"):
        # A stream ends after the existing events, a watch does not end.
        raise CommandError(f"{key}: {os.strerror(errno.EINVAL)}")
    try:
        if options.has("stream"):
            events: Any = _stream(handle, key, options)
        elif options.has("watch"):
            events = _watch(handle, key, options, None)
        elif options.has("waitcreate"):
            events = _events(key, kvs.data_of(kvs.wait_for(handle, key, kvs.namespace(options), 0)))
        else:
            events = _events(key, kvs.data_of(kvs.lookup(handle, key, kvs.namespace(options), 0)))
        for event in events:
            eventlog_options.write(_line(formatter, event, options))
            remaining -= 1
            if not remaining:
                break
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
    return 0


def _wait_event(argv: List[str]) -> int:
    options = _WAIT_EVENT.parse(argv)
    key, name = options.need(2, 2)
    formatter = _formatter(options)
    limit = time.monotonic() + duration.parse(options.get("timeout")) if options.has("timeout") else None
    try:
        for event in _watch(Handle(), key, options, limit):
            found = event.name == name
            if (found and not options.has("quiet")) or (options.has("verbose") and not found):
                sys.stdout.write(_line(formatter, event, options))
            if found:
                return 0
    except TimeoutError:
        raise CommandError(f"wait-event timeout on event '{name}'") from None
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
    raise CommandError(f"event '{name}' never received")
