"""`flux job attach`: follow a job's output and input, and exit as it does."""

from __future__ import annotations

import sys

from headrace.cli.attach import Attach
from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command
from headrace.cli.job import parse_id
from headrace.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

_COMMAND = Command(
    "flux-job attach",
    "[OPTIONS] id",
    "Interactively attach to job",
    (
        ("E", "show-events", "", "Show job events on stderr"),
        ("X", "show-exec", "", "Show exec events on stderr"),
        ("", "show-status", "", "Show job status line while pending"),
        ("w", "wait-event", "NAME", "Wait for event NAME before detaching from eventlog (default=finish)"),
        ("l", "label-io", "", "Label output by rank"),
        ("v", "verbose", "", "Increase verbosity"),
        ("q", "quiet", "", "Suppress warnings written to stderr from flux-job"),
        ("r", "read-only", "", "Disable reading stdin and capturing signals"),
        ("i", "stdin-ranks", "RANKS", "Send standard input to only RANKS (default: all)"),
        ("", "tail", "[NUM]", "Of the output so far, show the last NUM lines only (default: 10)"),
        ("u", "unbuffered", "", "Disable buffering of stdin (it is never buffered)"),
    ),
)


def attach(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    job = parse_id(text)
    if options.has("verbose"):
        from headrace.spec import jobid

        sys.stderr.write(f"jobid: {jobid.encode(job, 'f58')}\n")
    if options.has("stdin-ranks") and options.has("read-only"):
        raise CommandError("Do not use --stdin-ranks with --read-only")
    handle = Handle()
    tail = None
    if options.has("tail"):
        from headrace.cli.attach_tail import DEFAULT, Tail

        count = options.get("tail") or str(DEFAULT)
        if not count.isdecimal():
            raise CommandError(f"--tail: not a number of lines: {count}")
        tail = Tail(handle, job, int(count))
    return Attach(
        handle,
        job,
        label=options.has("label-io"),
        show_events=options.has("show-events"),
        show_exec=options.has("show-exec"),
        read_only=options.has("read-only"),
        quiet=options.has("quiet"),
        stdin_ranks=options.get("stdin-ranks", "all"),
        wait_event=options.get("wait-event", "finish"),
        show_status=options.has("show-status"),
        tail=tail,
    ).run()
