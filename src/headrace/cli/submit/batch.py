"""`flux batch`: submits a script that runs as the initial program of its own instance."""

from __future__ import annotations

import os
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.submit import extra_brokers, options
from headrace.formats.spec import directives, jobid, jobspec_build
from headrace.wire.client.handle import Handle
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Tuple

PREFIX = "flux-batch: ERROR: "

_OUTPUT = "flux-{{id}}.out"


def _parser() -> Parser:
    parser = Parser(
        "flux-batch",
        usage="flux batch [OPTIONS...] [SCRIPT] [ARGS...]",
        error_prog="flux batch",
        description="Submit a batch script",
    )
    options.add_options(parser, "batch")
    extra_brokers.add_option(parser)
    parser.add_argument("--wrap", action="store_true", help="Make a script from the command line")
    parser.add_argument("--quiet", action="store_true", help="Do not print the job id")
    options.add_command(parser)
    return parser


def main(argv: List[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    name, script, words = _script(args)
    given = _directives(parser, name, script)
    if given:
        # Options on the command line come last, so they override the directives of the script.
        args = parser.parse_args([*given, *argv])
    options.refuse_input_by_rank(args, "batch")
    jobspec = _jobspec(args, name, script, words)
    if args.dry_run:
        options.print_jobspec(jobspec)
        return 0
    job = Handle().rpc("job-ingest.submit", payload=submission.encode_request(jobspec, args)).get()["id"]
    if not args.quiet:
        print(jobid.encode(job, "f58"))
    return 0


def _directives(parser: Parser, name: str, script: str) -> List[str]:
    """The options in the script's directives. Raises CommandError with the line of the first wrong one."""
    try:
        given = directives.options(script)
        for directive in directives.parse(script):
            parser.context = f"argument parsing failed at {name} line {directive.line}"
            parser.parse_args(directive.args)
    except directives.DirectiveError as exc:
        raise CommandError(f"{name}: {exc}") from None
    parser.context = ""
    return given


def _script(args: Namespace) -> Tuple[str, str, List[str]]:
    """The job's name, the script and its arguments, from a file, standard input, or --wrap."""
    command = submission.command_of(args)
    if args.wrap:
        if command:
            return command[0], "#!/bin/sh\n" + " ".join(command) + "\n", []
        return "batch", "#!/bin/sh\n" + sys.stdin.read(), []
    if not command:
        return "batch", sys.stdin.read(), []
    try:
        with open(command[0], encoding="utf-8") as file:
            return os.path.basename(command[0]), file.read(), command[1:]
    except UnicodeDecodeError:
        raise CommandError(f"{command[0]} does not appear to be a script, or failed to encode as utf-8") from None
    except OSError as exc:
        raise CommandError(f"{exc.strerror}: '{command[0]}'") from None


def _jobspec(args: Namespace, name: str, script: str, words: List[str]) -> Dict[str, Any]:
    if args.output is None:
        args.output = _OUTPUT
    if args.job_name is None:
        args.job_name = name
    extra_brokers.check(args)
    parameters = submission.slot_parameters(args, options.caller())
    parameters["conf"] = extra_brokers.exclude(args, parameters["conf"])
    jobspec = jobspec_build.from_batch_command(script, name, words, **parameters)
    extra_brokers.place(args, jobspec)
    submission.finish(jobspec, args, options.warn)
    return jobspec
