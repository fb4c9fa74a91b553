"""`results.sqlite`: a row for each run that has ended, for other tools. Headrace reads the files `result.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.experiments.values import Result
from headrace.storage.database import Address, Database, connect, migrate, migrations

_SCHEMA = Path(__file__).parent / "schema"
_COLUMNS = Result.__struct_fields__
_OBJECTS = frozenset(("parameters", "phases", "metrics"))
_INSERT = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + column for column in _COLUMNS)})"
    " ON CONFLICT (cell, number) DO NOTHING"
)


def open_results(path: Path) -> Database:
    """The database of an experiment, made if it does not exist. Raises DatabaseError."""
    database = connect(Address(url=f"sqlite:{path}"))
    migrate(database, migrations(_SCHEMA))
    return database


def add_results(database: Database, results: list[Result]) -> None:
    """Write results in one transaction; runs that have a row keep it. Raises DatabaseError."""
    with database.transaction(locked=True):
        database.execute_many(_INSERT, [_row(result) for result in results])


def _row(result: Result) -> dict[str, object]:
    row = {column: getattr(result, column) for column in _COLUMNS}
    return {key: msgspec.json.encode(value).decode() if key in _OBJECTS else value for key, value in row.items()}
