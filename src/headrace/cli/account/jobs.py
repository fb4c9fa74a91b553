"""Arguments of the commands about jobs and usage."""

from __future__ import annotations

from headrace.cli.account.arguments import FORMAT, WHEN, argument, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.cli.account.arguments import Table

_COMPARED = "an operator (< <= = >= >) and seconds, such as '< 60'; several must all hold"

COMMANDS: Table = {
    "view-job-records": (
        argument("-u", "--user", metavar="USERNAME", help="Only jobs of this user"),
        argument("-j", "--jobid", metavar="JOBID", help="Only this job"),
        argument("-a", "--after-start-time", metavar="TIME", help=f"Only jobs that started after this time, {WHEN}"),
        argument("-b", "--before-end-time", metavar="TIME", help=f"Only jobs that ended before this time, {WHEN}"),
        argument("--project", metavar="PROJECT", help="Only jobs of this project"),
        argument("-B", "--bank", metavar="BANK", help="Only jobs of this bank"),
        argument("--cluster", metavar="NAME", help="Only jobs of this instance, in PostgreSQL"),
        argument(
            *("-d", "--requested-duration"),
            nargs="+",
            metavar="EXPRESSION",
            help=f"Only by requested time: {_COMPARED}",
        ),
        argument("-e", "--actual-duration", nargs="+", metavar="EXPRESSION", help=f"Only by time used: {_COMPARED}"),
        argument(
            *("-D", "--duration-delta"),
            nargs="+",
            metavar="EXPRESSION",
            help=f"Only by the difference of requested time and time used: {_COMPARED}",
        ),
        (FORMAT[0], {**FORMAT[1], "default": None}),
    ),
    "jobs": (
        argument("username", metavar="USERNAME", help="The user"),
        argument("--bank", metavar="BANK", help="Only jobs of this bank"),
        argument("--queue", metavar="QUEUE", help="Only jobs in this queue"),
        FORMAT,
        argument("-f", "--filter", metavar="STATES|RESULTS", help="Only jobs in these states or with these results"),
        argument("-c", "--count", default=0, metavar="N", help="At most N jobs (default: all)"),
        argument("--since", default="0.0", metavar="TIME", help="Inactive jobs only if they ended since this time"),
        argument("-j", "--jobids", nargs="+", metavar="JOBID", help="Only these jobs"),
        flag("-v", "--verbose", help="Show how each priority is computed"),
    ),
    "show-usage": (
        argument("table", choices=("associations", "banks"), help="Users in banks, or banks"),
        argument("-n", "--limit", type=int, default=10, metavar="N", help="Number of bars (default: 10)"),
    ),
    "view-usage-report": (
        argument("-s", "--start", metavar="TIME", help=f"Jobs from this time on, {WHEN}"),
        argument("-e", "--end", metavar="TIME", help=f"Jobs until this time, {WHEN}"),
        argument("-u", "--username", metavar="USERNAME", help="Only jobs of this user"),
        argument("-b", "--bank", metavar="BANK", help="Only jobs of this bank"),
        argument(
            *("-r", "--report-type"),
            choices=("bybank", "byuser", "byassociation"),
            metavar="bybank|byuser|byassociation",
            help="A line for each bank, user, or user in a bank",
        ),
        argument(
            *("-t", "--time-unit"), choices=("hour", "min", "sec"), metavar="hour|min|sec", help="Unit of the times"
        ),
        argument("-S", "--job-size-bins", metavar="N,...", help="A column for each of these numbers of nodes"),
    ),
    "clear-usage": (
        argument("banks", nargs="+", metavar="BANK", help="Banks whose usage becomes 0"),
        argument(
            "--ignore-older-than", metavar="TIME", help=f"Also leave out later jobs that ended before this time, {WHEN}"
        ),
    ),
    "scrub-old-jobs": (
        argument(
            "num_weeks",
            type=int,
            nargs="?",
            default=26,
            metavar="NUM_WEEKS",
            help="Delete records of jobs that ended more than this many weeks ago (default: 26)",
        ),
    ),
    "why": (
        argument("jobid", metavar="JOBID", help="The job"),
        flag("--json", help="Print a JSON object"),
    ),
    "report": (
        argument("--from", metavar="TIME", help=f"Jobs that ran after this time (default: 30 days ago), {WHEN}"),
        argument("--to", metavar="TIME", help=f"Jobs that ran before this time (default: now), {WHEN}"),
        argument("--html", metavar="FILE", group="form", help="Write a page with charts"),
        flag("--json", group="form", help="Print a JSON object"),
    ),
    "update-usage": (),
}
