"""Methods about queues: their priority and the limits in them."""

from __future__ import annotations

from headrace.engine.accounting.database import insert
from headrace.engine.accounting.requests import IntegrityError, Payload, chosen_columns, listing, select, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "queue_table"

_EDITABLE = rows.columns(TABLE)[1:]


def view_queue(database: Database, payload: Payload) -> str:
    queue = text(payload, "queue")
    columns = rows.columns(TABLE)
    found = select(database, TABLE, columns, "queue = :queue", {"queue": queue})
    missing = f"queue {queue} not found in {TABLE}"
    return listing({**payload, "json": not payload.get("parsable")}, columns, found, missing)


def list_queues(database: Database, payload: Payload) -> str:
    columns = chosen_columns(payload, TABLE)
    return listing(payload, columns, select(database, TABLE, columns))


def add_queue(database: Database, payload: Payload) -> str:
    row = {"queue": rows.value(TABLE, "queue", payload["queue"])}
    for column in _EDITABLE:
        if payload.get(column) is not None:
            row[column] = rows.value(TABLE, column, payload[column])
    if not insert(database, TABLE, row, or_ignore=True):
        raise IntegrityError(f"queue {row['queue']} already exists in {TABLE}")
    return ""


def edit_queue(database: Database, payload: Payload) -> str:
    """Change columns of a queue; -1 resets one to its default, also the priority."""
    queue = text(payload, "queue")
    if not database.rows(f"SELECT 1 FROM {TABLE} WHERE queue = :queue", {"queue": queue}):
        raise ValueError(f"queue {queue} not found in {TABLE}")
    for column in _EDITABLE:
        given = payload.get(column)
        if given is None:
            continue
        if not isinstance(given, int):
            raise ValueError("passed in value must be an integer")
        if column != "priority" and given < -1:
            raise ValueError("value must be a non-negative integer or -1 to reset to default")
        value = rows.default(TABLE, column) if given == -1 else rows.value(TABLE, column, given)
        database.execute(f"UPDATE {TABLE} SET {column} = :value WHERE queue = :queue", {"value": value, "queue": queue})
    return ""


_STILL_USED = (
    "WARNING: user(s) in the association_table still reference this {kind}. "
    "Make sure to edit user rows to account for this deleted {kind}."
)


def delete_queue(database: Database, payload: Payload) -> str:
    """Delete a queue; the answer is a warning if associations still name it."""
    queue = text(payload, "queue")
    if not database.execute(f"DELETE FROM {TABLE} WHERE queue = :queue", {"queue": queue}):
        raise ValueError(f"queue {queue} not found in {TABLE}")
    return warning(database, "queue", queue)


def warning(database: Database, kind: str, name: str) -> str:
    """A warning if associations still name a queue or project (`kind`) that was deleted; "" if none does."""
    lists = database.rows(f"SELECT DISTINCT {kind}s FROM association_table")
    return _STILL_USED.format(kind=kind) if any(name in rows.names(str(each)) for (each,) in lists) else ""
