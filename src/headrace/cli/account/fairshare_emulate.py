"""`flux account-fairshare-emulate`: the fair share of users in a tree of banks that a JSON file describes."""

from __future__ import annotations

import json
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from headrace.sched.accounting.tree import Node

PREFIX = "fairshare-emulate: "


def main(argv: List[str]) -> int:
    parser = Parser(
        "flux-account-fairshare-emulate",
        description="Compute fair share for a tree of banks and users in a file, without a database",
        allow_abbrev=True,
    )
    add = parser.add_argument
    add("-i", "--input", metavar="FILE", required=True, help="The tree as JSON, as flux account export-db -F writes it")
    add("-j", "--json", action="store_true", help="Print a list of objects")
    add("-o", "--format", metavar="FORMAT", default="", help="Print a line per user by a Python format string")
    add("-P", "--parsable", action="store_true", help="Separate the columns by |")
    args = parser.parse_args(argv)
    root = read(args.input)
    from headrace.sched.accounting import emulate
    from headrace.sched.accounting.tree import standings

    try:
        print(emulate.as_text(standings(root), args.json, emulate.PARSABLE if args.parsable else args.format))
    except ValueError as exc:
        raise CommandError(f"ValueError: {exc}") from None
    return 0


def read(path: str) -> Node:
    """The tree in a file. Raises CommandError, with the type of the error as in flux-accounting."""
    if sys.version_info < (3, 10):
        raise CommandError("fair share needs Python 3.10")
    from headrace.sched.accounting import emulate

    try:
        with open(path, encoding="utf-8") as file:
            return emulate.parse(json.load(file))
    except FileNotFoundError:
        raise CommandError(f"FileNotFoundError: input file not found: {path}") from None
    except OSError as exc:
        raise CommandError(f"{type(exc).__name__}: {path}: {exc.strerror}") from None
    except json.JSONDecodeError as exc:
        raise CommandError(f"JSONDecodeError: invalid JSON in input file: {exc}") from None
    except RecursionError:
        raise CommandError(f"RecursionError: {path}: too many levels of banks") from None
    except ValueError as exc:
        raise CommandError(f"ValueError: {exc}") from None
