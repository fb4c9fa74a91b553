"""Arguments of the commands about users in banks (associations)."""

from __future__ import annotations

from headrace.cli.account.arguments import FIELDS, FORMAT, PARSABLE, UNKNOWN_USER, UNLIMITED, argument, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    from headrace.cli.account.arguments import Argument, Table

_USER = argument("username", metavar="USERNAME", help="The user")


# Options: name, short name, default of a new user, metavar, help.
_LIMITS: Tuple[Tuple[str, str, Any, str, str], ...] = (
    ("--shares", "", 1, "N", "Shares of the bank"),
    ("--fairshare", "", 0.5, "VALUE", "Fair share, from 0 to 1, until it is next computed"),
    ("--max-running-jobs", "", 5, "N", "Most jobs that run at once"),
    ("--max-active-jobs", "", 7, "N", "Most jobs that wait or run at once; a further one is refused"),
    ("--max-nodes", "-N", UNLIMITED, "N", "Most nodes of all running jobs"),
    ("--max-cores", "-c", UNLIMITED, "N", "Most cores of all running jobs"),
    ("--queues", "-q", "", "QUEUE,...", "Queues for the user's jobs"),
    ("--projects", "-P", "*", "PROJECT,...", "Projects for the user's jobs"),
    ("--default-project", "", None, "PROJECT", "Project of jobs that name none"),
    ("--max-sched-jobs", "", UNLIMITED, "N", "Most jobs that wait for resources (state SCHED) at once"),
)


def _limits(short: bool, with_defaults: bool) -> Tuple[Argument, ...]:
    """The options that set what a user may have in a bank, with or without their short names."""
    made = []
    for name, letter, default, metavar, text in _LIMITS:
        settings: Dict[str, Any] = {"metavar": metavar, "help": text}
        if with_defaults:
            settings["default"] = default
            # Fair share is the only option of a new user that argparse checks.
            if name == "--fairshare":
                settings["type"] = float
        made.append(argument(*[letter] * bool(short and letter), name, **settings))
    return tuple(made)


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
        *_limits(short=True, with_defaults=True),
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
        *_limits(short=True, with_defaults=False),
        argument("--add-queue", metavar="QUEUE", help="Add a queue to those of the user"),
        argument("--delete-queue", metavar="QUEUE", help="Remove a queue from those of the user"),
    ),
    "edit-all-users": (
        argument("--bank", metavar="BANK", help="Move all users to this bank"),
        argument("--default-bank", metavar="BANK", help="Bank of jobs that name none"),
        *_limits(short=False, with_defaults=False),
    ),
    "sync-userids": (),
}
