"""The file, and that its migrations lead to the tables that the code has."""

from __future__ import annotations

import os
import sqlite3
import traceback
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from small_disk import fill, mounted
from sqlalchemy import Engine, text

from headrace.service.store import database, memory, tokens, users
from headrace.service.store.database import HEAD
from headrace.service.store.errors import StoreError, StoreUnusable
from headrace.service.store.tables import METADATA


def test_it_is_its_owners_alone_and_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    before = os.umask(0)
    try:
        database.open_file(str(path)).dispose()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    database.open_file(str(path)).dispose()
    path.chmod(0o640)
    with pytest.raises(StoreError, match=r"api\.sqlite: others have rights to this file.*mode 640.*chmod 600"):
        database.open_file(str(path))


def test_the_migrations_lead_to_the_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    config = Config()
    config.set_main_option("script_location", "headrace.service.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_what_is_no_database_of_this_version_is_named(tmp_path: Path, engine: Engine) -> None:
    with pytest.raises(StoreError, match="nosuch/x: No such file"):
        database.open_file(f"{tmp_path}/nosuch/x")
    other = tmp_path / "text"
    other.write_text("this is no database" * 100)
    other.chmod(0o600)
    with pytest.raises(StoreError, match="text: the store of users cannot be used: file is not a database"):
        database.open_file(str(other))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'of_tomorrow'"))
    with pytest.raises(StoreError, match=r"made by another version of Headrace.*of_tomorrow"):
        database.open_file(str(tmp_path / "api.sqlite"))


def store(path: Path, *names: str) -> None:
    """Add users to a store, which is made if it is not there."""
    engine = database.open_file(str(path))
    for name in names:
        users.add(engine, name, "long enough", False)
    engine.dispose()


def lose(path: Path, how: str) -> None:
    if how == "replaced":
        other = path.parent / "elsewhere" / "api.sqlite"
        other.parent.mkdir()
        store(other, "zoe")
        other.replace(path)
    elif how == "emptied":
        os.truncate(path, 0)
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["emptied", "removed", "replaced"])
def test_a_store_that_is_not_the_former_one_is_refused_and_its_userids_stay_taken(tmp_path: Path, how: str) -> None:
    path = tmp_path / "api.sqlite"
    store(path, "ann", "bob")
    kept = path.read_bytes()
    lose(path, how)
    before = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is not the store of users that was here before: .* users reset"):
            database.open_file(str(path))
    assert (path.read_bytes() if path.exists() else None) == before
    if how == "replaced":
        with pytest.raises(StoreError, match="has users: move it away first"):
            database.open_file(str(path), anew=True)
        path.unlink()
    engine = database.open_file(str(path), anew=True)
    assert users.everybody(engine) == []
    assert users.add(engine, "ann", "long enough", False).userid == 200_002
    # A copy of the former store is another one from now on.
    path.write_bytes(kept)
    with pytest.raises(StoreError, match="is not the store"):
        database.open_file(str(path))


def test_a_copy_of_the_store_is_taken_and_gives_no_userid_of_later_users(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    store(path, "ann")
    copy = path.read_bytes()
    store(path, "bob")
    path.write_bytes(copy)
    engine = database.open_file(str(path))
    assert users.add(engine, "eve", "long enough", False).userid == 200_002
    with pytest.raises(StoreError, match="has users"):
        database.open_file(str(path), anew=True)


def test_a_store_of_a_version_without_numbers_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    store(path, "ann")
    memory.write(str(path), known := memory.Memory(0))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 0")
    Path(memory.path_of(str(path))).unlink()
    store(path)
    found = memory.read(str(path))
    assert found is not None and found.number > known.number and 200_000 in found


@pytest.mark.parametrize("how", ["emptied", "removed", "replaced", "damaged", "another in its place"])
def test_a_store_that_is_lost_while_it_is_used_is_told_without_what_was_asked(tmp_path: Path, how: str) -> None:
    path, told = tmp_path / "api.sqlite", list[str]()
    engine = database.open_file(str(path), told.append)
    ann = users.add(engine, "ann", "a secret password", False)
    if how == "damaged":
        path.write_bytes(b"what is this? " * 1000)
    elif how == "another in its place":
        lose(path, "replaced")
        path.write_bytes(path.read_bytes())
    else:
        lose(path, how)
    for ask in (
        lambda: users.add(engine, "bob", "another secret", False),
        lambda: users.one(engine, "ann"),
        lambda: tokens.issue(engine, ann, 60),
    ):
        with pytest.raises(StoreUnusable) as caught:
            ask()
        said = "".join(traceback.format_exception(caught.value))
        assert "[SQL" not in said and "$argon2" not in said and "[parameters" not in said
    assert len(told) == 3 and path.exists() == (how != "removed")


def test_on_a_full_disk_nobody_is_added_and_nothing_is_told_of_passwords(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        engine = database.open_file(str(disk / "api.sqlite"))
        ann = users.add(engine, "ann", "a secret password", False)
        filler = fill(disk)
        for ask in (
            lambda: users.add(engine, "bob", "another secret", False),
            lambda: users.change(engine, "ann", "another secret", True),
            lambda: tokens.issue(engine, ann, 60),
        ):
            with pytest.raises(StoreUnusable) as caught:
                ask()
            said = "".join(traceback.format_exception(caught.value))
            assert "[SQL" not in said and "$argon2" not in said and "[parameters" not in said
        assert users.everybody(engine) == [ann]
        filler.unlink()
        assert users.add(engine, "bob", "long enough", False).userid >= 200_001
