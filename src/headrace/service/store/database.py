"""The database: a file of SQLite that its owner alone can read."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Iterator
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, inspect, select, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from headrace.service.store import memory
from headrace.service.store.errors import StoreError, StoreUnusable
from headrace.service.store.tables import USERS

# The migration that the tables of this version need.
HEAD = "users_and_tokens"
# Seconds that a command waits for another one's change.
_BUSY_TIMEOUT = 10.0
# The largest number that SQLite keeps for an application in a file (PRAGMA user_version).
_LARGEST_NUMBER = (1 << 31) - 1


def open_file(path: str, told: Callable[[str], None] | None = None, anew: bool = False) -> Engine:
    """The database at `path`, made if it is not there, and brought up to date. `told` gets the text of each error of
    SQLite. With `anew` a file without users takes the place of the store that was here before. Raises StoreError.
    """
    known = memory.read(path)
    if known is not None and not anew and not os.path.exists(path):
        raise _other_store(path)
    _make_private(path)
    # 0 while the file may have another number.
    number = 0

    def connect() -> sqlite3.Connection:
        # A file that was removed is not made again (rw).
        made = sqlite3.connect(f"file:{quote(path)}?mode=rw", _BUSY_TIMEOUT, check_same_thread=False, uri=True)
        made.execute("PRAGMA foreign_keys = ON")
        return made

    def connected(_: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _file(path)

    def check(connection: sqlite3.Connection, record: ConnectionPoolEntry, _: object) -> None:
        if record.info["file"] != _file(path):
            # The pool connects again.
            raise DisconnectionError
        if number and connection.execute("PRAGMA user_version").fetchone() != (number,):
            raise sqlite3.DatabaseError("another file has taken its place")

    engine = create_engine(URL.create("sqlite", database=path), creator=connect, hide_parameters=True)
    event.listen(engine, "connect", connected)
    event.listen(engine, "checkout", check)
    event.listen(engine, "handle_error", lambda context: _fail(context, told))
    try:
        if known is not None and not anew and _number(engine) != known.number:
            raise _other_store(path)
        if _version(engine) != HEAD:
            _migrate(engine, path)
        number = _take_anew(engine, path) if anew else _identify(engine, path)
    except StoreUnusable as exc:
        raise StoreError(f"{path}: {exc}") from None
    return engine


@contextlib.contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other change comes between."""
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


def _fail(context: ExceptionContext, told: Callable[[str], None] | None) -> None:
    """Raise an error of SQLite as one for users. That of SQLAlchemy would have the statement and its parameters."""
    if isinstance(context.original_exception, sqlite3.Error):
        if told is not None:
            told(str(context.original_exception))
        raise StoreUnusable(str(context.original_exception))


def _file(path: str) -> tuple[int, int]:
    """Which file has the path: device and inode, zeros for none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from None
    if mode & 0o077:
        raise StoreError(f"{path}: others have rights to this file, which has passwords (mode {mode:o}): chmod 600")


def _other_store(path: str) -> StoreError:
    return StoreError(
        f"{path} is not the store of users that was here before: it was removed, emptied or replaced. Bring that one "
        "back from a copy. To begin without its users, move what is there away, and then: headrace api users reset"
    )


def _identify(engine: Engine, path: str) -> int:
    """The number of the store, which is new for a new one. Raises StoreError where another store was here before."""
    with changing(engine) as connection:
        if memory.read(path) is None and not _number(connection):
            _renumber(connection)
    # What is known is written when the number is on the disk: a service that is killed before goes on here.
    with changing(engine) as connection:
        number, known = _number(connection), memory.read(path)
        if known is None:
            memory.write(path, memory.Memory(number).with_userids(_userids(connection)))
        elif known.number != number:
            raise _other_store(path)
    return number


def _take_anew(engine: Engine, path: str) -> int:
    with changing(engine) as connection:
        if _userids(connection):
            raise StoreError(f"{path} has users: move it away first")
        known = memory.read(path)
        if not _number(connection):
            _renumber(connection)
        number = _number(connection)
        # The file has no users, so that nothing is lost where the two numbers differ.
        memory.write(path, memory.Memory(number) if known is None else known._replace(number=number))
    return number


def _renumber(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA user_version = {1 + secrets.randbelow(_LARGEST_NUMBER)}")


def _userids(connection: Connection) -> list[int]:
    return list(connection.execute(select(USERS.c.userid)).scalars())


def _number(bind: Engine | Connection) -> int:
    if isinstance(bind, Engine):
        with bind.connect() as connection:
            return _number(connection)
    return int(bind.exec_driver_sql("PRAGMA user_version").scalar_one())


def _version(engine: Engine) -> str:
    if not inspect(engine).has_table("alembic_version"):
        return ""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")


def _migrate(engine: Engine, path: str) -> None:
    # Imported where there is something to do, as it takes 11 MB.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "headrace.service.store:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, HEAD)
        except CommandError as exc:
            raise StoreError(f"{path}: made by another version of Headrace: {exc}") from None
