"""`flux cancel`: raises the `cancel` exception on jobs, selected by id, or by user and state."""

from __future__ import annotations

import errno
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import job_id
from headrace.formats.spec import jobid
from headrace.formats.spec.job_exception import CANCEL, FATAL
from headrace.formats.spec.message import USERID_UNKNOWN
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query.listing import STATE_NAMES, Query, list_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Tuple

PREFIX = "flux-cancel: ERROR: "

# States in which a job can be canceled, and names for groups of them.
_STATES = ("depend", "priority", "sched", "run", "pending", "running", "active")


def _parser() -> Parser:
    parser = Parser("flux-cancel", usage="flux cancel [OPTIONS] [JOBID...]", description="Cancel jobs")
    add = parser.add_argument
    add("-a", "--all", action="store_true", help="Target all of my jobs")
    add("-n", "--dry-run", "--dry", action="store_true", help="Only print how many jobs would be canceled")
    add("-q", "--quiet", action="store_true", help="Print nothing if no job matches")
    add("-u", "--user", metavar="USER", help="Target jobs of USER (or all)")
    add(
        "-S",
        "--states",
        "--state",
        metavar="STATES",
        action="append",
        help="Target jobs in these states (default: active)",
    )
    add("-m", "--message", metavar="NOTE", help="Set the exception's note")
    add("jobids", metavar="JOBID...", type=job_id, nargs="*", help="Cancel these jobs")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    by_filter = bool(args.all or args.user or args.states)
    if args.jobids and by_filter:
        raise CommandError("Do not specify a list of jobids with --all,--user,--states options")
    if not args.jobids and not by_filter:
        raise CommandError("No target jobs were provided")
    handle = Handle()
    ids = args.jobids
    if by_filter:
        # Newest first: otherwise canceling a job could end its dependents before they are canceled themselves.
        query = _query(args)
        if args.user:
            _check_rights(handle, query)
        ids = sorted([int(job["id"]) for job in list_jobs(handle, query, [])], reverse=True)
    if args.dry_run and (ids or not by_filter):
        sys.stderr.write(f"flux-cancel: Would cancel {_counted(len(ids), 'job')}\n")
        return 0
    if by_filter and not ids:
        if not args.quiet or args.dry_run:
            sys.stderr.write("flux-cancel: Matched 0 jobs\n")
        return 0
    done, errors = _cancel(handle, ids, args.message, by_filter)
    if by_filter:
        sys.stderr.write(f"flux-cancel: Canceled {_counted(done, 'job')} ({_counted(errors, 'error')})\n")
    return 1 if errors else 0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _query(args: Namespace) -> Query:
    query = Query(count=0)
    query.user(args.user or str(own_userid()))
    for name in [name for text in args.states or ["active"] for name in text.split(",")]:
        if name.lower() not in _STATES:
            raise CommandError(f"Invalid state {name} specified")
        query.states |= STATE_NAMES[name.lower()]
    return query


def _check_rights(handle: Handle, query: Query) -> None:
    """Let the job manager check the right to cancel these users' jobs, also if there are none.

    Raises OSError.
    """
    userids = [clause["userid"][0] for clause in query.clauses if "userid" in clause]
    request = {"dry_run": True, "userid": userids[0] if userids else USERID_UNKNOWN, "states": query.states}
    handle.rpc("job-manager.raiseall", {**request, "severity": FATAL, "type": CANCEL}).get()


def _cancel(handle: Handle, ids: List[int], note: str, listed: bool) -> Tuple[int, int]:
    """Cancel jobs; returns the numbers of canceled jobs and errors.

    If `listed`, a job that has ended is neither.
    """
    request: Dict[str, Any] = {"type": CANCEL, "severity": FATAL}
    if note:
        request["note"] = note
    calls = [handle.rpc("job-manager.raise", {"id": job, **request}) for job in ids]
    done = errors = 0
    for job, call in zip(ids, calls):
        try:
            call.get()
            done += 1
        except OSError as exc:
            if listed and exc.errno == errno.ENOENT:
                continue
            errors += 1
            sys.stderr.write(f"flux-cancel: ERROR: {jobid.encode(job, 'f58')}: {exc.strerror}\n")
    return done, errors
