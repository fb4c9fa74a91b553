"""`headrace api users` and `tokens`: read and change the user store.

They also work while a service runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time

from headrace.cli.common.errors import missing_extra
from headrace.cli.common.named_formats import printable

# The values of --auth that let several users log in.
SEVERAL = ("users", "proxy", "pam")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Tuple

    from headrace.service.store.database import Store


_FILE = "api.sqlite"


def add_parsers(commands: Any) -> None:
    """Add the parsers of `users` and `tokens`; each sets `run`, a function of the options and the store."""
    users = _group(commands, "users", "Manage the users of --auth users")
    add = _command(users, "users add", _add, "Add a user; the password is read from the terminal or from stdin")
    add.add_argument("name", metavar="NAME")
    add.add_argument("--admin", action="store_true", help="Let the user see all jobs and stop the instance")
    add.add_argument(
        "--uid-range",
        type=_range,
        default=None,
        metavar="LOW-HIGH",
        help="Range of userids for users without an entry in passwd (default: 200000-299999)",
    )
    listing = _command(users, "users list", _list_users, "List users")
    listing.add_argument("--json", action="store_true", help="Print JSON")
    remove = _command(
        users, "users remove", _remove, "Remove a user and the user's tokens; the userid is not used again"
    )
    remove.add_argument("name", metavar="NAME")
    password = _command(users, "users password", _set_password, "Set a new password and revoke the user's tokens")
    password.add_argument("name", metavar="NAME")
    renumber = _command(
        users, "users renumber", _renumber, "Set a user's userid to the one in passwd and revoke the user's tokens"
    )
    renumber.add_argument("name", metavar="NAME")
    admin = _command(users, "users admin", _set_admin, "Make a user an administrator")
    admin.add_argument("name", metavar="NAME")
    admin.add_argument("--off", action="store_true", help="Make the user an ordinary user again")

    _command(users, "users reset", _reset, "Create an empty store after it was lost; userids are not used again")

    tokens = _group(commands, "tokens", "Manage the tokens of --auth users")
    listing = _command(tokens, "tokens list", _list_tokens, "List valid tokens")
    listing.add_argument("name", metavar="NAME", nargs="?", default="", help="List the tokens of this user only")
    listing.add_argument("--json", action="store_true", help="Print JSON")
    issue = _command(tokens, "tokens issue", _issue, "Print a new token; it is not shown again")
    issue.add_argument("name", metavar="NAME")
    issue.add_argument("--minutes", type=_minutes, default=600, metavar="N", help="Minutes it is valid (default: 600)")
    issue.add_argument("--note", default="", metavar="TEXT", help="A note about its purpose")
    revoke = _command(tokens, "tokens revoke", _revoke, "Revoke a token by its id")
    revoke.add_argument("id", metavar="ID")


def _group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, prog=f"headrace api {name}", help=text, description=text)
    return parser.add_subparsers(dest="deed", metavar="COMMAND", required=True)


def _command(group: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(
        name.partition(" ")[2], prog=f"headrace api {name}", help=text, description=text
    )
    add_database(parser)
    parser.set_defaults(run=run)
    return parser


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", default="", metavar="FILE", help=f"User store (default: {_FILE} in the statedir)")


def database(options: Any) -> str:
    """The path of the store: `--database`, or the file in this instance's statedir.

    Raises ValueError, OSError.
    """
    if options.database:
        return os.path.abspath(str(options.database))
    from headrace.wire.client.handle import Handle

    with Handle() as handle:
        try:
            statedir = handle.attr_get("statedir")
        except OSError:
            statedir = ""
    if not statedir:
        raise ValueError("this instance has no statedir to keep the users in: give --database FILE")
    return os.path.join(statedir, _FILE)


def check_extra() -> None:
    """Raise CommandError if a package that the store needs is not installed."""
    try:
        import argon2  # noqa: F401
    except ImportError as exc:
        raise missing_extra("the store of users", "api", exc) from None


def run(options: Any) -> int:
    """Run one of these commands. Raises StoreError, a ValueError."""
    from headrace.service.store import NoSuchToken, NoSuchUser, StoreError, StoreUnusable
    from headrace.service.store.database import open_file

    path = database(options)
    store = open_file(path, reset=options.run is _reset)
    where = f" --database {shlex.quote(options.database)}" if options.database else ""
    try:
        options.run(options, store)
    except NoSuchUser as exc:
        raise NoSuchUser(f"{exc}: headrace api users list{where} shows users") from None
    except NoSuchToken as exc:
        raise NoSuchToken(f"{exc}: headrace api tokens list{where} shows tokens") from None
    except StoreUnusable as exc:
        raise StoreError(f"{path}: {exc}") from None
    return 0


def _range(text: str) -> Tuple[int, int]:
    low, dash, high = text.partition("-")
    if not (
        dash and all(one.isascii() and one.isdigit() for one in (low, high)) and 0 < int(low) <= int(high) < 1 << 31
    ):
        raise argparse.ArgumentTypeError(f"'{text}' is not a range of userids (try 200000-299999)")
    return int(low), int(high)


def _minutes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 1 << 31):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of minutes (1 or more)")
    return int(text)


def _password() -> str:
    """Read a password: typed twice at a terminal, otherwise the first line of stdin."""
    from headrace.service.store.users import SHORT_PASSWORD

    if sys.stdin.isatty():
        from getpass import getpass

        found = getpass("Password: ")
        if getpass("Repeat password: ") != found:
            raise ValueError("the passwords do not match")
    else:
        found = sys.stdin.readline().rstrip("\n")
    if 0 < len(found) < SHORT_PASSWORD:
        sys.stderr.write(f"headrace-api: a password of fewer than {SHORT_PASSWORD} characters is easy to guess\n")
    return found


def _add(options: Any, store: Store) -> None:
    from headrace.service.store import users

    made = users.add(store, options.name, _password(), options.admin, options.uid_range or users.UID_RANGE)
    print(f"{made.name} has the userid {made.userid}")


def _remove(options: Any, store: Store) -> None:
    from headrace.service.store import users

    users.remove(store, options.name)


def _reset(options: Any, store: Store) -> None:
    """Do nothing: `run` opens the store with `reset`, which makes it empty."""


def _renumber(options: Any, store: Store) -> None:
    from headrace.service.store import users

    found = users.renumber(store, options.name)
    print(f"{found.name} has the userid {found.userid}")


def _set_password(options: Any, store: Store) -> None:
    from headrace.service.store import users

    users.one(store, options.name)
    users.change(store, options.name, password=_password())


def _set_admin(options: Any, store: Store) -> None:
    from headrace.service.store import users

    users.change(store, options.name, admin=not options.off)


def _list_users(options: Any, store: Store) -> None:
    from headrace.service.store import users

    found = users.everybody(store)
    if options.json:
        _print_json(found)
        return
    _print_rows(
        "NAME USERID ROLE ADDED",
        ((one.name, str(one.userid), "admin" if one.admin else "user", _date(one.added)) for one in found),
    )


def _list_tokens(options: Any, store: Store) -> None:
    from headrace.service.store import tokens

    found = tokens.listed(store, options.name)
    if options.json:
        _print_json(found)
        return
    _print_rows(
        "ID USER KIND ISSUED ENDS NOTE",
        (
            (one.id, one.user, "session" if one.session else "token", _date(one.issued), _date(one.ends), one.note)
            for one in found
        ),
    )


def _issue(options: Any, store: Store) -> None:
    from headrace.service.store import tokens, users

    print(tokens.issue(store, users.one(store, options.name), options.minutes * 60.0, options.note)[0])


def _revoke(options: Any, store: Store) -> None:
    from headrace.service.store import tokens

    tokens.revoke(store, options.id)


def _print_json(rows: List[Any]) -> None:
    import json

    print(json.dumps([row._asdict() for row in rows]))


def _print_rows(header: str, rows: Iterable[Tuple[str, ...]]) -> None:
    # `printable`, because users write the notes.
    table = [tuple(header.split()), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(seconds))
