"""`flux startlog`: lists when the instance was started, how long it ran, and crashes."""

from __future__ import annotations

import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec import duration, eventlog, startlog
from headrace.formats.spec.kvs_flags import APPEND, SYNC
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-startlog: "

_COMMAND = Command(
    "flux-startlog",
    "[OPTIONS]",
    "List when the instance was started and how long it ran",
    (
        ("", "check", "", "Exit with 1 if the run before this one ended without a shutdown"),
        ("", "quiet", "", "Print nothing, for use with --check"),
        ("v", "show-version", "", "Print the version of Flux at each start"),
        ("", "post-start-event", "", "Record a start, from an rc1 script that loads the KVS itself"),
        ("", "post-finish-event", "", "Record a shutdown"),
        ("", "test-startlog-key", "KEY", "Use this key instead of admin.eventlog"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    options.need(0, 0)
    handle = Handle()
    key = options.get("test-startlog-key", startlog.KEY)
    if options.has("post-start-event"):
        _post(handle, key, startlog.start_event(time.time(), handle.attr_get("version")), SYNC)
        return 0
    if options.has("post-finish-event"):
        _post(handle, key, startlog.finish_event(time.time()), 0)
        return 0
    runs = _runs(handle, key)
    if not options.has("quiet"):
        now = time.time()
        for run in runs:
            version = f"{run.core_version:>25}  " if options.has("show-version") else ""
            print(f"{version}{_minute(run.start)} - {_end(run, now)}")
    return int(options.has("check") and startlog.follows_a_crash(runs))


def _post(handle: Handle, key: str, event: eventlog.Event, flags: int) -> None:
    if handle.attr_get("rank") != "0":
        raise CommandError("Startlog events may only be posted from rank 0")
    try:
        kvs.commit(handle, "primary", [kvs.op(key, kvs.val(eventlog.encode(event).encode()), APPEND)], flags)
    except OSError as exc:
        raise CommandError(f"Error committing {event.name} event: {exc.strerror}") from None


def _runs(handle: Handle, key: str) -> List[startlog.Run]:
    try:
        data = kvs.data_of(kvs.lookup(handle, key, "primary", 0))
    except OSError as exc:
        raise CommandError(f"Error fetching eventlog: {exc.strerror}") from None
    try:
        return startlog.runs(eventlog.decode(data.decode()))
    except ValueError as exc:
        raise CommandError(f"Error decoding eventlog: {key}: {exc}") from None


def _minute(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))


def _end(run: startlog.Run, now: float) -> str:
    if run.crashed:
        return "crashed"
    # At least 0, in case the clock was set back in between.
    lasted = duration.encode(max(0.0, (now if run.end is None else run.end) - run.start), 2)
    return f"running ({lasted})" if run.end is None else f"{_minute(run.end)} ({lasted})"
