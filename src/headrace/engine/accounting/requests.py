"""What the methods of the service share: reading a request's payload, errors, and the text of a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.engine.accounting import dialect
from headrace.sched.accounting import rows, tables
from headrace.storage.database import Database
from headrace.wire.query import QueryError, when

Payload = Mapping[str, Any]


class Caller(NamedTuple):
    """Who sent a request; `is_admin` is true for the owner, too, and `user` is "" for an unknown name."""

    is_admin: bool
    user: str = ""
    userid: int = -1


class IntegrityError(Exception):
    """A row cannot be added because it exists. Answers show the name of this class, and scripts match it."""


def text(payload: Payload, key: str) -> str:
    """A text that the request must have. Raises KeyError, ValueError."""
    found = payload[key]
    if not isinstance(found, str):
        raise ValueError(f"{key}: {found!r} is not a text")
    return found


def optional(payload: Payload, key: str) -> str:
    """A text that the request may have; "" without one. Raises ValueError."""
    return "" if payload.get(key) is None else text(payload, key)


def timestamp(given: Any) -> int:
    """Seconds since the epoch of a number or a readable time. Raises ValueError."""
    shown = str(given)
    try:
        return int(float(shown))
    except (ValueError, OverflowError):
        pass
    try:
        return int(when.parse_past(shown))
    except QueryError as exc:
        raise ValueError(str(exc)) from None


def chosen_columns(payload: Payload, table: str) -> tuple[str, ...]:
    """The columns that `fields` names, by default all of the table. Raises ValueError."""
    known = rows.columns(table)
    if not (fields := optional(payload, "fields")):
        return known
    asked = tuple(field.strip() for field in fields.split(","))
    if unknown := [field for field in asked if field not in known]:
        raise ValueError(f"invalid fields: {', '.join(unknown)}")
    return asked


def select(
    database: Database,
    table: str,
    columns: Sequence[str],
    where: str = "",
    values: Mapping[str, Any] | None = None,
    order: str = "",
) -> list[Sequence[Any]]:
    """The rows of a table that fulfil a condition in SQL, in the order of some columns.

    Without `order`, PostgreSQL has the order in which rows were added. SQLite chooses an order, as in the listings of
    flux-accounting: mostly this one.
    """
    condition = f" WHERE {where}" if where else ""
    ordered = f" ORDER BY {order}" if order else dialect.order(database)
    return database.rows(f"SELECT {', '.join(columns)} FROM {table}{condition}{ordered}", values)


def listing(payload: Payload, columns: Sequence[str], found: Sequence[Sequence[Any]], missing: str = "") -> str:
    """The text of rows by the options `format`, `json` and `parsable`; a table for `list-` methods without them.

    Raises ValueError without rows, with the text `missing`.
    """
    if not found:
        raise ValueError(missing or "no results found in query")
    if form := optional(payload, "format"):
        return tables.as_lines(columns, found, form)
    return tables.as_json(columns, found) if payload.get("json") else tables.as_table(columns, found)
