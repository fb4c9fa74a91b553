"""`flux account-service`: answers `flux account` from a database, until it is stopped."""

from __future__ import annotations

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-account-service: ERROR: "


def _parser() -> Parser:
    parser = Parser(
        "flux-account-service", description="Serve the accounting database to flux account", allow_abbrev=True
    )
    parser.add_argument("-p", "--path", metavar="FILE", help="The database (default: /var/lib/flux/FluxAccounting.db)")
    parser.add_argument(
        "-t", "--test-background", action="store_true", dest="background", help="Go to the background once it serves"
    )
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    from headrace.engine.accounting.database import DEFAULT_PATH
    from headrace.engine.accounting.service import serve
    from headrace.storage.database import DatabaseError

    try:
        return serve(args.path or DEFAULT_PATH, args.background)
    except DatabaseError as exc:
        raise CommandError(str(exc)) from None
