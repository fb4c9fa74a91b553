"""SQLite and PostgreSQL behind one interface: statements, transactions, and numbered schema files.

Each store of Headrace (users of the service, history of the cluster queue) writes its own SQL, with parameters as
`:name`, and has a folder of schema files such as `0001_jobs.sql`. Each file is applied in one transaction, and its
number is recorded in the table `version`. Calls block; asyncio programs make them in a thread.
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

# Seconds to wait for a connection, and after which a silent server counts as unreachable.
_CONNECT_TIMEOUT = 10
_SILENCE = 30
# Seconds to wait for another process's lock on an SQLite file.
_LOCK_TIMEOUT = 30.0
# PostgreSQL, "Error Codes": undefined_table.
_UNDEFINED_TABLE = "42P01"

Row = Sequence[Any]


class DatabaseError(Exception):
    """The database cannot be reached or used. A retry may succeed."""


class BadValue(DatabaseError):
    """The database rejects a value. A retry would fail, too."""


class Address(Struct, frozen=True):
    """The address of a database: `url` is sqlite:PATH or postgresql://USER@HOST:PORT/NAME.

    `password_file` is read at each connection.
    """

    url: str
    password_file: str = ""

    def __post_init__(self) -> None:
        """Check the address. Raises ValueError."""
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
    """A numbered file of a schema."""

    number: int
    sql: str


def migrations(folder: Path) -> list[Migration]:
    """The files of a schema, in order."""
    return [Migration(int(file.name[:4]), file.read_text()) for file in sorted(folder.glob("*.sql"))]


class Database:
    """A connection to a database. All methods raise DatabaseError.

    `style` is the driver's form of a parameter, as a replacement for the pattern `:(name)`; "" if it is `:name`.
    """

    def __init__(self, connection: Any, errors: type[Exception], bad: tuple[type[Exception], ...], style: str) -> None:
        self._connection = connection
        self._errors = errors
        self._bad: tuple[type[Exception], ...] = (*bad, OverflowError)
        self._style = style
        self._texts: dict[str, str] = {}
        # At shutdown, the last writes are made while the thread of an earlier write may still be running.
        self._lock = threading.RLock()

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        """Run a statement and return the number of rows that it changed."""
        return int(self._run(sql, values).rowcount)

    def execute_many(self, sql: str, values: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each of `values`."""
        with self._guarded():
            self._connection.cursor().executemany(self._text(sql), values)

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        with self._guarded():
            return list(self._run(sql, values).fetchall())

    def _text(self, sql: str) -> str:
        """A statement with parameters in the driver's form."""
        text = self._texts.get(sql)
        if text is None:
            text = self._texts[sql] = re.sub(r":(\w+)", self._style, sql) if self._style else sql
        return text

    def _run(self, sql: str, values: Mapping[str, Any] | None) -> Any:
        text = self._text(sql)
        with self._guarded():
            return self._connection.execute(text, values) if values else self._connection.execute(text)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except self._bad as exc:
            raise BadValue(str(exc)) from exc
        except self._errors as exc:
            raise DatabaseError(str(exc).strip()) from exc

    @contextlib.contextmanager
    def transaction(self, locked: bool = False) -> Iterator[None]:
        """Apply all statements of a block, or none.

        With `locked`, SQLite locks out other writers from the beginning of the transaction.
        """
        with self._lock:
            self.execute("BEGIN IMMEDIATE" if locked else "BEGIN")
            try:
                yield
            except BaseException:
                with contextlib.suppress(DatabaseError):
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")

    def close(self) -> None:
        with contextlib.suppress(self._errors):
            self._connection.close()


def connect(address: Address) -> Database:
    """Connect to a database. Raises DatabaseError, and ImportError if psycopg is needed but missing."""
    if not address.path:
        return _postgresql(address)
    database = sqlite(address.path, _LOCK_TIMEOUT)
    try:
        # With a write-ahead log, other processes can read while one writes.
        database.rows("PRAGMA journal_mode = WAL")
    except DatabaseError as exc:
        database.close()
        raise DatabaseError(f"{address.path}: {exc}") from exc
    return database


def sqlite(file: str, seconds: float, uri: bool = False) -> Database:
    """Open a path or a `file:` URI. Statements wait `seconds` for others' locks. Raises DatabaseError."""
    # Several threads use the connection, but only one at a time, so sqlite3's check of the thread is off.
    try:
        connection = sqlite3.connect(file, seconds, isolation_level=None, check_same_thread=False, uri=uri)
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as exc:
        raise DatabaseError(f"{file}: {exc}") from exc
    return Database(connection, sqlite3.Error, (sqlite3.DataError,), "")


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
        raise DatabaseError(str(exc).strip()) from exc
    return Database(connection, psycopg.Error, (psycopg.DataError,), r"%(\1)s")


def _password(file: str) -> str:
    """Read a password file. Raises DatabaseError, OSError."""
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError as exc:
        raise DatabaseError(f"{file}: must have a password as text in UTF-8: {exc}") from None


def version_of(database: Database, table: str = "version") -> int:
    """The number of the last schema file that was applied, 0 for none. Raises DatabaseError."""
    try:
        (row,) = database.rows(f"SELECT max(number) FROM {table}")
    except DatabaseError as exc:
        if _lacks_table(exc.__cause__):
            return 0
        raise
    return int(row[0] or 0)


def _lacks_table(error: BaseException | None) -> bool:
    """True if a statement failed because its table does not exist. SQLite reports this only as text."""
    return getattr(error, "sqlstate", "") == _UNDEFINED_TABLE or str(error).startswith("no such table")


def migrate(database: Database, files: Sequence[Migration], table: str = "version") -> None:
    """Apply the schema files that a database lacks. Raises DatabaseError, also if the database is newer.

    `table` records the applied files, so that a database can have tables of several schemas.
    """
    newest = files[-1].number
    if require(database, newest, table) == newest:
        return
    database.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (number BIGINT PRIMARY KEY, taken_at DOUBLE PRECISION NOT NULL)"
    )
    for file in files:
        with database.transaction():
            # If two processes migrate at the same time, the second waits here and then skips the applied file.
            taken = database.execute(
                f"INSERT INTO {table} (number, taken_at) VALUES (:number, :now) ON CONFLICT DO NOTHING",
                {"number": file.number, "now": time.time()},
            )
            for statement in statements(file.sql) if taken else ():
                database.execute(statement)


def require(database: Database, at_most: int, table: str = "version") -> int:
    """The version of a database's schema. Raises DatabaseError if it is newer than `at_most`."""
    version = version_of(database, table)
    if version > at_most:
        raise DatabaseError(
            f"the schema of the database has version {version}, this program knows only {at_most}: use a newer one"
        )
    return version


def statements(sql: str) -> list[str]:
    """Split a schema file into statements, each of which must end at the end of a line.

    A comment must not have a `:name`, which would count as a parameter.
    """
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [one.strip() for one in "\n".join(lines).split(";\n") if one.strip(" \n;")]
