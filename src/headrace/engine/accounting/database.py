"""How the accounting database is created and opened. Only this room opens it; brokers do not import it.

The file is that of flux-accounting: its tables are `schema/accounting.sql`, and its version is SQLite's
`PRAGMA user_version`. Its journal mode is left as it is, because other programs open the file, too. Tables of our own
are named `headrace_*`; their schema files (`schema/own`) are applied when the first of them is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.formats.spec import duration
from headrace.sched.accounting.rows import DEFAULT_CONFIG, DEFAULT_WEIGHTS
from headrace.storage.database import Database, DatabaseError, migrate, migrations, sqlite, statements

DEFAULT_PATH = "/var/lib/flux/FluxAccounting.db"
VERSION = 38

OUT_OF_DATE = (
    "flux-accounting database out of date; please update DB with 'flux account-update-db' before running commands"
)

# Seconds to wait for another program's lock on the file. The service answers nobody meanwhile.
_LOCK_TIMEOUT = 5.0


def schema() -> list[str]:
    """The statements that create all tables."""
    return statements(Path(__file__).with_name("schema").joinpath("accounting.sql").read_text(encoding="utf-8"))


def opened(path: str) -> Database:
    """Open a database of the current version. Raises DatabaseError."""
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


def is_out_of_date(path: str) -> bool:
    """True if a database needs `flux account-update-db`. Raises DatabaseError."""
    database = connected(path)
    try:
        return version(database) < VERSION
    finally:
        database.close()


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
    rows = database.rows(f"SELECT name, sql FROM sqlite_master WHERE {where}")
    return {str(name): str(sql) for name, sql in rows}


def need_own_tables(database: Database) -> None:
    """Create the tables of our own, or bring them to the current schema. Raises DatabaseError."""
    migrate(database, migrations(Path(__file__).with_name("schema") / "own"), "headrace_version")


def has_table(database: Database, table: str) -> bool:
    return bool(database.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :table", {"table": table}))


def insert(database: Database, table: str, row: Mapping[str, Any], or_ignore: bool = False) -> int:
    """Insert a row, whose columns are names of this program; returns the number of rows that were inserted."""
    ignore = " ON CONFLICT DO NOTHING" if or_ignore else ""
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    return database.execute(f"INSERT INTO {table} ({columns}) VALUES ({values}){ignore}", row)


def create(path: str, reset_period: str = "", half_life: str = "", decay_factor: float = 0.5, now: float = 0.0) -> None:
    """Create a database, readable and writable by its owner alone.

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
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = sqlite(_uri(path, "rw"), _LOCK_TIMEOUT, uri=True)
    try:
        with database.transaction(locked=True):
            if tables(database):
                raise DatabaseError(f"{path}: the file is a database already")
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
    for statement in schema():
        database.execute(statement)
    for factor, weight in DEFAULT_WEIGHTS.items():
        insert(database, "priority_factor_weight_table", {"factor": factor, "weight": weight})
    for key, value in config.items():
        insert(database, "config_table", {"key": key, "value": value})
    insert(database, "project_table", {"project": "*"})
    end = now + float(config["priority_decay_half_life"])
    insert(database, "t_half_life_period_table", {"cluster": "cluster", "end_half_life_period": end})
    database.execute(f"PRAGMA user_version = {VERSION}")


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
