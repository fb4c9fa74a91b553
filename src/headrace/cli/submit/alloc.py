"""`flux alloc`: starts an instance on an allocation, interactively or in the background (`--bg`)."""

from __future__ import annotations

import errno
import os
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.submit import extra_brokers, options
from headrace.formats.spec import jobid, jobspec_build
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import CANCEL, FATAL, is_fatal
from headrace.formats.spec.os_error import text_of
from headrace.wire.client.handle import Handle
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

PREFIX = "flux-alloc: ERROR: "


def _parser() -> Parser:
    parser = Parser(
        "flux-alloc",
        usage="flux alloc [OPTIONS...] [COMMAND] [ARGS...]",
        error_prog="flux alloc",
        description="Start a new instance interactively",
    )
    options.add_options(parser, "alloc")
    extra_brokers.add_option(parser)
    parser.add_argument("--bg", action="store_true", help="Print the job id when the instance is up, and return")
    options.add_command(parser)
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    jobspec = _jobspec(args)
    if args.dry_run:
        options.print_jobspec(jobspec)
        return 0
    handle = Handle()
    job = handle.rpc("job-ingest.submit", payload=submission.encode_request(jobspec, args)).get()["id"]
    if args.bg:
        return _wait_until_up(handle, job, bool(args.verbose))
    if args.verbose:
        sys.stderr.write(f"jobid: {jobid.encode(job, 'f58')}\n")
    from headrace.cli.job.attach import Attach

    return Attach(handle, job, label=args.label_io, show_events=args.verbose > 1, show_exec=args.verbose > 2).run()


def _jobspec(args: Namespace) -> Dict[str, Any]:
    extra_brokers.check(args)
    parameters = submission.slot_parameters(args, options.caller())
    parameters["conf"] = extra_brokers.exclude(args, parameters["conf"])
    # A `--` before the command is passed to the broker, so that it does not parse the command's own options.
    command: List[str] = args.command
    if args.bg and not command:
        # Without an initial program the broker would run a shell; rc2_none makes the instance run until its shutdown.
        parameters["broker_opts"] = [*parameters["broker_opts"], "-Sbroker.rc2_none=1"]
    jobspec = jobspec_build.from_nest_command(command, **parameters)
    extra_brokers.place(args, jobspec)
    if args.bg:
        jobspec_build.set_shell_option(jobspec, "pty.capture", 1)
    elif os.isatty(0):
        jobspec_build.set_shell_option(jobspec, "pty.interactive", 1)
    submission.finish(jobspec, args, options.warn)
    # Keep a readable order of the shell's options, with the limits last.
    shell = jobspec["attributes"]["system"]["shell"]["options"]
    if "rlimit" in shell:
        shell["rlimit"] = shell.pop("rlimit")
    return jobspec


def _wait_until_up(handle: Handle, job: int, verbose: bool) -> int:
    """Print the job's id when its instance is up, or if it has already ended successfully."""
    name = jobid.encode(job, "f58")

    def say(text: str) -> None:
        if verbose:
            sys.stderr.write(f"flux-alloc: {name}: {text}\n")

    say("waiting for resources")
    try:
        for answer in handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0}):
            event: Any = decode_line(answer["event"])
            if event.name == "start":
                say("waiting for instance")
            elif event.name == "memo" and "uri" in event.context:
                if _answers(event.context["uri"], name):
                    break
            elif is_fatal(event.name, event.context):
                kind, note = event.context["type"], event.context.get("note", "")
                raise CommandError(f"{name}: {kind}: {note}: the job unexpectedly exited")
            elif event.name == "finish":
                if event.context["status"] == 0:
                    break
                _show_output(handle, job)
                raise CommandError(f"{name}: instance startup failed")
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: Interrupt: canceling job\n")
        handle.rpc("job-manager.raise", {"id": job, "type": CANCEL, "severity": FATAL}).get()
        return 1
    print(name)
    return 0


def _answers(uri: str, name: str) -> bool:
    """Wait until the instance at `uri` is up. Returns False if it was on this machine and has ended.

    Raises CommandError if it is on another machine and cannot be reached.
    """
    from headrace.wire.client.transport import is_this_host, split_uri
    from headrace.wire.query.uri import reachable

    _, host, path = split_uri(uri)
    try:
        # For an instance on this host, use the socket directly: if it is gone, ssh would not find it either.
        Handle(f"local://{path}" if is_this_host(host) else reachable(uri)).rpc("state-machine.wait").get()
    except OSError as exc:
        gone = exc.errno in {errno.ENODEV, errno.ECONNRESET, errno.ECONNREFUSED} or not os.path.exists(path)
        if is_this_host(host) and gone:
            return False
        raise CommandError(f"Unable to connect to {name}: {text_of(exc)}") from None
    return True


def _show_output(handle: Handle, job: int) -> None:
    """Print the output of the instance's brokers on stderr, because stdout is only for the job id."""
    from headrace.cli.job.attach import Attach

    os.dup2(2, 1)
    Attach(handle, job, read_only=True).run()
