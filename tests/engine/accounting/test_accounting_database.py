"""The accounting database: its tables, how it is opened, and what is said of one that cannot be used."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.accounting import database
from headrace.sched.accounting import rows
from headrace.storage.database import Database, DatabaseError


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "site?100%.db")
    database.create(made, now=1000.0)
    return made


@pytest.fixture
def data(path: str) -> Iterator[Database]:
    with contextlib.closing(database.opened(path)) as opened:
        yield opened


def default_of(text: str | None) -> object:
    if text is None or text.startswith("'"):
        return text and text.strip("'")
    return float(text) if "." in text else int(text)


@pytest.mark.parametrize("table", rows.TABLES)
def test_the_structs_of_rows_have_the_columns_and_defaults_of_the_tables(data: Database, table: str) -> None:
    found = {row[1]: default_of(row[4]) for row in data.rows(f"PRAGMA table_info({table})")}
    assert tuple(found) == rows.columns(table)
    struct = rows.TABLES[table]
    with_default = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__)))
    # Text columns of jobs may be NULL, which listings show as nothing.
    assert {name: default for name, default in found.items() if default is not None} == {
        name: default
        for name, default in with_default.items()
        if (table, name) not in {("jobs", "project"), ("jobs", "bank")}
    }


def test_a_new_database_is_version_38_and_has_the_tables_of_flux_accounting(path: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (38,)
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        names = {name for (name,) in plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert names == {*rows.TABLES, "sqlite_sequence"}
        # NULL stands for the default, which flux-accounting's programs rely on to reset a value.
        plain.execute("INSERT INTO queue_table (queue, max_time_per_job) VALUES ('a', 5)")
        plain.execute("UPDATE queue_table SET max_time_per_job = NULL")
        assert plain.execute("SELECT max_time_per_job FROM queue_table").fetchone() == (60,)
        assert plain.execute("SELECT * FROM t_half_life_period_table").fetchall() == [("cluster", 605800.0)]


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=f"Database file does not exist: {tmp_path}/x.db"):
        database.opened(str(tmp_path / "x.db"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (37, "flux-accounting database out of date; please update DB with 'flux account-update-db'"),
        (39, "has version 39"),
    ],
)
def test_another_version_is_not_opened(path: str, version: int, why: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as plain:
        plain.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(DatabaseError, match=re.escape(why)):
        database.opened(path)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello" * 1000)
    with pytest.raises(DatabaseError, match="file is not a database"):
        database.opened(str(tmp_path / "x.db"))
    with pytest.raises(DatabaseError, match="file is not a database"):
        database.create(str(tmp_path / "x.db"))


def test_a_creation_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    database.create(str(tmp_path / "x.db"))
    database.opened(str(tmp_path / "x.db")).close()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        database.create(str(tmp_path / "file/x.db"))
    with pytest.raises(OSError, match="Is a directory"):
        database.create(str(tmp_path))


def test_a_row_that_exists_is_ignored_only_on_demand(data: Database) -> None:
    assert database.insert(data, "queue_table", {"queue": "a"}) == 1
    assert database.insert(data, "queue_table", {"queue": "a"}, or_ignore=True) == 0
    with pytest.raises(DatabaseError, match=r"UNIQUE constraint failed: queue_table.queue"):
        database.insert(data, "queue_table", {"queue": "a"})
