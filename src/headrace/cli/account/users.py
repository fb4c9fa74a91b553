"""Arguments of the commands about users in banks (associations)."""

from __future__ import annotations

from headrace.cli.account.arguments import FIELDS, FORMAT, PARSABLE, UNKNOWN_USER, UNLIMITED, argument, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from headrace.cli.account.arguments import Argument, Table

_USER = argument("username", metavar="USERNAME", help="The user")


def _limits(short: bool, **defaults: Any) -> Tuple[Argument, ...]:
    """The options that set what a user may have in a bank."""

    def names(letter: str, option: str) -> Tuple[str, ...]:
        return (letter, option) if short else (option,)

    return (
        argument("--shares", default=defaults.get("shares"), metavar="N", help="Shares of the bank"),
        argument(
            "--fairshare",
            type=float if defaults else str,
            default=defaults.get("fairshare"),
            metavar="VALUE",
            help="Fair share, from 0 to 1, until it is next computed",
        ),
        argument(
            "--max-running-jobs",
            default=defaults.get("max_running_jobs"),
            metavar="N",
            help="Most jobs that run at once",
        ),
        argument(
            "--max-active-jobs",
            default=defaults.get("max_active_jobs"),
            metavar="N",
            help="Most jobs that wait or run at once; a further one is refused",
        ),
        argument(
            *names("-N", "--max-nodes"),
            default=defaults.get("max_nodes"),
            metavar="N",
            help="Most nodes of all running jobs",
        ),
        argument(
            *names("-c", "--max-cores"),
            default=defaults.get("max_cores"),
            metavar="N",
            help="Most cores of all running jobs",
        ),
        argument(
            *names("-q", "--queues"),
            default=defaults.get("queues"),
            metavar="QUEUE,...",
            help="Queues for the user's jobs",
        ),
        argument(
            *names("-P", "--projects"),
            default=defaults.get("projects"),
            metavar="PROJECT,...",
            help="Projects for the user's jobs",
        ),
        argument("--default-project", metavar="PROJECT", help="Project of jobs that name none"),
        argument(
            "--max-sched-jobs",
            default=defaults.get("max_sched_jobs"),
            metavar="N",
            help="Most jobs that wait for resources (state SCHED) at once",
        ),
    )


_NEW = _limits(
    True,
    shares=1,
    fairshare=0.5,
    max_running_jobs=5,
    max_active_jobs=7,
    max_nodes=UNLIMITED,
    max_cores=UNLIMITED,
    queues="",
    projects="*",
    max_sched_jobs=UNLIMITED,
)

COMMANDS: Table = {
    "view-user": (
        _USER,
        PARSABLE,
        flag("--list-banks", help="Print only the names of the user's banks"),
        FORMAT,
        (FIELDS[0], {**FIELDS[1], "group": "rows"}),
        flag("-J", "--job-usage", help="Show the usage of each period", group="rows"),
    ),
    "list-users": (
        (("-f", *FIELDS[0]), FIELDS[1]),
        flag("-j", "--json", help="Print a list of JSON objects"),
        FORMAT,
        argument("--active", metavar="0|1", help="Only users who are inactive (0) or active (1)"),
        argument("-B", "--bank", metavar="BANK,...", help="Only users of these banks"),
        argument("--shares", metavar="N,...", help="Only users with these shares"),
        argument("--max-running-jobs", metavar="N,...", help="Only users with these limits"),
        argument("--max-active-jobs", metavar="N,...", help="Only users with these limits"),
        argument("-N", "--max-nodes", metavar="N,...", help="Only users with these limits"),
        argument("-c", "--max-cores", metavar="N,...", help="Only users with these limits"),
        argument("-q", "--queues", metavar="QUEUE,...", help="Only users with one of these queues"),
        argument("-P", "--projects", metavar="PROJECT,...", help="Only users with one of these projects"),
        argument("--default-project", metavar="PROJECT,...", help="Only users with one of these default projects"),
        argument("--max-sched-jobs", metavar="N,...", help="Only users with these limits"),
    ),
    "add-user": (
        argument("-u", "--username", required=True, metavar="USERNAME", help="The user"),
        argument(
            *("-i", "--userid"),
            default=UNKNOWN_USER,
            metavar="UID",
            help="The user's id (default: that of the account on the service's machine)",
        ),
        argument("-B", "--bank", required=True, metavar="BANK", help="The bank, which has no banks below it"),
        *_NEW,
    ),
    "delete-user": (
        _USER,
        argument("bank", metavar="BANK", help="The bank"),
        flag("--force", help="Delete the row, instead of making it inactive; this changes the fair share of others"),
    ),
    "edit-user": (
        _USER,
        argument(
            "-B", "--bank", metavar="BANK", help="Change only the user's row in this bank (default: in all banks)"
        ),
        argument("-i", "--userid", metavar="UID", help="The user's id"),
        argument("--default-bank", metavar="BANK", help="Bank of jobs that name none"),
        *_limits(True),
        argument("--add-queue", metavar="QUEUE", help="Add a queue to those of the user"),
        argument("--delete-queue", metavar="QUEUE", help="Remove a queue from those of the user"),
    ),
    "edit-all-users": (
        argument("--bank", metavar="BANK", help="Move all users to this bank"),
        argument("--default-bank", metavar="BANK", help="Bank of jobs that name none"),
        *_limits(False),
    ),
    "sync-userids": (),
}
