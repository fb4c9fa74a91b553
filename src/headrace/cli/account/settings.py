"""Arguments of the commands about projects, factors of the priority, settings, and the database as a whole."""

from __future__ import annotations

from headrace.cli.account.arguments import FIELDS, FORMAT, JSON, PARSABLE, argument, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.cli.account.arguments import Table

_PROJECT = argument("project", metavar="PROJECT", help="The project")
_KEY = argument("key", metavar="KEY", help="The setting")

COMMANDS: Table = {
    "add-project": (_PROJECT,),
    "view-project": (_PROJECT, PARSABLE, FORMAT),
    "delete-project": (_PROJECT,),
    "list-projects": (FIELDS, JSON, FORMAT),
    "view-factor": (argument("factor", metavar="FACTOR", help="The factor"), JSON, FORMAT),
    "edit-factor": (
        argument("--factor", required=True, metavar="FACTOR", help="The factor"),
        argument("--weight", type=int, required=True, metavar="N", help="Its weight in the sum"),
    ),
    "list-factors": (FIELDS, JSON, FORMAT),
    "reset-factors": (),
    "add-config": (argument("key_value_string", metavar="KEY=VALUE", help="The setting and its value"),),
    "view-config": (_KEY, JSON, FORMAT),
    "edit-config": (argument("key_value_strings", nargs="+", metavar="KEY=VALUE", help="Settings and their values"),),
    "delete-config": (_KEY,),
    "list-configs": (FIELDS, JSON, FORMAT),
    "create-db": (
        argument(
            "--priority-usage-reset-period",
            metavar="DURATION",
            help="Usage counts for this time (default: 28d; without a unit, in seconds)",
        ),
        argument(
            "--priority-decay-half-life",
            metavar="DURATION",
            help="Length of a period of usage (default: 7d; without a unit, in seconds)",
        ),
        argument(
            "--decay-factor",
            type=float,
            default=0.5,
            metavar="FACTOR",
            help="What a period counts of the next one's worth (default: 0.5)",
        ),
    ),
    "export-db": (
        flag("-F", "--fairshare-emulate", help="Print the tree of banks for flux account-fairshare-emulate"),
    ),
    "export-json": (),
    "pop-db": (
        argument(
            *("-c", "--csv-file"), metavar="FILE", help="A file TABLE.csv, whose first line has the names of columns"
        ),
        argument("-f", "--fields", metavar="COLUMN,...", help="Only these columns of the file"),
    ),
}
