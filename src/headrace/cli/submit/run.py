"""`flux run`: submits a job, follows it, and exits with its status."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import QuickParser
from headrace.cli.submit import options
from headrace.formats.spec import jobid
from headrace.wire.client.handle import Handle
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from headrace.cli.common.arguments import Parser

PREFIX = "flux-run: ERROR: "


def _full_parser() -> Parser:
    from headrace.cli.common.arguments import Parser

    usage = "flux run [OPTIONS...] COMMAND [ARGS...]"
    return Parser("flux-run", usage=usage, error_prog="flux run", description="Run a job")


def _parser() -> QuickParser:
    parser = QuickParser(_full_parser)
    options.add_options(parser, "run")
    parser.add_argument("--wait-event", metavar="NAME", help="Detach after this event instead of at the end")
    options.add_command(parser)
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    jobspec = submission.task_jobspec(args, options.caller())
    if args.dry_run:
        options.print_jobspec(jobspec)
        return 0
    from headrace.cli.job.attach import Attach

    handle = Handle()
    job = handle.rpc("job-ingest.submit", payload=submission.encode_request(jobspec, args)).get()["id"]
    if args.verbose:
        sys.stderr.write(f"jobid: {jobid.encode(job, 'f58')}\n")
    if args.wait_event:
        return _wait_for(handle, job, args.wait_event)
    return Attach(
        handle,
        job,
        label=args.label_io,
        show_events=args.verbose > 1,
        show_exec=args.verbose > 2,
        stdin_ranks=args.input if args.input and submission.is_ranks(args.input) else "all",
    ).run()


def _wait_for(handle: Handle, job: int, name: str) -> int:
    from headrace.formats.spec.eventlog import decode_line

    path, event = ("guest.exec.eventlog", name[5:]) if name.startswith("exec.") else ("eventlog", name)
    for answer in handle.stream("job-info.eventlog-watch", {"id": job, "path": path, "flags": 0}):
        if decode_line(answer["event"]).name == event:
            return 0
    raise CommandError(f"event '{name}' never received")
