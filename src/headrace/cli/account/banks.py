"""Arguments of the commands about banks."""

from __future__ import annotations

from headrace.cli.account.arguments import FIELDS, FORMAT, JSON, WHEN, argument, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.cli.account.arguments import Table

_BANK = argument("bank", metavar="BANK", help="The bank")
_USER = argument("username", metavar="USERNAME", help="The user")
_IGNORE = {"metavar": "TIME", "help": f"Usage leaves out jobs that ended before this time, {WHEN}"}

COMMANDS: Table = {
    "add-bank": (
        _BANK,
        argument("shares", metavar="SHARES", help="Shares among the banks below the same parent"),
        argument("--parent-bank", default="", metavar="BANK", help="The bank above it; the root bank has none"),
        argument(
            "--priority", type=float, default=0.0, metavar="PRIORITY", help="Priority of the bank's jobs (default: 0)"
        ),
        argument("--ignore-older-than", default=0, **_IGNORE),
    ),
    "view-bank": (
        _BANK,
        flag("-t", "--tree", help="Print the bank and everything below it as a tree"),
        flag("-u", "--users", help="Print the users of the bank, too"),
        flag("-P", "--parsable", help="Separate the columns of a tree by |"),
        FIELDS,
        FORMAT,
        flag("-c", "--concise", help="Only users who have some usage"),
        flag("-A", "--active", help="Only users who are active"),
    ),
    "delete-bank": (
        _BANK,
        flag(
            "--force",
            help="Delete the rows of the bank and of everything below it, instead of making them inactive;"
            " this changes the fair share of others",
        ),
    ),
    "edit-bank": (
        _BANK,
        argument("--shares", metavar="SHARES", help="Shares among the banks below the same parent"),
        argument("--parent-bank", metavar="BANK", help="The bank above it"),
        argument("--priority", metavar="PRIORITY", help="Priority of the bank's jobs"),
        argument("--ignore-older-than", **_IGNORE),
    ),
    "list-banks": (flag("--inactive", help="Also banks that are inactive"), FIELDS, JSON, FORMAT),
    "add-coordinator": (_USER, _BANK),
    "delete-coordinator": (_USER, _BANK),
    "list-coordinators": (JSON, FORMAT),
    "bank-info": (
        flag("-v", "--verbose", help="Also the usage, and whether a line is a bank or a user"),
        flag("-P", "--parsable", help="Separate columns by |"),
        flag("-n", "--noheader", help="Do not print the header"),
        argument("-x", "--exclude", metavar="BANK", help="Leave out this bank"),
        argument("-t", "--tree", metavar="BANK", group="of", help="A bank and everything below it"),
        argument("-T", "--tree-no-users", metavar="BANK", group="of", help="A bank and all banks below it"),
        argument("-r", "--to-root", metavar="BANK", group="of", help="A bank and all banks above it"),
        argument("-u", "--user", metavar="USER", group="of", help="A user, with all banks above (default: you)"),
    ),
}
