"""`flux account-priority-update`: sends the accounting database to the policy `mf_priority` of the instance."""

from __future__ import annotations

import sys

from headrace.cli.account.arguments import access, add_database
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-account-priority-update: ERROR: "

_OUT_OF_DATE = (
    "flux-accounting database out of date; updating DB with 'flux account-update-db' before sending information to"
    " plugin"
)


def main(argv: List[str]) -> int:
    parser = Parser(
        "flux-account-priority-update",
        description="Send users, banks, queues, projects and settings to the policy mf_priority",
        allow_abbrev=True,
    )
    add_database(parser)
    args = parser.parse_args(argv)
    from headrace.engine.accounting import database, migration, push
    from headrace.storage.database import DatabaseError

    path = args.path or database.DEFAULT_PATH
    try:
        if database.is_out_of_date(path, access(args)):
            sys.stdout.write(f"{_OUT_OF_DATE}\n")
            migration.update(path, "", lambda _line: None, access(args))
        data = database.opened(path, access(args))
        try:
            push.send(Handle(), data)
        finally:
            data.close()
    except (DatabaseError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    return 0
