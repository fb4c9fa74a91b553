"""How the accounting database is created and opened. Only this room opens it; brokers do not import it.

In SQLite, the file is that of flux-accounting: its tables are `schema/accounting.sql`, and its version is SQLite's
`PRAGMA user_version`. Its journal mode is left as it is, because other programs open the file, too. Tables of our own
are named `headrace_*`; their schema files (`schema/own`) are applied when the first of them is needed.

In PostgreSQL, all tables are in the schema files of `schema/postgresql`, whose numbers are in `headrace_version`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from headrace.engine.accounting import dialect
from headrace.formats.spec import duration
from headrace.sched.accounting import rows
from headrace.sched.accounting.rows import DEFAULT_CONFIG, DEFAULT_WEIGHTS
from headrace.storage.database import (
    Address,
    Database,
    DatabaseError,
    Migration,
    Postgresql,
    migrate,
    migrations,
    sqlite,
    statements,
    version_of,
)

DEFAULT_PATH = "/var/lib/flux/FluxAccounting.db"
VERSION = 38

OUT_OF_DATE = (
    "flux-accounting database out of date; please update DB with 'flux account-update-db' before running commands"
)

# Seconds to wait for another program's lock on the database. The service answers nobody meanwhile.
_LOCK_TIMEOUT = 5.0
# Settings of sessions in PostgreSQL: it ends the transaction of a program that has stopped, and the session of a
# program whose machine is gone. Otherwise their locks would stay for hours.
_SESSION = {
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "2",
}
_OWN_VERSION = "headrace_version"
_SCHEMA = Path(__file__).with_name("schema")


class Access(Struct, frozen=True):
    """How PostgreSQL is used: the file of the password, and the cluster of the jobs that are written.

    With `keeps_books`, the connection is the only one that books the cluster's jobs.
    """

    password_file: str = ""
    cluster: str = "cluster"
    keeps_books: bool = False


DEFAULT_ACCESS = Access()


def is_url(path: str) -> bool:
    """True if a path is the address of a database of PostgreSQL."""
    return path.startswith(("postgresql://", "postgres://"))


def schema() -> list[str]:
    """The statements that create all tables in SQLite."""
    return statements(_SCHEMA.joinpath("accounting.sql").read_text(encoding="utf-8"))


def opened(path: str, access: Access = DEFAULT_ACCESS) -> Database:
    """Open a database of the current version: a file, or postgresql://USER@HOST/NAME. Raises DatabaseError."""
    if is_url(path):
        remote = _postgresql(path, access)
        remote.open()
        return remote
    database = connected(path)
    try:
        found = version(database)
        if found < VERSION:
            raise DatabaseError(OUT_OF_DATE)
        need_known(path, found)
    except DatabaseError:
        database.close()
        raise
    return database


def awaited(path: str, access: Access = DEFAULT_ACCESS) -> Database:
    """Like `opened`, but the first transaction connects to PostgreSQL, which may be away now."""
    return _postgresql(path, access) if is_url(path) else opened(path)


def _postgresql(path: str, access: Access, any_version: bool = False) -> Postgresql:
    """A database of PostgreSQL, not connected yet. Raises DatabaseError for a wrong address."""

    def prepare(database: Database) -> None:
        for setting, limit in {"lock_timeout": f"{int(_LOCK_TIMEOUT * 1000)}ms", **_SESSION}.items():
            database.execute(f"SET {setting} = '{limit}'")
        dialect.set_cluster(database, access.cluster)
        if not any_version:
            _need_current(path, database)
        if access.keeps_books and not dialect.take_books(database, access.cluster):
            raise DatabaseError(
                f'another service keeps the books of cluster "{access.cluster}" in this database: '
                "give each instance a name of its own (cluster in [accounting])"
            )

    try:
        rows.value("t_half_life_period_table", "cluster", access.cluster)
        return Postgresql(Address(path, access.password_file), prepare, reconnects=True)
    except ValueError as exc:
        raise DatabaseError(str(exc)) from None
    except ImportError as exc:
        raise DatabaseError(f"{path}: accounting in PostgreSQL needs the extra `postgresql`: {exc}") from None


def remote_schema() -> list[Migration]:
    """The schema files of PostgreSQL."""
    return migrations(_SCHEMA / "postgresql")


def _need_current(path: str, database: Database) -> None:
    """Raise DatabaseError for a database of PostgreSQL without tables, and for another version."""
    found, newest = version_of(database, _OWN_VERSION), remote_schema()[-1].number
    if not found:
        raise DatabaseError(f"{path}: no tables of accounting: make them with 'flux account -p {path} create-db'")
    if found < newest:
        raise DatabaseError(OUT_OF_DATE)
    if found > newest:
        raise DatabaseError(f"{path}: the database has version {found}, this program knows {newest}: use a newer one")


def update_remote(path: str, access: Access = DEFAULT_ACCESS) -> tuple[int, int]:
    """Apply the schema files that a database of PostgreSQL lacks; returns its version before and after.

    Raises DatabaseError.
    """
    database = _any_version(path, access)
    try:
        before = version_of(database, _OWN_VERSION)
        if not before:
            _need_current(path, database)
        migrate(database, remote_schema(), _OWN_VERSION)
        return before, version_of(database, _OWN_VERSION)
    finally:
        database.close()


def is_out_of_date(path: str, access: Access = DEFAULT_ACCESS) -> bool:
    """True if a database needs `flux account-update-db`. Raises DatabaseError."""
    database = _any_version(path, access)
    try:
        if is_url(path):
            return 0 < version_of(database, _OWN_VERSION) < remote_schema()[-1].number
        return version(database) < VERSION
    finally:
        database.close()


def _any_version(path: str, access: Access) -> Database:
    """Open a database of any version. Raises DatabaseError."""
    if not is_url(path):
        return connected(path)
    database = _postgresql(path, access, any_version=True)
    database.open()
    return database


def connected(path: str) -> Database:
    """Open a file of any version. Raises DatabaseError."""
    if not os.path.isfile(path):
        raise DatabaseError(f"Database file does not exist: {path}")
    return sqlite(_uri(path, "rw"), _LOCK_TIMEOUT, uri=True)


def need_known(path: str, found: int) -> None:
    """Raise DatabaseError for a version that is newer than this program's."""
    if found > VERSION:
        raise DatabaseError(f"{path}: the database has version {found}, this program knows {VERSION}: use a newer one")


def version(database: Database) -> int:
    """The version of a database's tables. Raises DatabaseError."""
    ((found,),) = database.rows("PRAGMA user_version")
    return int(found)


def tables(database: Database) -> dict[str, str]:
    """The statements that created a database's tables, by name, without SQLite's own tables."""
    where = "type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    found = database.rows(f"SELECT name, sql FROM sqlite_master WHERE {where}")
    return {str(name): str(sql) for name, sql in found}


def need_own_tables(database: Database) -> None:
    """Create the tables of our own in SQLite, or bring them to the current schema. Raises DatabaseError."""
    if not database.is_postgresql:
        migrate(database, migrations(_SCHEMA / "own"), _OWN_VERSION)


def insert(database: Database, table: str, row: Mapping[str, Any], or_ignore: bool = False) -> int:
    """Insert a row, whose columns are names of this program; returns the number of rows that were inserted."""
    ignore = " ON CONFLICT DO NOTHING" if or_ignore else ""
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    return database.execute(f"INSERT INTO {table} ({columns}) VALUES ({values}){ignore}", row)


def create(
    path: str,
    reset_period: str = "",
    half_life: str = "",
    decay_factor: float = 0.5,
    now: float = 0.0,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Create a file that is readable and writable by its owner alone, or the tables in a database of PostgreSQL.

    Periods are durations (RFC 23), by default 4 weeks and 1 week; `now` is in seconds since the epoch. Raises
    ValueError, DatabaseError, OSError.
    """
    if not 0.0 < decay_factor < 1.0:
        raise ValueError(f"Value must be between 0.0 and 1.0, but got {decay_factor}")
    config = dict(DEFAULT_CONFIG, decay_factor=str(decay_factor))
    if reset_period:
        config["priority_usage_reset_period"] = str(period(reset_period))
    if half_life:
        config["priority_decay_half_life"] = str(period(half_life))
    if is_url(path):
        _create_remote(path, config, now, access)
        return
    if "://" in path:
        raise ValueError(f"{path}: must be a file, or postgresql://USER@HOST:PORT/NAME")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = sqlite(_uri(path, "rw"), _LOCK_TIMEOUT, uri=True)
    try:
        with database.transaction(locked=True):
            if tables(database):
                raise DatabaseError(f"{path}: the file is a database already")
            for statement in schema():
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
            _fill(database, config, now)
    finally:
        database.close()


def _create_remote(path: str, config: Mapping[str, str], now: float, access: Access) -> None:
    database = _any_version(path, access)
    try:
        migrate(database, remote_schema(), _OWN_VERSION)
        with database.transaction(locked=True):
            if database.rows("SELECT 1 FROM config_table"):
                raise DatabaseError(f"{path}: the database has the tables of accounting already")
            _fill(database, config, now)
    finally:
        database.close()


def template() -> Database:
    """An empty database in memory, with the tables of the current version."""
    database = sqlite(":memory:", 0.0)
    for statement in schema():
        database.execute(statement)
    return database


def _fill(database: Database, config: Mapping[str, str], now: float) -> None:
    """Add the rows of a new database."""
    for factor, weight in DEFAULT_WEIGHTS.items():
        insert(database, "priority_factor_weight_table", {"factor": factor, "weight": weight})
    for key, value in config.items():
        insert(database, "config_table", {"key": key, "value": value})
    insert(database, "project_table", {"project": "*"})
    end = now + float(config["priority_decay_half_life"])
    insert(database, "t_half_life_period_table", {"cluster": "cluster", "end_half_life_period": end})


def period(text: str) -> float:
    """The seconds of a period, which is longer than nothing and finite. Raises ValueError."""
    try:
        seconds = duration.parse(text)
    except duration.DurationError as exc:
        raise ValueError(f"invalid Flux standard duration: {exc}") from None
    if not 0.0 < seconds < 1e12:
        raise ValueError(f"invalid Flux standard duration: '{text}' is not a period (try 7d)")
    return seconds


def _uri(path: str, mode: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?mode={mode}"
