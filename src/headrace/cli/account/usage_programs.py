"""The programs that compute usage and fair share in a database: fetch-job-records, update-usage and update-fshare.

Sites run `flux account-NAME` by cron, one after the other. With the module `accounting` they find everything done.
"""

from __future__ import annotations

import os
import sys
import time

from headrace.cli.account.arguments import access, add_cluster, add_database
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Callable, Dict, List, Tuple

    from headrace.storage.database import Database

PREFIX = "flux-{name}: ERROR: "


def _fetch(args: Namespace, data: Database, log: Callable[[str], None]) -> None:
    from headrace.engine.accounting import database, jobs

    if args.copy:
        old = database.connected(args.copy)
        try:
            jobs.copy(data, old)
        finally:
            old.close()
    log("beginning INSERT of newly found jobs into flux-accounting DB")
    jobs.fetch(data, Handle())
    log("INSERT of newly found jobs into flux-accounting DB complete")


def _usage(_args: Namespace, data: Database, log: Callable[[str], None]) -> None:
    from headrace.engine.accounting import database, usage

    log("beginning job-usage update for flux-accounting DB; slow response times may occur")
    database.need_own_tables(data)
    with data.transaction(locked=True):
        usage.update(data, time.time())
    log("job-usage update for flux-accounting DB now complete")


def _fair_share(_args: Namespace, data: Database, _log: Callable[[str], None]) -> None:
    from headrace.engine.accounting import fair_share

    with data.transaction(locked=True):
        fair_share.update(data)


_PROGRAMS: Dict[str, Tuple[Callable[[Namespace, Database, Callable[[str], None]], None], str]] = {
    "account-fetch-job-records": (_fetch, "Copy the records of jobs that have ended from the instance to the database"),
    "account-update-usage": (_usage, "Add the usage of jobs in the database to their users and banks"),
    "account-update-fshare": (_fair_share, "Compute the fair share of all users in the database"),
}


def main(argv: List[str], name: str) -> int:
    run, description = _PROGRAMS[name]
    parser = Parser(f"flux-{name}", description=description, allow_abbrev=True)
    add_database(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="Print each step")
    if run is _fetch:
        parser.add_argument("-c", "--copy", metavar="FILE", help="Copy the jobs of this database first")
        add_cluster(parser)
    args = parser.parse_args(argv)
    from headrace.engine.accounting import database
    from headrace.storage.database import DatabaseError

    def log(line: str) -> None:
        if args.verbose:
            sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}: INFO: {line}\n")

    path = args.path or database.DEFAULT_PATH
    if run is not _fetch and not database.is_url(path) and not os.path.isfile(path):
        raise CommandError(f"error opening DB: unable to open database file {path}")
    try:
        data = database.opened(path, access(args))
        try:
            run(args, data, log)
        except DatabaseError as exc:
            raise CommandError(f"{path}: {exc}") from None
        finally:
            data.close()
    except (DatabaseError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    return 0
