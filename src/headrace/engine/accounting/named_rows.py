"""What the methods about tables whose rows have a name share: view a row, list all rows, delete a row.

The tables are those of queues, projects, factors and settings.
"""

from __future__ import annotations

from headrace.engine.accounting.requests import Payload, chosen_columns, listing, select, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

_STILL_USED = (
    "WARNING: user(s) in the association_table still reference this {kind}. "
    "Make sure to edit user rows to account for this deleted {kind}."
)


def view_row(database: Database, payload: Payload, table: str, kind: str) -> str:
    """Show the row that the payload names. `kind` is the column of the name, and what errors call it."""
    name = text(payload, kind)
    columns = rows.columns(table)
    found = select(database, table, columns, f"{kind} = :name", {"name": name})
    return listing(payload, columns, found, not_found(table, kind, name))


def not_found(table: str, kind: str, name: str) -> str:
    """The error for an unknown name."""
    return f"{kind} {name} not found in {table}"


def list_rows(database: Database, payload: Payload, table: str) -> str:
    columns = chosen_columns(payload, table)
    return listing(payload, columns, select(database, table, columns))


def delete_row(database: Database, payload: Payload, table: str, kind: str) -> str:
    """Delete a queue or a project; the answer is a warning if associations still name it."""
    name = text(payload, kind)
    if not database.execute(f"DELETE FROM {table} WHERE {kind} = :name", {"name": name}):
        raise ValueError(not_found(table, kind, name))
    lists = database.rows(f"SELECT DISTINCT {kind}s FROM association_table")
    return _STILL_USED.format(kind=kind) if any(name in rows.names(str(each)) for (each,) in lists) else ""
