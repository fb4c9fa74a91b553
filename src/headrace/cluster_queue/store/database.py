"""SQLite and PostgreSQL behind the few calls that the store needs. What blocks is called in a thread of its own.

SQL is written for both, with parameters as `:name`. The schema is numbered files (`schema/0001_*.sql`): the table
`version` has the numbers of those that a database has taken, each in one transaction.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

SCHEMA = Path(__file__).with_name("schema")
# Seconds for which a connection is tried, and after which a server that does not answer has gone.
_CONNECT_TIMEOUT = 10
_SILENCE = 30
# Seconds for which another process may have SQLite's file locked.
_LOCK_TIMEOUT = 30.0
# PostgreSQL, "Error Codes": undefined_table.
_UNDEFINED_TABLE = "42P01"

Row = Sequence[Any]


class StoreError(Exception):
    """A database that cannot be reached or used; another attempt may succeed."""


class BadValue(StoreError):
    """A value that the database does not take, at any attempt."""


class Address(Struct, frozen=True):
    """`url` is sqlite:PATH or postgresql://USER@HOST:PORT/NAME; `password_file` is read at each connection."""

    url: str
    password_file: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.url.startswith("sqlite:"):
            if not self.path:
                raise ValueError(f"{self.url}: names no file: must be sqlite:PATH")
            if self.password_file:
                raise ValueError(f"{self.url}: a file needs no password")
        elif self.url.startswith(("postgresql://", "postgres://")):
            if urlsplit(self.url).password is not None or "password=" in self.url:
                raise ValueError("a password in the address is seen by everybody: write it into a password file")
        else:
            raise ValueError(f"{self.url}: must be sqlite:PATH or postgresql://USER@HOST/NAME")

    @property
    def path(self) -> str:
        """The file of SQLite; "" with PostgreSQL."""
        return self.url[len("sqlite:") :] if self.url.startswith("sqlite:") else ""


class Migration(NamedTuple):
    number: int
    sql: str


def migrations(folder: Path = SCHEMA) -> list[Migration]:
    """The files of a schema, in order."""
    return [Migration(int(file.name[:4]), file.read_text()) for file in sorted(folder.glob("*.sql"))]


class Database:
    """A connection. Raises StoreError."""

    def __init__(self, connection: Any, errors: type[Exception], bad: tuple[type[Exception], ...], style: str) -> None:
        self._connection = connection
        self._errors = errors
        self._bad: tuple[type[Exception], ...] = (*bad, OverflowError)
        self._style = style
        self._texts: dict[str, str] = {}
        # A process that ends writes while the thread of its last write may still be at it.
        self._lock = threading.RLock()

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        """Run a statement; the number of rows that it has changed."""
        return int(self._run(sql, values).rowcount)

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        with self._guarded():
            return list(self._run(sql, values).fetchall())

    def _run(self, sql: str, values: Mapping[str, Any] | None) -> Any:
        text = self._texts.setdefault(sql, re.sub(r":(\w+)", self._style, sql))
        with self._guarded():
            return self._connection.execute(text, values) if values else self._connection.execute(text)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except self._bad as exc:
            raise BadValue(str(exc)) from exc
        except self._errors as exc:
            raise StoreError(str(exc).strip()) from exc

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of a block's statements, or none."""
        with self._lock:
            self.execute("BEGIN")
            try:
                yield
            except BaseException:
                with contextlib.suppress(StoreError):
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")

    def close(self) -> None:
        with contextlib.suppress(self._errors):
            self._connection.close()


def connect(address: Address) -> Database:
    """Raises StoreError; ImportError where psycopg is needed and not installed."""
    return _sqlite(address.path) if address.path else _postgresql(address)


def _sqlite(path: str) -> Database:
    # Calls come from several threads, one after the other.
    try:
        connection = sqlite3.connect(path, _LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as exc:
        raise StoreError(f"{path}: {exc}") from exc
    database = Database(connection, sqlite3.Error, (sqlite3.DataError,), r":\1")
    try:
        # Others may read while it is written.
        database.rows("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
    except StoreError as exc:
        database.close()
        raise StoreError(f"{path}: {exc}") from exc
    return database


def _postgresql(address: Address) -> Database:
    import psycopg

    try:
        password = _password(address.password_file) if address.password_file else None
        connection = psycopg.connect(
            address.url,
            password=password,
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT,
            keepalives_idle=_SILENCE // 3,
            keepalives_interval=_SILENCE // 3,
            keepalives_count=2,
            tcp_user_timeout=_SILENCE * 1000,
        )
    except (psycopg.Error, OSError) as exc:
        raise StoreError(str(exc).strip()) from exc
    return Database(connection, psycopg.Error, (psycopg.DataError,), r"%(\1)s")


def _password(file: str) -> str:
    """Raises StoreError, OSError."""
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError as exc:
        raise StoreError(f"{file}: must have a password as text in UTF-8: {exc}") from None


def version_of(database: Database) -> int:
    """The number of the last file of the schema that a database has taken, 0 for an empty one. Raises StoreError."""
    try:
        (row,) = database.rows("SELECT max(number) FROM version")
    except StoreError as exc:
        if _lacks_table(exc.__cause__):
            return 0
        raise
    return int(row[0] or 0)


def _lacks_table(error: BaseException | None) -> bool:
    """Whether a statement failed as its table is not there: PostgreSQL has a code for that, SQLite a text alone."""
    return getattr(error, "sqlstate", "") == _UNDEFINED_TABLE or str(error).startswith("no such table")


def migrate(database: Database, files: Sequence[Migration] | None = None) -> None:
    """Bring a database to the schema of this program. Raises StoreError, also for one that is newer."""
    files = migrations() if files is None else files
    database.execute(
        "CREATE TABLE IF NOT EXISTS version (number BIGINT PRIMARY KEY, taken_at DOUBLE PRECISION NOT NULL)"
    )
    require(database, at_most=files[-1].number)
    for file in files:
        with database.transaction():
            # Of two processes that come at a time, the second waits here and then finds the file taken.
            taken = database.execute(
                "INSERT INTO version (number, taken_at) VALUES (:number, :now) ON CONFLICT DO NOTHING",
                {"number": file.number, "now": time.time()},
            )
            for statement in _statements(file.sql) if taken else ():
                database.execute(statement)


@contextlib.contextmanager
def reading(address: Address) -> Iterator[Database]:
    """A database with the schema of this program, to read from. Raises StoreError."""
    if address.path and not Path(address.path).exists():
        raise StoreError(f"{address.path} is not there: a queue makes it that is started with this store")
    with contextlib.closing(connect(address)) as database:
        require(database, at_least=migrations()[-1].number)
        yield database


def require(database: Database, at_most: int | None = None, at_least: int = 0) -> None:
    """Raises StoreError for a database whose schema is another than this program's."""
    has, most = version_of(database), migrations()[-1].number if at_most is None else at_most
    if has > most:
        raise StoreError(
            f"the database has version {has} of its schema, this program only {most}: it needs a newer one"
        )
    if has < at_least:
        raise StoreError(f"the database has version {has} of its schema, {at_least} is needed: start the queue once")


def _statements(sql: str) -> list[str]:
    """The statements of a file, of which each ends with its line. No comment has a parameter's colon."""
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [one.strip() for one in "\n".join(lines).split(";\n") if one.strip(" \n;")]
