"""The database: a file of SQLite that its owner alone can read."""

from __future__ import annotations

import os
import stat

from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError

from headrace.api.store.errors import StoreError

# The migration that the tables of this version need.
HEAD = "users_and_tokens"
# Seconds that a command waits for another one's change.
_BUSY_TIMEOUT = 10.0


def open_file(path: str) -> Engine:
    """The database at `path`, made if it is not there, and brought up to date. Raises StoreError."""
    _make_private(path)
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_TIMEOUT})
    event.listen(engine, "connect", _prepare)
    try:
        if _version(engine) != HEAD:
            _migrate(engine, path)
    except DatabaseError as exc:
        engine.dispose()
        raise StoreError(f"{path}: {exc.orig}") from None
    return engine


def _make_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from None
    if mode & 0o077:
        raise StoreError(f"{path}: others have rights to this file, which has passwords (mode {mode:o}): chmod 600")


def _prepare(connection: object, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]


def _version(engine: Engine) -> str:
    if not inspect(engine).has_table("alembic_version"):
        return ""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")


def _migrate(engine: Engine, path: str) -> None:
    # Imported where there is something to do, as it takes 11 MB.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "headrace.api.store:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, HEAD)
        except CommandError as exc:
            raise StoreError(f"{path}: made by another version of Headrace: {exc}") from None
