"""Where SQLite and PostgreSQL differ. All other statements of this room are the same for both.

SQLite has a file for one instance. A database of PostgreSQL is for several: rows of tables about the jobs of an
instance have its name in the column `cluster`. A connection has a cluster, which is the default of that column.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sched.accounting import rows
from headrace.storage.database import Database

# The setting of a connection to PostgreSQL with the name of its cluster.
_CLUSTER = "headrace.cluster"
# The class of the advisory locks by which one service at a time keeps the books of a cluster. The number is arbitrary.
_BOOKS = 0x426F6F6B


def set_cluster(database: Database, cluster: str, in_transaction: bool = False) -> None:
    """Set the cluster of a connection to PostgreSQL, or of its transaction."""
    values = {"cluster": cluster, "local": in_transaction}
    database.rows(f"SELECT set_config('{_CLUSTER}', :cluster, :local)", values)


def each_cluster(database: Database) -> Iterator[None]:
    """Make each cluster that has jobs in the table the cluster of the transaction, one after another."""
    if not database.is_postgresql:
        yield
        return
    for (cluster,) in database.rows("SELECT DISTINCT cluster FROM jobs ORDER BY cluster"):
        set_cluster(database, str(cluster), in_transaction=True)
        yield


def of_cluster(database: Database, alias: str = "") -> str:
    """A condition in SQL for the rows of the connection's cluster, in a table that may have an alias."""
    if not database.is_postgresql:
        return "1 = 1"
    return f"{alias}{'.' if alias else ''}cluster = current_setting('{_CLUSTER}')"


def key(database: Database, *columns: str) -> str:
    """The columns of the key of a table with the column `cluster`, of which SQLite has `columns`."""
    return ", ".join(["cluster", *columns] if database.is_postgresql else columns)


def take_books(database: Database, cluster: str) -> bool:
    """Become the only connection to PostgreSQL that keeps the books of a cluster; False if another one does."""
    sql = f"SELECT pg_try_advisory_lock({_BOOKS}, hashtext(:cluster))"
    return bool(database.rows(sql, {"cluster": cluster})[0][0])


def read_one_state(database: Database) -> None:
    """Let all statements of a transaction that only reads see the same state, as SQLite does."""
    if database.is_postgresql:
        database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def state(database: Database) -> str:
    """Text that changes with each commit of another connection. PostgreSQL's changes with each commit of its server."""
    sql = "SELECT CAST(pg_current_snapshot() AS text)" if database.is_postgresql else "PRAGMA data_version"
    return str(database.rows(sql)[0][0])


def order(database: Database) -> str:
    """What follows a SELECT without an order: SQLite chooses one by itself, mostly that in which rows were added."""
    return " ORDER BY rowid" if database.is_postgresql else ""


def table_names(database: Database) -> list[str]:
    """All tables."""
    if database.is_postgresql:
        found = database.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY table_name"
        )
    else:
        where = "type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        found = database.rows(f"SELECT name FROM sqlite_master WHERE {where}")
    return [str(name) for (name,) in found]


def has_table(database: Database, table: str) -> bool:
    return table in table_names(database)


def columns(database: Database, table: str) -> list[str]:
    """The columns of a table, as flux-accounting writes them, then those of PostgreSQL alone, but not `rowid`."""
    if not database.is_postgresql:
        return [str(row[1]) for row in database.rows(f"PRAGMA table_info({table})")]
    found = database.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = :table AND column_name <> 'rowid' ORDER BY ordinal_position",
        {"table": table},
    )
    # PostgreSQL has names in lower case.
    spelled = {name.lower(): name for name in rows.columns(table)} if table in rows.TABLES else {}
    return [spelled.get(name, str(name)) for (name,) in found]


# The columns with numbers that the database chooses, by table.
_NUMBERED = {"bank_table": "bank_id", "project_table": "project_id"}


def number_from_last(database: Database, table: str) -> None:
    """Number the next rows of a table after those that were added with their numbers, as SQLite does by itself."""
    if database.is_postgresql and (column := _NUMBERED.get(table)):
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        database.rows(f"SELECT setval({sequence}, coalesce((SELECT max({column}) FROM {table}), 0) + 1, false)")
