"""`flux account-update-db`: updates the accounting database of an older version, and keeps a backup beside it."""

from __future__ import annotations

import sys

from headrace.cli.account.arguments import access, add_database
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-account-update-db: ERROR: "


def _parser() -> Parser:
    parser = Parser(
        "flux-account-update-db",
        description="Update the accounting database to the tables of this version; the backup of a file is FILE.backup",
        allow_abbrev=True,
    )
    add_database(parser)
    parser.add_argument("-n", "--new-db", metavar="FILE", help="Take the tables from this database, for tests")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="Print each step")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    from headrace.engine.accounting import database, migration
    from headrace.storage.database import DatabaseError

    def log(line: str) -> None:
        if args.verbose:
            sys.stderr.write(f"INFO: {line}\n")

    try:
        migration.update(args.path or database.DEFAULT_PATH, args.new_db or "", log, access(args))
    except DatabaseError as exc:
        raise CommandError(str(exc)) from None
    return 0
