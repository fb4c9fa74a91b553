"""`flux pgrep`: lists jobs whose names match a pattern, or whose ids are in a range."""

from __future__ import annotations

import os
import re

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, show
from headrace.cli.common.quick_arguments import queue_names
from headrace.cli.jobs import main as jobs
from headrace.cli.jobs.columns import ask_instances, columns, visible
from headrace.formats.spec import jobid
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query import job_info
from headrace.wire.query.format import split_sort
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List, Optional, Tuple

PREFIX = "flux-pgrep: ERROR: "

_DEFAULT = "{id.f58}"
_FORMATS = {
    "default": _DEFAULT,
    "full": jobs.FORMATS["default"],
    "long": jobs.FORMATS["long"],
    "deps": jobs.FORMATS["deps"],
}
_PURPOSES = {
    "default": "Show only job ids",
    "full": "The columns of flux jobs",
    "long": "The columns of flux jobs -o long",
    "deps": "Show job urgency, priority, and dependencies",
}


class Expression:
    """The criteria for jobs: a regular expression for the name, a range of ids, or both.

    `X..Y` is a range if X and Y are job ids, unless the word begins with `name:`. Raises CommandError.
    """

    def __init__(self, words: List[str]) -> None:
        self._pattern: Optional[re.Pattern[str]] = None
        self._range: Optional[Tuple[int, int]] = None
        for word in words:
            ids = _range(word)
            if ids is not None:
                self._range = ids
            elif self._pattern is not None:
                raise CommandError("expression error: Only one pattern can be provided", 2)
            else:
                try:
                    self._pattern = re.compile(word[len("name:") :] if word.startswith("name:") else word)
                except re.error as exc:
                    raise CommandError(f"expression error: {word}: {exc}", 2) from None

    def matches(self, job: JobInfo) -> bool:
        if self._pattern is not None and not self._pattern.search(job.get("name")):
            return False
        return self._range is None or self._range[0] <= job.id <= self._range[1]


def _range(word: str) -> Optional[Tuple[int, int]]:
    """The first and the last id of `X..Y`, None if the word is not a range of ids."""
    first, dots, last = word.partition("..")
    if not dots or ":" in word:
        return None
    try:
        return jobid.parse(first), jobid.parse(last)
    except ValueError:
        return None


def add_selection(parser: Parser, verb: str) -> None:
    """Add the options and operands that select jobs; help texts begin with `verb`."""
    add = parser.add_argument
    add("-a", action="store_true", help=f"{verb} jobs in all states")
    add("-A", action="store_true", help=f"{verb} jobs of all users")
    add("-u", "--user", metavar="USER", default=str(own_userid()), help=f"{verb} jobs of USER (name, number or all)")
    add("-f", "--filter", metavar="STATE|RESULT", action="append", help=f"{verb} jobs with these states or results")
    add("-q", "--queue", metavar="QUEUE,...", action="append", type=queue_names, help=f"{verb} jobs of these queues")
    add("-c", "--count", metavar="N", type=int, default=99999, help=f"{verb} the first N jobs that match")
    add("--max-entries", metavar="N", type=int, default=1000, help="Search at most N jobs (default: 1000)")
    add("expression", metavar="EXPRESSION", nargs="+", help="A pattern, ID..ID, or name:PATTERN")
    parser.epilog = "EXPRESSION is a regular expression, or ID..ID; with both, jobs must match both."


def _parser() -> Parser:
    parser = Parser("flux-pgrep", description="List jobs by a pattern of their names or a range of ids")
    add = parser.add_argument
    add("-n", "--no-header", action="store_true", help="Print no header")
    default = os.environ.get("FLUX_PGREP_FORMAT_DEFAULT", "default")
    add("-o", "--format", metavar="FORMAT", default=default, help="A format, or the name of one (help lists them)")
    add_selection(parser, "List")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    # Formats are read from the configuration files of `flux jobs`.
    chosen = Formats("flux-jobs", _FORMATS, _PURPOSES).resolve(args.format)
    if chosen is None:
        return 0
    layout = columns(split_sort(chosen)[0])
    found = matching(Handle(), args, layout.names)
    if not found:
        return 1
    ask_instances(layout.names, found)
    show(layout, [visible(job) for job in found], args.no_header or chosen == _DEFAULT)
    return 0


def matching(handle: Handle, args: Namespace, names: List[str]) -> List[JobInfo]:
    """The jobs that the options and operands of `add_selection` select, with the fields `names`.

    Raises CommandError, QueryError.
    """
    expression = Expression(args.expression)
    found = map(JobInfo, list_jobs(handle, _query(args), job_info.attributes_for(["name", *names])))
    return [job for job in found if expression.matches(job)][: max(args.count, 0)]


def _query(args: Namespace) -> Query:
    query = Query(count=args.max_entries)
    query.user("all" if args.A else args.user)
    for text in args.filter or ():
        query.filter(text)
    if args.a:
        query.filter("active,inactive")
    if not query.states and not query.results:
        query.filter("active")
    if args.queue:
        query.add("queue", [name for text in args.queue for name in text.split(",")])
    return query
