"""`flux watch`: follows the output of many jobs until all of them have ended."""

from __future__ import annotations

import sys
import time

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.follower import Follower, Wanted
from headrace.cli.common.progress import Progress
from headrace.cli.common.quick_arguments import job_id
from headrace.formats.spec import jobid
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query import when
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_ids, list_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

PREFIX = "flux-watch: ERROR: "

_ATTRS = ["state", "result", "t_submit"]


def _parser() -> Parser:
    parser = Parser("flux-watch", description="Follow the output of jobs until they have ended")
    add = parser.add_argument
    add("-a", "--active", action="store_true", help="Watch all of my active jobs")
    add("-A", "--all", action="store_true", help="Watch all of my jobs, including those that have ended")
    add("-c", "--count", metavar="N", type=int, default=0, help="Watch N jobs at most (default: all)")
    add("-f", "--filter", metavar="STATE|RESULT", action="append", help="Watch jobs with these states or results")
    add("--since", metavar="WHEN", help="Include jobs that ended since WHEN, but none that ended before; implies -A")
    add("--progress", action="store_true", help="Show numbers of pending, running, completed and failed jobs")
    add("--jps", action="store_true", help="Show jobs per second instead of the elapsed time")
    add("-l", "--label-io", action="store_true", help="Begin each line with its job id and task rank")
    add(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="Print the number of jobs and how they end (-vv: all their events)",
    )
    add("jobids", metavar="JOBID", type=job_id, nargs="*", help="Watch these jobs")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    filters = list(args.filter or ())
    if args.jobids and (filters or args.active or args.all or args.count or args.since):
        sys.stderr.write("flux-watch: WARNING: Filtering options ignored with jobid list\n")
    since = _since(args.since) if args.since else 0.0
    if args.active:
        filters.append("active")
    if args.all or (args.since and not args.filter):
        filters.append("active,inactive")
    if not filters and not args.jobids:
        hint = "Try 'flux watch --help' for more information."
        raise CommandError(f"At least one job selection option is required\n{hint}")
    handle = Handle()
    jobs = _named(handle, args.jobids) if args.jobids else _selected(handle, args, filters, since)
    if not jobs:
        sys.stderr.write("flux-watch: INFO: No matching jobs\n")
        return 0
    if args.verbose:
        sys.stderr.write(f"flux-watch: INFO: Watching {len(jobs)} jobs\n")
    progress = None
    if args.progress and not sys.stdout.isatty():
        sys.stderr.write("flux-watch: WARNING: stdout is not a tty. Ignoring --progress option\n")
    elif args.progress:
        started = float(handle.attr_get("broker.starttime"))
        begin = max(since, started) if args.all or args.since else min(job.get("t_submit") for job in jobs)
        progress = Progress(len(jobs), True, args.jps, elapsed=max(0.0, time.time() - begin))
    follower = Follower(handle, progress)
    wanted = Wanted(output=True, events=args.verbose, labels=args.label_io)
    try:
        for job in jobs:
            if progress is not None:
                progress.add()
            follower.add(job.id, wanted, sys.stdout, sys.stderr)
        follower.run()
    finally:
        if progress is not None:
            progress.close()
    return follower.status


def _since(text: str) -> float:
    """Seconds since the epoch. Raises CommandError with status 2."""
    now = time.time()
    try:
        since = when.parse(text, now, future=False)
    except when.WhenError:
        raise CommandError(f"--since: invalid value '{text}'", 2) from None
    if since > now:
        raise CommandError(f"--since={text} appears to be in the future", 2)
    return since


def _named(handle: Handle, ids: List[int]) -> List[JobInfo]:
    """The jobs with these ids. An unknown id is reported on stderr."""
    found = []
    for wanted, job in zip(ids, list_ids(handle, ids, _ATTRS)):
        if job is None:
            sys.stderr.write(f"flux-watch: ERROR: JobID {jobid.encode(wanted, 'f58')} unknown\n")
        else:
            found.append(job)
    return found


def _selected(handle: Handle, args: Namespace, filters: List[str], since: float) -> List[JobInfo]:
    query = Query(count=args.count, since=since)
    query.user(str(own_userid()))
    for text in filters:
        query.filter(text)
    return [JobInfo(raw) for raw in list_jobs(handle, query, _ATTRS)]
