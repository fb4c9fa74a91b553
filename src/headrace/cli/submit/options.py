"""Options that `flux run`, `submit`, `bulksubmit`, `batch` and `alloc` share.

They are the options of `wire.query.job_options`, `--dry-run` and a few others.
"""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import queue_names
from headrace.wire.query import job_options, submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, Union

    from headrace.cli.common.arguments import Parser
    from headrace.cli.common.quick_arguments import QuickParser


# Functions that convert the text of an option, by kind. Options of other kinds keep the text.
_TYPES = {job_options.COUNT: int, job_options.QUEUE: queue_names}


def add_options(parser: Union[Parser, QuickParser], command: str, counts_as_text: bool = False) -> None:
    """Add the job options of this command, then the options of all submitting commands."""
    for option in job_options.OPTIONS:
        if command in option.commands:
            settings = _settings(option)
            if counts_as_text and option.kind == job_options.COUNT:
                del settings["type"]
            parser.add_argument(*option.flags, dest=option.name, help=option.help, **settings)
    add = parser.add_argument
    add("--flags", metavar="FLAGS", action="append", help="Submit flags: debug, waitable, novalidate")
    add("--debug", action="store_true", help="Same as --flags=debug: more events in the job's eventlog")
    add("--dry-run", "--dry", action="store_true", help="Print the jobspec instead of submitting it")
    add("-v", "--verbose", action="count", default=0, help="Print more information (repeatable)")


def _settings(option: job_options.Option) -> Dict[str, Any]:
    """The keyword arguments of argparse's add_argument for an option."""
    if option.kind == job_options.FLAG:
        return {"action": "store_true"}
    settings: Dict[str, Any] = {"metavar": option.metavar}
    if option.repeats:
        settings["action"] = "append"
    if option.default is not None:
        settings["default"] = option.default
    if option.kind == job_options.OPTIONAL_FILE:
        settings.update(nargs="?", const="")
    kind = (option.prefix + "{}").format if option.prefix else _TYPES.get(option.kind)
    if kind is not None:
        settings["type"] = kind
    return settings


def add_command(parser: Union[Parser, QuickParser]) -> None:
    parser.add_argument("command", nargs="...", help="Command and arguments")


def refuse_input_by_rank(args: Namespace, command: str) -> None:
    """Raise CommandError if `--input` names task ranks: this command does not stay to send them input."""
    if args.input is not None and submission.is_ranks(args.input):
        raise CommandError(f"per-task input not supported for {command}")


def caller() -> submission.Caller:
    """The submitting process, with warnings on stderr."""
    return submission.Caller(warn)


def warn(text: str) -> None:
    sys.stderr.write(text + "\n")


def print_jobspec(jobspec: Dict[str, Any]) -> None:
    sys.stdout.write(submission.jobspec_text(jobspec) + "\n")
