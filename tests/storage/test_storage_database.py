"""Addresses, statements, transactions, and schemas of numbered files, in SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import postgresql
import waiting
from headrace.storage.database import (
    Address,
    BadValue,
    Database,
    DatabaseError,
    Migration,
    Postgresql,
    connect,
    migrate,
    migrations,
    require,
    sqlite,
    statements,
    version_of,
)
from postgresql import emptied

SCHEMA = [
    Migration(1, "-- A comment.\nCREATE TABLE jobs (id BIGINT PRIMARY KEY);\n\nCREATE INDEX by_id ON jobs (id);\n"),
    Migration(2, "ALTER TABLE jobs ADD COLUMN name TEXT;\n"),
]


@pytest.mark.parametrize(
    ("url", "password_file", "why"),
    [
        ("mysql://host/name", "", "must be sqlite:PATH or postgresql"),
        ("store.sqlite", "", "must be sqlite:PATH or postgresql"),
        ("sqlite:", "", "names no file"),
        ("sqlite:file", "secret", "needs no password"),
        ("postgresql://me:secret@host/name", "", "write it into a password file"),
        ("postgresql://host/name?user=me&password=secret", "", "write it into a password file"),
    ],
)
def test_a_wrong_address_is_refused(url: str, password_file: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as found:
        Address(url, password_file)
    assert "secret" not in str(found.value)


def test_the_files_of_a_folder_are_a_schema_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for file in reversed(SCHEMA):
        (tmp_path / f"{file.number:04}_name.sql").write_text(file.sql)
    (tmp_path / "README.md").write_text("About these files.")
    assert migrations(tmp_path) == SCHEMA


def test_a_database_is_brought_to_a_schema_once_and_never_back(address: Address) -> None:
    with contextlib.closing(connect(address)) as first, contextlib.closing(connect(address)) as second:
        migrate(first, SCHEMA[:1])
        first.execute("INSERT INTO jobs (id) VALUES (:id)", {"id": 7})
        for database in (first, second, first):
            migrate(database, SCHEMA)
            assert require(database, at_most=2) == version_of(database) == 2
        assert [tuple(row) for row in second.rows("SELECT id, name FROM jobs")] == [(7, None)]
        with pytest.raises(DatabaseError, match="has version 2, this program knows only 1: use"):
            migrate(first, SCHEMA[:1])


def test_a_file_of_the_schema_that_fails_is_not_taken_in_part(address: Address) -> None:
    wrong = Migration(3, "CREATE TABLE half (a TEXT);\nCREATE TABLE jobs (a TEXT);\n")
    with contextlib.closing(connect(address)) as database:
        with pytest.raises(DatabaseError, match="already exists"):
            migrate(database, [*SCHEMA, wrong])
        assert version_of(database) == 2
        with pytest.raises(DatabaseError):
            database.rows("SELECT * FROM half")


def test_a_transaction_is_taken_whole_or_not_at_all(address: Address) -> None:
    add = "INSERT INTO jobs (id) VALUES (:id)"
    with contextlib.closing(connect(address)) as database:
        migrate(database, SCHEMA)
        with database.transaction():
            assert database.execute(add, {"id": 1}) == 1
        with pytest.raises(DatabaseError), database.transaction():
            database.execute(add, {"id": 2})
            database.execute(add, {"id": 1})
        with pytest.raises(BadValue), database.transaction():
            database.execute(add, {"id": 3})
            database.execute(add, {"id": 1 << 70})
        assert [row[0] for row in database.rows("SELECT id FROM jobs")] == [1]


def test_a_locked_transaction_of_sqlite_keeps_other_writers_out_from_its_beginning(tmp_path: Path) -> None:
    path = f"{tmp_path}/store.sqlite"
    with contextlib.closing(sqlite(path, 0.0)) as one, contextlib.closing(sqlite(path, 0.0)) as other:
        migrate(one, SCHEMA)
        with one.transaction(locked=True):
            assert other.rows("SELECT * FROM jobs") == []
            with pytest.raises(DatabaseError, match="locked"), other.transaction(locked=True):
                pass
        with other.transaction(locked=True):
            pass


def test_locked_transactions_of_postgresql_take_turns(server: postgresql.Postgresql) -> None:
    emptied(server.address)
    with contextlib.closing(connect(server.address)) as one, contextlib.closing(connect(server.address)) as other:
        migrate(one, SCHEMA)
        other.execute("SET lock_timeout = '1ms'")
        with one.transaction(locked=True):
            assert other.rows("SELECT * FROM jobs") == []
            with pytest.raises(DatabaseError, match="database is locked"), other.transaction(locked=True):
                pass
        with other.transaction(locked=True):
            pass


def test_a_transaction_connects_again_to_a_server_that_was_restarted(server: postgresql.Postgresql) -> None:
    prepared: list[Database] = []
    add = "INSERT INTO jobs (id) VALUES (:id)"
    with contextlib.closing(Postgresql(server.address, prepared.append, reconnects=True)) as database:
        emptied(server.address)
        with database.transaction():
            for statement in statements("".join(file.sql for file in SCHEMA)):
                database.execute(statement)
        server.stop()
        try:
            for _ in range(2):
                refused = pytest.raises(DatabaseError, match=r"terminating connection|Connection refused")
                with refused, database.transaction():
                    pass
        finally:
            server.start()

        def added() -> bool:
            # A failure to connect is the answer for as long as it took.
            with contextlib.suppress(DatabaseError), database.transaction(locked=True):
                return database.execute(add, {"id": 1}) == 1
            return False

        waiting.until(added)
        server.stop()
        server.start()
        with database.transaction():
            database.execute(add, {"id": 2})
        assert len(prepared) == 3 and database.rows("SELECT id FROM jobs ORDER BY id") == [(1,), (2,)]


def test_a_connection_that_is_refused_by_its_preparation_is_closed(server: postgresql.Postgresql) -> None:
    def refuse(_database: Database) -> None:
        raise DatabaseError("no such tables")

    database = Postgresql(server.address, refuse, reconnects=True)
    with pytest.raises(DatabaseError, match="no such tables"):
        database.open()
    with pytest.raises(DatabaseError, match=r"no such tables|closed"), database.transaction():
        pass
    database.close()


def test_a_uri_says_how_a_file_of_sqlite_is_opened(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="unable to open"):
        sqlite(f"file:{tmp_path}/none?mode=rw", 0.0, uri=True)
    assert not (tmp_path / "none").exists()
    with contextlib.closing(sqlite(f"{tmp_path}/a?mode=rw", 0.0)) as database:
        migrate(database, SCHEMA)
    assert sqlite3.connect(tmp_path / "a?mode=rw").execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_a_database_that_fails_is_not_told_to_be_an_empty_one(address: Address) -> None:
    database = connect(address)
    assert version_of(database) == 0
    database.close()
    with pytest.raises(DatabaseError, match="closed"):
        version_of(database)


def test_who_may_not_read_is_told_so(server: postgresql.Postgresql) -> None:
    emptied(server.address)
    with contextlib.closing(connect(server.address)) as database:
        migrate(database, SCHEMA)
        database.execute("CREATE ROLE guest")
        database.execute("SET ROLE guest")
        try:
            with pytest.raises(DatabaseError, match="permission denied for table version"):
                require(database, at_most=2)
        finally:
            database.execute("RESET ROLE")
            database.execute("DROP ROLE guest")


def test_what_cannot_be_reached_is_an_error_of_the_store(tmp_path: Path, server: postgresql.Postgresql) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("guessed\n")
    addresses = {
        Address(f"sqlite:{tmp_path}/none/store.sqlite"): "unable to open",
        Address("postgresql://127.0.0.1:1/name"): "refused",
        Address(server.address.url, str(tmp_path / "none")): "No such file",
        Address(server.address.url, str(wrong)): "password authentication failed",
    }
    for address, why in addresses.items():
        with pytest.raises(DatabaseError, match=why):
            connect(address)


def test_a_password_that_is_no_text_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DatabaseError, match=f"^{file}: must have a password as text in UTF-8: "):
        connect(Address("postgresql://127.0.0.1:1/name", str(file)))
