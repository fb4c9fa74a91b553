"""`flux job attach`: follow a job's output and input, and exit as it does."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.attach import Attach
from headrace.cli.job.main import parse_id
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

_COMMAND = Command(
    "flux-job attach",
    "[OPTIONS] id",
    "Follow a job: its output, your input, its exit status",
    (
        ("E", "show-events", "", "Print the job's events on standard error"),
        ("X", "show-exec", "", "Print events of the job's execution on standard error"),
        ("", "show-status", "", "Keep a line about the job's state on the terminal until it runs"),
        ("w", "wait-event", "NAME", "Stay until this event (default: finish)"),
        ("l", "label-io", "", "Begin each line of output with its task's rank"),
        ("v", "verbose", "", "Print the job's id; twice: where its tasks run"),
        ("q", "quiet", "", "Print no remarks about truncated output and the like"),
        ("r", "read-only", "", "Only watch: send the job neither input nor signals"),
        ("i", "stdin-ranks", "RANKS", "Send standard input to these tasks only (default: all)"),
        ("", "tail", "[NUM]", "Of the output so far, show the last NUM lines only (default: 10)"),
        ("u", "unbuffered", "", "Send input at once (it always is)"),
    ),
)


def attach(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    job = parse_id(text)
    if options.has("verbose"):
        from headrace.formats.spec import jobid

        sys.stderr.write(f"jobid: {jobid.encode(job, 'f58')}\n")
    if options.has("stdin-ranks") and options.has("read-only"):
        raise CommandError("Do not use --stdin-ranks with --read-only")
    handle = Handle()
    tail = None
    if options.has("tail"):
        from headrace.cli.job.attach_tail import DEFAULT, Tail

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
