"""`flux job attach`: follows a job's output, sends it input, and exits with its status."""

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
        ("", "show-status", "", "Show a status line until the job runs"),
        ("w", "wait-event", "NAME", "Stop after this event (default: finish)"),
        ("l", "label-io", "", "Begin each line of output with the rank of its task"),
        ("v", "verbose", "", "Print the job's id"),
        ("q", "quiet", "", "Do not report redirected output or the job's exit code"),
        ("r", "read-only", "", "Send the job neither input nor signals"),
        ("i", "stdin-ranks", "RANKS", "Send standard input to these tasks only (default: all)"),
        ("", "tail", "[NUM]", "Show only the last NUM lines of earlier output (default: 10)"),
        ("u", "unbuffered", "", "No effect: input is always sent at once"),
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
