"""The schema of the queue's history and its files, in SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from stored import contents, life, opened

from headrace.cluster_queue.store.database import reading, schema
from headrace.cluster_queue.store.history import history
from headrace.cluster_queue.store.writing import write
from headrace.storage.database import Address, DatabaseError, Migration, connect, migrate, version_of

SCHEMA = schema()
NEWEST = SCHEMA[-1].number
NEXT = Migration(NEWEST + 1, "ALTER TABLE jobs ADD COLUMN site TEXT;\n-- A second one.\nCREATE TABLE b (c TEXT);\n")


def test_numbers_of_the_schema_s_files_follow_each_other() -> None:
    assert [file.number for file in SCHEMA] == list(range(1, NEWEST + 1))


@pytest.mark.parametrize("first", range(1, NEWEST + 1))
def test_a_database_of_each_version_is_brought_to_the_next(address: Address, first: int) -> None:
    files = [*SCHEMA, NEXT]
    with contextlib.closing(connect(address)) as database:
        migrate(database, files[:first])
        assert version_of(database) == first
        migrate(database, SCHEMA)
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
        with pytest.raises(DatabaseError, match=f"has version {NEWEST + 1}.*only {NEWEST}"):
            migrate(database, SCHEMA)


def test_who_reads_needs_a_database_that_is_there_and_of_this_version(address: Address, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="does not exist"), reading(Address(f"sqlite:{tmp_path}/none")):
        pass
    assert not Path(f"{tmp_path}/none").exists()
    with contextlib.closing(connect(address)) as database:
        database.execute("CREATE TABLE other (a TEXT)")
    with pytest.raises(DatabaseError, match="start the queue once"), reading(address):
        pass
    with opened(address) as database:
        write(database, life())
        database.execute("DROP TABLE other")
    with reading(address) as database:
        assert len(database.rows("SELECT * FROM jobs")) == 1


def test_without_psycopg_the_store_is_there() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from headrace.programs.cluster_queue import serve\n"
        "from headrace.cluster_queue.store.database import Address, opened\n"
        "opened(Address('sqlite::memory:')).close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
