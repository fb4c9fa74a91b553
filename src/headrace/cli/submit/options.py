"""The options of `flux run`, `submit`, `bulksubmit`, `batch` and `alloc`; headrace.wire.query.submission reads them."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import queue_names
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, Union

    from headrace.cli.common.arguments import Parser
    from headrace.cli.common.quick_arguments import QuickParser


def add_common(parser: Union[Parser, QuickParser]) -> None:
    """Options of every command that submits."""
    add = parser.add_argument
    add("-q", "--queue", metavar="NAME", type=queue_names, help="Submit to a queue")
    add("-B", "--bank", metavar="BANK", help="Charge a bank")
    add("-t", "--time-limit", metavar="MIN|FSD", help="Time limit: a duration with a unit, else minutes")
    add("--urgency", metavar="N", default="default", help="0-31, hold, expedite or default (16)")
    add("--job-name", metavar="NAME", help="Name the job (default: its command)")
    add("-o", "--setopt", metavar="OPT", action="append", help="Set shell option OPT[=VALUE]")
    add("-S", "--setattr", metavar="KEY=VAL", action="append", help="Set a jobspec attribute (^KEY=FILE: JSON)")
    add("--dependency", metavar="URI", action="append", help="Depend on SCHEME:VALUE, such as afterok:JOBID")
    add(
        "--requires", "--require", metavar="CONSTRAINT", action="append", help="Require node properties, host: or rank:"
    )
    add("--begin-time", metavar="TIME", help="Do not start before this time")
    add("--signal", metavar="[SIG][@TIME]", help="Send a signal some time before the time limit (USR1@60s)")
    add("--taskmap", metavar="SCHEME[:VALUE]", help="Place tasks by this scheme (block, cyclic[:N], manual:MAP)")
    add("--preemptible-after", metavar="FSD", help="Allow preemption after this time")
    # All three make rules of one list, in the order given.
    add("--env", metavar="RULE", action="append", help="Change the environment (VAR=VAL, VAR, -PATTERN)")
    add("--env-remove", metavar="PATTERN", dest="env", action="append", type="-{}".format, help="Remove variables")
    add("--env-file", metavar="FILE", dest="env", action="append", type="^{}".format, help="Read rules from a file")
    add("--rlimit", metavar="RULE", action="append", help="Change resource limits (NAME=VALUE, -PATTERN, PATTERN)")
    add("--input", metavar="FILENAME|RANKS", help="Read standard input from a file, or send ours to these ranks")
    add("--output", metavar="FILENAME", help="Write standard output to a file")
    add("--error", metavar="FILENAME", help="Write standard error to a file")
    add("-l", "--label-io", action="store_true", help="Begin each line of output with its task's rank")
    add("-u", "--unbuffered", action="store_true", help="Do not buffer output by lines")
    add("--cwd", metavar="DIR", help="Run in this directory")
    add("--add-file", metavar="[NAME[:PERMS]=]ARG", action="append", help="Put a file into the jobspec")
    add("--flags", metavar="FLAGS", action="append", help="Submit flags: debug, waitable, novalidate")
    add("--debug", action="store_true", help="As --flags=debug: more events in the job's eventlog")
    add("--dry-run", "--dry", action="store_true", help="Print the jobspec instead of submitting it")
    add("-v", "--verbose", action="count", default=0, help="Say more")


def add_tasks(parser: Union[Parser, QuickParser]) -> None:
    """Options that say how many tasks run on what (run, submit, bulksubmit)."""
    add = parser.add_argument
    add("-N", "--nodes", metavar="N", type=int, help="Number of nodes")
    add("-n", "--ntasks", metavar="N", type=int, help="Number of tasks")
    add("-c", "--cores-per-task", metavar="N", type=int, help="Cores of each task")
    add("-g", "--gpus-per-task", metavar="N", type=int, help="GPUs of each task")
    add("-x", "--exclusive", action="store_true", help="Allocate whole nodes")
    add("--cores", metavar="N", type=int, help="Number of cores")
    add("--tasks-per-node", metavar="N", type=int, help="Run N tasks on each node")
    add("--tasks-per-core", metavar="N", type=int, help="Run N tasks on each core")
    add("--gpus-per-node", metavar="N", type=int, help="GPUs of each node")
    add("--shape", metavar="SHAPE", help="Resources as a shape (RFC 46), such as slot=4/core=2")


def add_slots(parser: Union[Parser, QuickParser]) -> None:
    """Options that say how big an instance is (batch, alloc)."""
    add = parser.add_argument
    add("-N", "--nodes", metavar="N", type=int, help="Number of nodes")
    add("-n", "--nslots", metavar="N", type=int, help="Number of slots")
    add("-c", "--cores-per-slot", metavar="N", type=int, help="Cores of each slot (default 1)")
    add("-g", "--gpus-per-slot", metavar="N", type=int, help="GPUs of each slot")
    add("-x", "--exclusive", action="store_true", help="Allocate whole nodes")
    add("--conf", metavar="CONF", action="append", help="Configure the instance: KEY=VALUE, a file, or TOML text")
    add("--dump", metavar="FILE", nargs="?", const="", help="End with an archive of the instance, for flux restore")
    add(
        "--broker-opts",
        "--broker-opt",
        metavar="OPTS",
        action="append",
        help="Options for the instance's brokers, split at commas",
    )


def add_command(parser: Union[Parser, QuickParser]) -> None:
    parser.add_argument("command", nargs="...", help="Command and arguments")


def refuse_input_by_rank(args: Namespace, command: str) -> None:
    """Raise CommandError where `--input` names task ranks and nobody stays to send them input."""
    if args.input is not None and submission.is_ranks(args.input):
        raise CommandError(f"per-task input not supported for {command}")


def caller() -> submission.Caller:
    """This process, which says on stderr what it leaves out."""
    return submission.Caller(warn)


def warn(text: str) -> None:
    sys.stderr.write(text + "\n")


def print_jobspec(jobspec: Dict[str, Any]) -> None:
    sys.stdout.write(submission.jobspec_text(jobspec) + "\n")
