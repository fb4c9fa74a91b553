"""`flux submit`: submits a job, or one for each id of `--cc`, and prints the job ids."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import QuickParser
from headrace.cli.submit import options
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

    from headrace.cli.common.arguments import Parser

PREFIX = "flux-submit: ERROR: "


def add_bulk(parser: Union[Parser, QuickParser]) -> None:
    """Add the options of commands that can submit many jobs at once."""
    add = parser.add_argument
    add("--quiet", action="store_true", help="Do not print job ids")
    add("--cc", metavar="IDSET", help="Submit once for each id, with FLUX_JOB_CC and {cc} set to it")
    add("--bcc", metavar="IDSET", help="Same as --cc, without FLUX_JOB_CC")
    add("--wait", action="store_true", help="Wait for the jobs to end; exit with the largest exit code")
    add("--wait-event", metavar="NAME", help="Wait for this event of each job")
    add("--watch", action="store_true", help="Show the jobs' output (implies --wait)")
    add("--log", metavar="FILE", help="Write ids and output to a file")
    add("--log-stderr", metavar="FILE", help="Write errors to a file")
    add("--progress", action="store_true", help="Show progress on a terminal")
    add("--jps", action="store_true", help="Show jobs per second with --progress")


def _full_parser() -> Parser:
    from headrace.cli.common.arguments import Parser

    return Parser("flux-submit", usage="flux submit [OPTIONS...] COMMAND [ARGS...]", error_prog="flux submit")


def _parser() -> QuickParser:
    parser = QuickParser(_full_parser)
    options.add_options(parser, "submit")
    add_bulk(parser)
    options.add_command(parser)
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    if not submission.command_of(args):
        raise CommandError("job command and arguments are missing")
    options.refuse_input_by_rank(args, "submit")
    copies = copies_of(args)
    if args.dry_run:
        for _, jobspec in copies:
            options.print_jobspec(jobspec())
        return 0
    from headrace.cli.submit.submitter import Submitter

    return Submitter(args, "flux-submit").run(copies)


def copies_of(
    args: Namespace, caller: Optional[submission.Caller] = None
) -> Iterator[Tuple[Namespace, Callable[[], Dict[str, Any]]]]:
    """For each job: its arguments with `{cc}` replaced, and a function that returns its jobspec."""
    if args.cc and args.bcc:
        raise CommandError("specify only one of --cc or --bcc")
    given = args.cc or args.bcc
    caller = caller or options.caller()
    if not given:
        yield args, lambda: submission.task_jobspec(args, caller)
        return
    from headrace.formats.spec.idset import Idset

    try:
        ids = Idset.parse(given)
    except ValueError as exc:
        raise CommandError(f"{'--cc' if args.cc else '--bcc'}: {exc}") from None
    varying = [name for name, value in vars(args).items() if any("{cc}" in text for text in _texts(value))]
    base = None if varying else submission.task_jobspec(args, caller)
    for number in ids:
        one = _fill(args, varying, str(number)) if varying else args
        jobspec = submission.task_jobspec(one, caller) if base is None else base
        if args.cc:
            jobspec["attributes"]["system"].setdefault("environment", {})["FLUX_JOB_CC"] = str(number)
        yield one, lambda jobspec=jobspec: jobspec  # type: ignore[misc]


def _texts(value: Any) -> List[str]:
    if isinstance(value, str):
        return [value]
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _fill(args: Namespace, varying: List[str], number: str) -> Namespace:
    """A copy of the arguments with `{cc}` replaced in the arguments named `varying`."""
    import copy

    one = copy.copy(args)
    for name in varying:
        value = getattr(args, name)
        if isinstance(value, str):
            setattr(one, name, value.replace("{cc}", number))
        else:
            setattr(one, name, [text.replace("{cc}", number) if isinstance(text, str) else text for text in value])
    return one
