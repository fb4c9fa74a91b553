"""Addresses, the schema and its files, transactions, in SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import postgresql
import pytest
from stored import contents, emptied, life, opened

from headrace.cluster_queue.store.database import (
    Address,
    Migration,
    StoreError,
    connect,
    migrate,
    migrations,
    reading,
    require,
    version_of,
)
from headrace.cluster_queue.store.history import history
from headrace.cluster_queue.store.writing import write

NEWEST = migrations()[-1].number
NEXT = Migration(NEWEST + 1, "ALTER TABLE jobs ADD COLUMN site TEXT;\n-- A second one.\nCREATE TABLE b (c TEXT);\n")


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


def test_numbers_of_the_schema_s_files_follow_each_other() -> None:
    assert [file.number for file in migrations()] == list(range(1, NEWEST + 1))


@pytest.mark.parametrize("first", range(1, NEWEST + 1))
def test_a_database_of_each_version_is_brought_to_the_next(address: Address, first: int) -> None:
    files = [*migrations(), NEXT]
    with contextlib.closing(connect(address)) as database:
        migrate(database, files[:first])
        assert version_of(database) == first
        migrate(database)
        write(database, life())
        before, numbers = contents(database), history(database, 0, 2e9)
        migrate(database, files)
        assert version_of(database) == NEWEST + 1
        assert [row[:-1] for row in contents(database)["jobs"]] == before["jobs"]
        assert contents(database)["usage"] == before["usage"]
        assert history(database, 0, 2e9) == numbers
        # A second process finds all of it done.
        migrate(database, files)
        assert [int(row[0]) for row in database.rows("SELECT number FROM version")] == [one.number for one in files]
        # The program of before leaves what it does not know.
        with pytest.raises(StoreError, match=f"has version {NEWEST + 1}.*only {NEWEST}"):
            migrate(database)
        with contextlib.suppress(StoreError):
            database.execute("DROP TABLE b")


def test_a_file_of_the_schema_that_fails_is_not_taken_in_part(address: Address) -> None:
    wrong = Migration(NEWEST + 1, "CREATE TABLE half (a TEXT);\nCREATE TABLE jobs (a TEXT);\n")
    with opened(address) as database:
        with pytest.raises(StoreError, match="already exists"):
            migrate(database, [*migrations(), wrong])
        assert version_of(database) == NEWEST
        with pytest.raises(StoreError):
            database.rows("SELECT * FROM half")


def test_who_reads_needs_a_database_that_is_there_and_of_this_version(address: Address, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not there"), reading(Address(f"sqlite:{tmp_path}/none")):
        pass
    assert not Path(f"{tmp_path}/none").exists()
    with contextlib.closing(connect(address)) as database:
        database.execute("CREATE TABLE other (a TEXT)")
    with pytest.raises(StoreError, match="start the queue once"), reading(address):
        pass
    with opened(address) as database:
        write(database, life())
        database.execute("DROP TABLE other")
    with reading(address) as database:
        assert len(database.rows("SELECT * FROM jobs")) == 1


def test_a_database_that_fails_is_not_told_to_be_an_empty_one(address: Address) -> None:
    database = connect(address)
    assert version_of(database) == 0
    database.close()
    with pytest.raises(StoreError, match="closed"):
        version_of(database)


def test_who_may_not_read_is_told_so(server: postgresql.Postgresql) -> None:
    emptied(server.address)
    with opened(server.address) as database:
        database.execute("CREATE ROLE guest")
        database.execute("SET ROLE guest")
        try:
            with pytest.raises(StoreError, match="permission denied for table version"):
                require(database, at_least=NEWEST)
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
        with pytest.raises(StoreError, match=why):
            connect(address)


def test_a_password_that_is_no_text_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match=f"^{file}: must have a password as text in UTF-8: "):
        connect(Address("postgresql://127.0.0.1:1/name", str(file)))


def test_without_psycopg_the_store_is_there() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from headrace.programs.cluster_queue import serve\n"
        "from headrace.cluster_queue.store.database import Address, connect\n"
        "connect(Address('sqlite::memory:')).close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
