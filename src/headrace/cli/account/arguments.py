"""How the files of this package declare arguments: a table of commands, each with the arguments of argparse."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, Tuple

    from headrace.cli.common.arguments import Parser
    from headrace.engine.accounting.database import Access

    # Names of an argument, and the keywords of add_argument; arguments of one `group` exclude each other.
    Argument = Tuple[Tuple[str, ...], Dict[str, Any]]
    # The arguments of each command of a file.
    Table = Dict[str, Tuple[Argument, ...]]

# A limit that limits nothing.
UNLIMITED = 2147483647
# The id of a user without an account, which the service then looks up by name.
UNKNOWN_USER = 4294967295


def argument(*names: str, **settings: Any) -> Argument:
    return names, settings


def flag(*names: str, help: str, **settings: Any) -> Argument:
    return names, {"action": "store_true", "help": help, **settings}


FORMAT = argument(
    *("-o", "--format"),
    default="",
    metavar="FORMAT",
    help="Print a line for each row by this Python format string with names of columns in braces",
)
JSON = flag("--json", help="Print a list of JSON objects")
PARSABLE = flag("--parsable", help="Print a table instead of JSON")
FIELDS = argument("--fields", metavar="COLUMN,...", help="Only these columns (default: all)")
# A time, also used in the text of reports.
WHEN = "as seconds since the epoch or as a date such as '01/01/2025', '2025-01-01 08:00:00' or 'Jan 1, 2025 8am'"


def add_database(parser: Parser, purpose: str = "") -> None:
    """Add the options that name the database. `purpose` is part of the help of a command that rarely needs them."""
    default = "default: /var/lib/flux/FluxAccounting.db"
    parser.add_argument(
        *("-p", "--path"),
        metavar="FILE|URL",
        help=f"The database{purpose}: a file, or postgresql://USER@HOST:PORT/NAME ({default})",
    )
    parser.add_argument("--password-file", metavar="FILE", default="", help="File with the password for PostgreSQL")


def add_cluster(parser: Parser) -> None:
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        default="cluster",
        help="The name of this instance in PostgreSQL (default: cluster)",
    )


def access(args: Namespace) -> Access:
    """How the options use PostgreSQL."""
    from headrace.engine.accounting.database import Access

    return Access(args.password_file, getattr(args, "cluster", "cluster"))


def add_to(parser: Parser, arguments: Tuple[Argument, ...]) -> None:
    """Add the arguments of a command to its parser."""
    groups: Dict[str, Any] = {}
    for names, settings in arguments:
        settings = dict(settings)
        group = settings.pop("group", "")
        if group and group not in groups:
            groups[group] = parser.add_mutually_exclusive_group()
        (groups[group] if group else parser).add_argument(*names, **settings)
