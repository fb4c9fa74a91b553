"""`flux account-service`: answers `flux account` from a database, until it is stopped."""

from __future__ import annotations

from headrace.cli.account.arguments import access, add_cluster, add_database
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.formats.spec.duration import DurationError, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-account-service: ERROR: "


def _parser() -> Parser:
    parser = Parser(
        "flux-account-service", description="Serve the accounting database to flux account", allow_abbrev=True
    )
    add_database(parser)
    add_cluster(parser)
    parser.add_argument(
        "-t", "--test-background", action="store_true", dest="background", help="Go to the background once it serves"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="Also book jobs as they end, compute fair share, and send both to the policy mf_priority",
    )
    parser.add_argument(
        "--interval",
        default="60s",
        metavar="DURATION",
        help="With --follow, time between two computations of fair share (default: 60s; 0: none)",
    )
    parser.add_argument(
        "--count-running", action="store_true", help="With --follow, usage of running jobs counts for fair share"
    )
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    from headrace.engine.accounting.database import DEFAULT_PATH
    from headrace.engine.accounting.follow import Settings
    from headrace.engine.accounting.service import serve
    from headrace.storage.database import DatabaseError

    try:
        settings = Settings(parse(args.interval), args.count_running) if args.follow else None
    except DurationError as exc:
        raise CommandError(f"--interval: {exc}") from None
    try:
        return serve(args.path or DEFAULT_PATH, args.background, settings, access(args))
    except DatabaseError as exc:
        raise CommandError(str(exc)) from None
