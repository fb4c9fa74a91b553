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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
# lock_not_available.
_LOCKED = "55P03"
# The advisory lock of PostgreSQL that locked transactions of a database hold. The number is arbitrary.
_WRITERS = 0x48726163

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


def _text(error: Exception) -> str:
    """A driver's error in one line; of a server's error the message without the statement and the row."""
    text = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return "; ".join(line.strip() for line in text.strip().splitlines())


class Database:
    """A connection to a database. All methods raise DatabaseError.

    `style` is the driver's form of a parameter, as a replacement for the pattern `:(name)`; "" if it is `:name`.
    """

    is_postgresql = False

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
            raise BadValue(_text(exc)) from exc
        except self._errors as exc:
            raise DatabaseError(_text(exc)) from exc

    @contextlib.contextmanager
    def transaction(self, locked: bool = False) -> Iterator[None]:
        """Apply all statements of a block, or none.

        With `locked`, writers take turns from the beginning of the transaction: SQLite locks out all other writers,
        PostgreSQL those that ask for this lock, too.
        """
        with self._lock:
            self._begin(locked)
            try:
                yield
            except BaseException:
                with contextlib.suppress(DatabaseError):
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")

    def _begin(self, locked: bool) -> None:
        self.execute("BEGIN IMMEDIATE" if locked else "BEGIN")

    def close(self) -> None:
        with contextlib.suppress(self._errors):
            self._connection.close()


class Postgresql(Database):
    """A database of PostgreSQL, not connected before `open`. Raises ImportError without psycopg.

    `prepare` is called with each new connection, and may refuse it by raising DatabaseError. With `reconnects`, a
    transaction connects if the connection was lost, or was never made.
    """

    is_postgresql = True

    def __init__(
        self, address: Address, prepare: Callable[[Database], None] = lambda _: None, reconnects: bool = False
    ) -> None:
        import psycopg

        super().__init__(None, psycopg.Error, (psycopg.DataError,), r"%(\1)s")
        self._address = address
        self._prepare = prepare
        self._reconnects = reconnects
        # The last failure to connect, and the time (monotonic) until which it is the answer.
        self._failure, self._fails_until = DatabaseError(), 0.0

    def open(self) -> None:
        """Connect, unless connected. Raises DatabaseError, also if the last attempt has just failed."""
        if self._connection is not None and not self._connection.closed:
            return
        began = time.monotonic()
        if began < self._fails_until:
            raise DatabaseError(str(self._failure)) from self._failure.__cause__
        try:
            self._connection = _psycopg_connection(self._address)
            self._prepare(self)
        except DatabaseError as exc:
            self.close()
            # Attempts that hang take at most half of the caller's time.
            now = time.monotonic()
            self._failure, self._fails_until = exc, now + (now - began)
            raise

    def _begin(self, locked: bool) -> None:
        if self._reconnects:
            self.open()
        try:
            self.execute("BEGIN")
        except DatabaseError:
            # That the server was restarted shows only here. Nothing has been done yet, so another attempt is safe.
            if not (self._reconnects and self._connection.closed):
                raise
            self.open()
            self.execute("BEGIN")
        if locked:
            try:
                self.execute("SELECT pg_advisory_xact_lock(:writers)", {"writers": _WRITERS})
            except DatabaseError as exc:
                with contextlib.suppress(DatabaseError):
                    self.execute("ROLLBACK")
                if getattr(exc.__cause__, "sqlstate", "") == _LOCKED:
                    raise DatabaseError("database is locked") from exc.__cause__
                raise

    def close(self) -> None:
        if self._connection is not None:
            super().close()


def connect(address: Address) -> Database:
    """Connect to a database. Raises DatabaseError, and ImportError if psycopg is needed but missing."""
    if not address.path:
        remote = Postgresql(address)
        remote.open()
        return remote
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


def _psycopg_connection(address: Address) -> Any:
    """A connection of the driver. Raises DatabaseError."""
    import psycopg

    try:
        password = _password(address.password_file) if address.password_file else None
        return psycopg.connect(
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
        raise DatabaseError(_text(exc)) from exc


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
