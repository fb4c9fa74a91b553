"""The database of the queue's history: its schema, and how it is opened to write and to read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headrace.storage.database import (
    Address,
    BadValue,
    Database,
    DatabaseError,
    Migration,
    connect,
    migrate,
    migrations,
    require,
)

__all__ = ["Address", "BadValue", "Database", "DatabaseError", "opened", "reading", "schema"]


def schema() -> list[Migration]:
    return migrations(Path(__file__).with_name("schema"))


def opened(address: Address) -> Database:
    """Open a database for writing and migrate it to the current schema. Raises DatabaseError."""
    database = connect(address)
    try:
        migrate(database, schema())
    except DatabaseError:
        database.close()
        raise
    return database


@contextlib.contextmanager
def reading(address: Address) -> Iterator[Database]:
    """Open a database for reading; it must have the current schema. Raises DatabaseError."""
    if address.path and not Path(address.path).exists():
        raise DatabaseError(f"{address.path} does not exist: start a queue with this store to create it")
    needed = schema()[-1].number
    with contextlib.closing(connect(address)) as database:
        has = require(database, at_most=needed)
        if has < needed:
            raise DatabaseError(
                f"the schema of the database has version {has}, {needed} is needed: start the queue once to migrate it"
            )
        yield database
