"""Updates databases of older versions of flux-accounting (from 0.10 on), in one transaction, and keeps a backup.

PostgreSQL has numbered schema files instead (`database.py`); the rest of this file is about SQLite.

No version is known by its number: the tables of the file are compared with those of a template, by default an empty
database of the current version. A table that differs is made anew with the rows and columns that it shares with the
template's; tables that only the file has are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from headrace.engine.accounting import database, users
from headrace.sched.accounting.rows import DEFAULT_CONFIG, DEFAULT_WEIGHTS
from headrace.storage.database import Database, DatabaseError

_OLD = "_before_update"
_PERIODS = "job_usage_per_association_table"
# Until version 35 an association's periods were columns of this table.
_FACTORS = "job_usage_factor_table"
_PERIOD_COLUMN = "usage_factor_period_"


def update(
    path: str,
    template_path: str,
    log: Callable[[str], None],
    access: database.Access = database.DEFAULT_ACCESS,
) -> None:
    """Update a database to the current version; the backup of a file is PATH.backup. PostgreSQL is not backed up.

    Raises DatabaseError, also for a newer database, and OSError. The database is then as it was.
    """
    if database.is_url(path):
        if template_path:
            raise DatabaseError(f"{path}: the tables of PostgreSQL cannot be taken from another database")
        before, after = database.update_remote(path, access)
        log(f"updated the tables of PostgreSQL from version {before} to {after}")
        return
    data = database.connected(path)
    try:
        database.need_known(path, database.version(data))
        template = database.connected(template_path) if template_path else database.template()
        try:
            _back_up(data, path + ".backup")
            log(f"created backup at {path}.backup")
            with data.transaction(locked=True):
                _migrate(data, template, log)
        finally:
            template.close()
    finally:
        data.close()


def _back_up(data: Database, path: str) -> None:
    """Copy the database to a file, in one piece. Raises DatabaseError, OSError."""
    made = f"{path}.tmp"
    if os.path.exists(made):
        os.unlink(made)
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        data.execute("VACUUM INTO :path", {"path": made})
        os.replace(made, path)
    except (DatabaseError, OSError):
        os.unlink(made)
        raise


def _migrate(data: Database, template: Database, log: Callable[[str], None]) -> None:
    wanted = database.tables(template)
    log("checking for new tables")
    for table in wanted.keys() - database.tables(data).keys():
        log(f"new table {table}")
        data.execute(wanted[table])
    _move_periods(data)
    log("checking for new columns")
    for table in wanted:
        if _columns(data, table) != _columns(template, table):
            log(f"new columns in table {table}")
            _rebuild(data, template, table)
    _add_defaults(data)
    data.execute(f"PRAGMA user_version = {database.VERSION}")
    log(f"updated database schema version to {database.VERSION}")


def _columns(data: Database, table: str) -> list[tuple[str, str, int, str | None, int]]:
    """Name, type, whether NULL is refused, default, and place in the primary key of each column."""
    rows = data.rows(f'PRAGMA table_info("{table}")')
    return [(str(row[1]), str(row[2]).lower(), int(row[3]), row[4], int(row[5])) for row in rows]


def _rebuild(data: Database, template: Database, table: str) -> None:
    """Make a table with the template's columns, and copy the rows. NULL becomes the default of its column."""
    wanted = _columns(template, table)
    defaults = {name: default for name, _, refuses_null, default, _ in wanted if refuses_null and default is not None}
    shared = [name for name, *_ in _columns(data, table) if name in {name for name, *_ in wanted}]
    data.execute(f'ALTER TABLE "{table}" RENAME TO "{table}{_OLD}"')
    data.execute(database.tables(template)[table])
    values = [f'coalesce("{name}", {defaults[name]})' if name in defaults else f'"{name}"' for name in shared]
    names = ", ".join(f'"{name}"' for name in shared)
    data.execute(f'INSERT INTO "{table}" ({names}) SELECT {", ".join(values)} FROM "{table}{_OLD}" ORDER BY rowid')
    data.execute(f'DROP TABLE "{table}{_OLD}"')


def _move_periods(data: Database) -> None:
    """Copy the periods that an older version kept in columns to their own table, unless they are there already."""
    found = [name for name, *_ in _columns(data, _FACTORS) if name.startswith(_PERIOD_COLUMN)]
    for number, column in sorted(_numbered(found)):
        data.execute(
            f"INSERT INTO {_PERIODS} (username, userid, bank, period, value)"
            f" SELECT username, userid, bank, :number, coalesce({column}, 0.0) FROM {_FACTORS} WHERE 1 = 1"
            " ON CONFLICT DO NOTHING",
            {"number": number},
        )


def _numbered(columns: list[str]) -> Iterator[tuple[int, str]]:
    for column in columns:
        number = column[len(_PERIOD_COLUMN) :]
        if number.isdigit():
            yield int(number), column


def _add_defaults(data: Database) -> None:
    """Add the rows that every database has, and those of the usage of each association."""
    for factor, weight in DEFAULT_WEIGHTS.items():
        database.insert(data, "priority_factor_weight_table", {"factor": factor, "weight": weight}, or_ignore=True)
    for key, value in DEFAULT_CONFIG.items():
        database.insert(data, "config_table", {"key": key, "value": value}, or_ignore=True)
    if not data.rows("SELECT 1 FROM project_table WHERE project = '*'"):
        database.insert(data, "project_table", {"project": "*"})
    for user, userid, bank in data.rows("SELECT username, userid, bank FROM association_table"):
        users.add_usage(data, user, userid, bank)
