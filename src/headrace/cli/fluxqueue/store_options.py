"""Options that name the database with what was."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError, missing_extra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Optional

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.store.database import Address


def add_to(parser: Parser) -> None:
    """Add the options of the database with what was."""
    parser.add_argument("--store", default="", metavar="URL", help="sqlite:PATH or postgresql://USER@HOST/NAME")
    parser.add_argument(
        "--store-password-file", default="", metavar="FILE", help="Where the password of PostgreSQL's user is"
    )
    parser.add_argument(
        "--statedir", default="", metavar="DIR", help="Without --store, the store is the file store.sqlite in it"
    )


def store_of(options: Namespace) -> Optional[Address]:
    """The database that options ask for, None for none. Raises CommandError."""
    from headrace.cluster_queue.store.database import Address

    if not options.store and not options.statedir:
        if options.store_password_file:
            raise CommandError("--store-password-file is the password of a --store: give that, too")
        return None
    try:
        store = Address(options.store or f"sqlite:{options.statedir}/store.sqlite", options.store_password_file)
    except ValueError as exc:
        raise CommandError(f"--store: {exc}") from None
    if not store.path:
        try:
            import psycopg  # noqa: F401 - only whether it is installed
        except ImportError as exc:
            raise missing_extra("a store in PostgreSQL", "fluxqueue", exc) from None
    return store
