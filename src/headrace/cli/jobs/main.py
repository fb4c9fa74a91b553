"""`flux jobs`: lists jobs, one per line, in columns chosen by a format string."""

from __future__ import annotations

import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, refused
from headrace.cli.common.quick_arguments import QuickParser, job_id, positive_int, queue_names
from headrace.cli.jobs.columns import ask_instances, columns, visible
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query import job_info
from headrace.wire.query.color import stdout_colored
from headrace.wire.query.format import FormatError, split_sort
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_ids, list_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, Iterator, List, Optional

    from headrace.cli.common.arguments import Parser
    from headrace.wire.query.format import Format

PREFIX = "flux-jobs: ERROR: "

_START = "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} "
_END = " {ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} {contextual_info}"
FORMATS = {
    "default": _START + "{status_abbrev:>2.2}" + _END,
    "cute": _START + "{status_emoji:>5}" + _END,
    "long": _START
    + "{status:>9.9} {ntasks:>6} {nnodes:>6h} {t_submit!d:%b%d %R::>12h} {t_remaining!F:>12h} "
    + "{contextual_time!F:>8h} {contextual_info}",
    "deps": "{id.f58:>12} ?:{queue:<8.8} {name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} {dependencies}",
    "endreason": _START + "{status_abbrev:>2.2} {t_inactive!d:%b%d %R::>12h} {inactive_reason}",
}
_PURPOSES = {
    "default": "Default flux-jobs format string",
    "cute": "Cute flux-jobs format string (default with emojis)",
    "long": "Extended flux-jobs format string",
    "deps": "Show job urgency, priority, and dependencies",
    "endreason": "Show why each job ended",
}


def _count(text: str) -> int:
    """Parse a number of jobs, 0 for all. Raises ArgumentTypeError."""
    if not text.isdecimal():
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"'{text}' must be 0 or a positive integer")
    return int(text)


def _full_parser() -> Parser:
    from headrace.cli.common.arguments import Parser

    return Parser("flux-jobs", description="List jobs")


def _parser() -> QuickParser:
    parser = QuickParser(_full_parser)
    add = parser.add_argument
    add("-a", action="store_true", help="List jobs in all states")
    add("-A", action="store_true", help="List jobs of all users")
    add("-c", "--count", type=_count, metavar="N", default=1000, help="Limit the number of jobs (default 1000, 0: all)")
    add("-f", "--filter", metavar="STATE|RESULT", help="List jobs with these states or results")
    add(
        "--since",
        metavar="WHEN",
        help="Include jobs that ended since WHEN (-2h, yesterday, 2026-11-21 8am); implies -a",
    )
    add("-n", "--no-header", "--suppress-header", action="store_true", help="Do not print the header")
    add("-u", "--user", metavar="USER", help="List jobs of USER (name, number or all)")
    add("--name", metavar="JOB-NAME", help="List jobs with this name")
    add("-q", "--queue", metavar="QUEUE,...", action="append", type=queue_names, help="List jobs of these queues")
    add("-i", "--include", metavar="HOSTS|RANKS", help="List jobs that ran on these hosts or ranks")
    add("-o", "--format", metavar="FORMAT", default=os.environ.get("FLUX_JOBS_FORMAT_DEFAULT", "default"))
    add("--sort", metavar="KEY,...", help="Sort by these fields (-KEY: descending)")
    add("--json", action="store_true", help="Print JSON instead of a table")
    add("--color", metavar="WHEN", nargs="?", const="always", default="auto", choices=["always", "never", "auto"])
    add("-R", "--recursive", action="store_true", help="Also list the jobs of nested instances")
    add("--recurse-all", action="store_true", help="Recurse into jobs of other users")
    add("-L", "--level", type=int, metavar="N", default=9999, help="Recurse to this depth")
    add("--threads", type=positive_int, metavar="N", help="No effect: one thread queries all instances")
    add(
        "-w",
        "--width",
        metavar="N",
        nargs="?",
        type=positive_int,
        const=0,
        help="Truncate lines to N columns (without N: to the terminal's width)",
    )
    add("--from-stdin", action="store_true", help="Read jobs from standard input, in the format of flux job list")
    add("--stats", action="store_true", help="Print a line of statistics first")
    add("--stats-only", action="store_true", help="Print only the line of statistics")
    add("jobids", metavar="JOBID", type=job_id, nargs="*", help="List these jobs")
    return parser


def main(argv: List[str]) -> int:
    """Run `flux jobs`.

    Returns the exit status: 1 if none of the JOBIDs exists, or, with --stats-only, if no job is active. Raises
    CommandError for options that do not work together and for wrong formats.
    """
    args = _parser().parse_args(argv)
    args.recursive = args.recursive or args.recurse_all
    args.path = ""
    try:
        chosen = Formats("flux-jobs", FORMATS, _PURPOSES).resolve(args.format, job_info.HEADINGS)
        if chosen is None:
            return 0
        args.format, keys = split_sort(chosen)
        args.sort = args.sort or keys
        layout = columns(args.format)
        if args.json and (args.stats or args.stats_only):
            raise CommandError("--json does not work with --stats and --stats-only")
        if args.from_stdin:
            return _show(_from_stdin(), args, layout)
        handle = Handle()
        if args.stats or args.stats_only:
            active = _print_stats(handle, args.queue)
            if args.stats_only:
                return 0 if active else 1
        return _list(handle, args, layout)
    except FormatError as exc:
        raise refused(exc) from None


def _list(handle: Handle, args: Namespace, layout: Format) -> int:
    names = layout.names + _sort_keys(args.sort)
    if args.recursive:
        names += ["uri", "state", "userid"]
    if stdout_colored(args.color):
        names.append("color")
    attrs = ["all"] if args.json else job_info.attributes_for(names)
    jobs = _fetch(handle, args, attrs)
    if not jobs and args.jobids:
        return 1
    return _show(jobs, args, layout)


def _from_stdin() -> List[JobInfo]:
    """Read jobs from standard input, one JSON object per line. Raises CommandError."""
    import json

    try:
        raws = [json.loads(line) for line in sys.stdin if line.strip()]
    except ValueError as exc:
        raise CommandError(f"standard input is not JSON: {exc}") from None
    if not all(isinstance(raw, dict) and "id" in raw for raw in raws):
        raise CommandError("standard input is not a list of jobs: each line must be an object with an id")
    return [JobInfo(raw) for raw in raws]


def _show(jobs: List[JobInfo], args: Namespace, layout: Format) -> int:
    if not args.from_stdin:
        ask_instances(layout.names, jobs)
    _sort(jobs, args.sort)
    if args.json:
        _print_json(_objects(jobs, args), bool(args.jobids))
        return 0
    _print_table(layout, jobs, args)
    if args.recursive and args.level > 0:
        for job in jobs:
            _recurse(job, args)
    return 0


def _fetch(handle: Handle, args: Namespace, attrs: List[str]) -> List[JobInfo]:
    """The jobs to list, with `attrs` of each: the JOBIDs, or without any those the filters select.

    Filters given with JOBIDs are ignored with a warning. An unknown JOBID is reported and left out.
    """
    if args.jobids:
        if any((args.a, args.A, args.filter, args.since, args.user, args.name, args.queue, args.include)):
            sys.stderr.write("flux-jobs: WARNING: Filtering options ignored with jobid list\n")
        jobs: List[JobInfo] = []
        for wanted, job in zip(args.jobids, list_ids(handle, args.jobids, attrs)):
            if job is None:
                from headrace.formats.spec import jobid

                sys.stderr.write(f"flux-jobs: ERROR: JobID {jobid.encode(wanted, 'f58')} unknown\n")
            else:
                jobs.append(job)
        return jobs
    query = _query(args)
    limit = args.count
    query.count = limit + 1 if limit else 0
    now = time.time()
    jobs = [JobInfo(raw, now) for raw in list_jobs(handle, query, attrs)]
    if limit and len(jobs) > limit:
        del jobs[limit:]
        if not (args.no_header or args.json):
            sys.stderr.write(
                f"warning: output truncated at {limit} jobs.\n"
                "Use --count to increase returned results or use filters to alter results.\n"
            )
    return jobs


def _query(args: Namespace) -> Query:
    query = Query()
    query.user("all" if args.A else args.user or str(own_userid()))
    if args.since:
        from headrace.wire.query.when import parse_past

        query.since = parse_past(args.since)
    if args.filter:
        if args.a:
            sys.stderr.write("flux-jobs: WARNING: Both -a and --filter specified, ignoring -a\n")
        query.filter(args.filter)
    else:
        query.filter("active,inactive" if args.a or args.since else "active")
    if args.name:
        query.add("name", [args.name])
    if args.queue:
        query.add("queue", [name for text in args.queue for name in text.split(",")])
    if args.include:
        from headrace.formats.spec import hostlist, idset

        by_rank = all(char in "0123456789,-[]" for char in args.include)
        try:
            if by_rank:
                idset.parse_ranges(args.include)
            else:
                hostlist.count_hosts(args.include)
        except ValueError as exc:
            raise CommandError(f"-i {args.include!r}: {exc}") from None
        query.add("ranks" if by_rank else "hostlist", [args.include])
    return query


def _sort_keys(text: str) -> List[str]:
    keys = [key.lstrip("-") for key in (text or "").split(",") if key]
    for key in keys:
        if key not in job_info.HEADINGS and not key.startswith(job_info.OPEN_FIELDS):
            raise CommandError(f"Invalid sort key: {key}")
    return keys


def _sort(jobs: List[JobInfo], text: str) -> None:
    """Sort by the keys, the first being the most significant.

    Jobs without a value come first, as an empty text.
    """
    for key in reversed([key for key in (text or "").split(",") if key]):
        name = key.lstrip("-")
        numeric = all(isinstance(job.get(name), (int, float)) for job in jobs)
        jobs.sort(key=lambda job: job.get(name) if numeric else str(job.get(name)), reverse=key[:1] == "-")


def _objects(jobs: List[JobInfo], args: Namespace) -> List[Dict[str, Any]]:
    """The jobs as JSON objects. With --recursive, a job that is an instance has its own jobs as `jobs`."""
    objects = []
    for job in jobs:
        shown = job.to_dict()
        handle = _open_instance(job, args) if args.recursive and args.level > 0 else None
        if handle is not None:
            below = _below(job, args)
            inner = _fetch(handle, below, ["all"])
            _sort(inner, below.sort)
            shown["jobs"] = _objects(inner, below)
            handle.close()
        objects.append(shown)
    return objects


def _print_json(objects: List[Dict[str, Any]], by_id: bool) -> None:
    import json

    print(json.dumps(objects[0] if by_id and len(objects) == 1 else {"jobs": objects}))


def _print_table(layout: Format, jobs: List[JobInfo], args: Namespace) -> None:
    rows = [visible(job) for job in jobs]
    layout.fit(rows, header=not args.no_header)
    lines: List[str] = []
    width = args.width
    if width == 0 and sys.stdout.isatty():
        width = os.get_terminal_size(1).columns
    if not args.no_header:
        lines.append(_cut(layout.header(), width) + "\n")
    colored = stdout_colored(args.color)
    for job, row in zip(jobs, rows):
        tint = job_info.color(job) if colored else ""
        line = _cut(layout.row(row), width)
        lines.append(f"{tint}{line}\n{job_info.COLOR_OFF}" if tint else f"{line}\n")
    sys.stdout.write("".join(lines))


def _cut(line: str, width: Optional[int]) -> str:
    """Truncate a line to `width` characters (0 or None: no limit) and mark it with + at the end."""
    return line[: width - 1] + "+" if width and len(line) > width else line


def _open_instance(job: JobInfo, args: Namespace, heading: str = "") -> Optional[Handle]:
    """Connect to the instance that a running job is.

    Returns None for other jobs, and if the connection fails.

    `heading` is printed before the connection attempt. A failure is reported on standard error. Instances of other
    users are tried only with --recurse-all.
    """
    from headrace.wire.query.uri import reachable

    uri = job.get("uri")
    if not uri or job.get("state") != "RUN":
        return None
    if job.get("userid") != os.getuid() and not args.recurse_all:
        # An instance accepts only its owner.
        return None
    sys.stdout.write(heading)
    sys.stdout.flush()
    try:
        return Handle(reachable(uri))
    except OSError as exc:
        sys.stderr.write(f"flux-jobs: ERROR: {args.path}{job.get('id.f58')}: {exc.strerror}\n")
        return None


def _below(job: JobInfo, args: Namespace) -> Namespace:
    """The arguments for listing the instance that a job runs."""
    import copy

    below = copy.copy(args)
    below.jobids = []
    below.path = f"{args.path}{job.get('id.f58')}/"
    below.level = args.level - 1
    return below


def _recurse(job: JobInfo, args: Namespace) -> None:
    """List the jobs of the instance that this job runs, under a heading.

    An unreachable instance is skipped.
    """
    heading = f"\n{args.path}{job.get('id.f58')}:\n"
    handle = _open_instance(job, args, heading)
    if handle is None:
        return
    below = _below(job, args)
    below.no_header = True
    if args.stats:
        _print_stats(handle, None)
    _list(handle, below, columns(args.format))


def _print_stats(handle: Handle, queues: Any) -> int:
    """Print the line of statistics and return the number of active jobs."""
    stats: Dict[str, Any] = handle.rpc("job-list.job-stats").get()
    chosen: Iterator[Dict[str, Any]] = iter([stats])
    if queues:
        wanted = [name for text in queues for name in text.split(",")]
        found = {queue["name"]: queue for queue in stats["queues"]}
        for name in wanted:
            if name not in found:
                raise CommandError(f"no such queue: {name}")
        chosen = iter([found[name] for name in wanted])
    running = completed = failed = pending = purged = 0
    for part in chosen:
        states = part["job_states"]
        running += states["run"] + states["cleanup"]
        pending += states["depend"] + states["priority"] + states["sched"]
        completed += part["successful"]
        failed += part["failed"] + part["canceled"] + part["timeout"]
        purged += part["inactive_purged"]
    print(
        f"{running} running, {completed} completed, {failed} failed, {pending} pending, {purged} inactive purged",
        flush=True,
    )
    return int(running + pending)
