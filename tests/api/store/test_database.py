"""The file, and that its migrations lead to the tables that the code has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from headrace.api.store import database
from headrace.api.store.database import HEAD
from headrace.api.store.errors import StoreError
from headrace.api.store.tables import METADATA


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
    config.set_main_option("script_location", "headrace.api.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_what_is_no_database_of_this_version_is_named(tmp_path: Path, engine: Engine) -> None:
    with pytest.raises(StoreError, match="nosuch/x: No such file"):
        database.open_file(f"{tmp_path}/nosuch/x")
    other = tmp_path / "text"
    other.write_text("this is no database" * 100)
    other.chmod(0o600)
    with pytest.raises(StoreError, match="text: file is not a database"):
        database.open_file(str(other))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'of_tomorrow'"))
    with pytest.raises(StoreError, match=r"made by another version of Headrace.*of_tomorrow"):
        database.open_file(str(tmp_path / "api.sqlite"))
