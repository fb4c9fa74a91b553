"""Methods about queues: their priority and the limits in them."""

from __future__ import annotations

from headrace.engine.accounting import named_rows
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.requests import IntegrityError, Payload, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "queue_table"
_KIND = "queue"

_EDITABLE = rows.columns(TABLE)[1:]


def view_queue(database: Database, payload: Payload) -> str:
    return named_rows.view_row(database, {**payload, "json": not payload.get("parsable")}, TABLE, _KIND)


def list_queues(database: Database, payload: Payload) -> str:
    return named_rows.list_rows(database, payload, TABLE)


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
        raise ValueError(named_rows.not_found(TABLE, _KIND, queue))
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


def delete_queue(database: Database, payload: Payload) -> str:
    return named_rows.delete_row(database, payload, TABLE, _KIND)
