"""The file of the store: who may read it, its schema, and another file in its place."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import traceback
from pathlib import Path

import argon2
import pytest
from small_disk import fill, mounted

from headrace.service.store import StoreError, StoreUnusable, database, memory, tokens, users
from headrace.service.store.database import Store


def test_it_is_its_owners_alone_and_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    before = os.umask(0)
    try:
        database.open_file(str(path))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    database.open_file(str(path))
    path.chmod(0o640)
    with pytest.raises(StoreError, match=r"api\.sqlite: others have rights to this file.*mode 640.*chmod 600"):
        database.open_file(str(path))


# A store of an earlier development version: its tables as Alembic made them, with a user, a removed one, and a token.
OF_ALEMBIC = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO alembic_version VALUES ('users_and_tokens');
CREATE TABLE users (
    userid INTEGER NOT NULL, name VARCHAR(64) NOT NULL, password VARCHAR(256) NOT NULL, admin BOOLEAN NOT NULL,
    added FLOAT NOT NULL, removed FLOAT, PRIMARY KEY (userid), UNIQUE (name));
INSERT INTO users VALUES (200000, 'ann', '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$HASH', 1, 1.8e9, NULL);
INSERT INTO users VALUES (200001, 'bob', '', 0, 1.8e9, 1.9e9);
CREATE TABLE tokens (
    id VARCHAR(16) NOT NULL, hash BLOB NOT NULL, userid INTEGER NOT NULL, note VARCHAR(200) NOT NULL,
    session BOOLEAN NOT NULL, issued FLOAT NOT NULL, ends FLOAT NOT NULL, PRIMARY KEY (id), UNIQUE (hash),
    FOREIGN KEY(userid) REFERENCES users (userid));
CREATE INDEX tokens_userid ON tokens (userid);
INSERT INTO tokens VALUES ('ab12', X'TOKEN', 200000, 'for scripts', 0, 1.8e9, 9e9);
PRAGMA user_version = 7;
"""


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The columns and indices of each table of the store's own."""
    with sqlite3.connect(path) as connection:
        return {
            f"{kind} {table}": sorted(connection.execute(f"PRAGMA {kind}({table})"))
            for kind in ("table_info", "index_list", "foreign_key_list")
            for table in ("users", "tokens")
        }


def test_a_store_that_alembic_made_keeps_its_users_and_tokens(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "former.sqlite"
    hashed = argon2.PasswordHasher(1, 8, 1).hash("long enough")
    text = OF_ALEMBIC.replace("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$HASH", hashed)
    with sqlite3.connect(path) as connection:
        connection.executescript(text.replace("TOKEN", hashlib.sha256(b"a token").hexdigest()))
    path.chmod(0o600)
    memory.write(str(path), memory.Memory(7, ((200_000, 200_001),)))
    for _ in range(2):
        found = database.open_file(str(path))
        ann = users.User(200_000, "ann", True, 1.8e9)
        assert users.everybody(found) == [ann] == [users.verified(found, "ann", "long enough")]
        assert tokens.user_of(found, "a token") == ann
        assert [(one.id, one.note, one.session) for one in tokens.listed(found)] == [("ab12", "for scripts", False)]
        assert users.names(found) == {200_000: "ann", 200_001: "bob"}
        with found.reading() as opened:
            names = {name for (name,) in opened.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert names == {"users", "tokens", "version"}
    assert users.add(found, "eve", "long enough", False).userid == 200_002
    assert tables(path) == tables(Path(store.path))


def test_what_is_no_database_of_this_version_is_named(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StoreError, match="nosuch/x: No such file"):
        database.open_file(f"{tmp_path}/nosuch/x")
    other = tmp_path / "text"
    other.write_text("this is no database" * 100)
    # A file that is not a store keeps its mode: no advice to change it.
    for mode in (0o600, 0o644):
        other.chmod(mode)
        with pytest.raises(StoreError, match="text: the store of users cannot be used: file is not a database"):
            database.open_file(str(other))
    with store.changing() as opened:
        opened.execute("INSERT INTO version VALUES (1000, 0)")
    with pytest.raises(StoreError, match=r"api\.sqlite: made by another version of Headrace.* has version 1000,"):
        database.open_file(str(tmp_path / "api.sqlite"))


def make(path: Path, *names: str) -> None:
    """Add users to a store, which is made if it is not there."""
    store = database.open_file(str(path))
    for name in names:
        users.add(store, name, "long enough", False)


def lose(path: Path, how: str) -> None:
    if how == "replaced":
        other = path.parent / "elsewhere" / "api.sqlite"
        other.parent.mkdir()
        make(other, "zoe")
        other.replace(path)
    elif how == "emptied":
        os.truncate(path, 0)
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["emptied", "removed", "replaced"])
def test_a_store_that_is_not_the_former_one_is_refused_and_its_userids_stay_taken(tmp_path: Path, how: str) -> None:
    path = tmp_path / "api.sqlite"
    make(path, "ann", "bob")
    kept = path.read_bytes()
    lose(path, how)
    before = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is not the store of users that was here before: .* users reset"):
            database.open_file(str(path))
    assert (path.read_bytes() if path.exists() else None) == before
    if how == "replaced":
        with pytest.raises(StoreError, match="has users: move it away first"):
            database.open_file(str(path), reset=True)
        path.unlink()
    store = database.open_file(str(path), reset=True)
    assert users.everybody(store) == []
    assert users.add(store, "ann", "long enough", False).userid == 200_002
    # A copy of the former store is another one from now on.
    path.write_bytes(kept)
    with pytest.raises(StoreError, match="is not the store"):
        database.open_file(str(path))


def test_a_copy_of_the_store_is_taken_and_gives_no_userid_of_later_users(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    make(path, "ann")
    copy = path.read_bytes()
    make(path, "bob")
    path.write_bytes(copy)
    store = database.open_file(str(path))
    assert users.add(store, "eve", "long enough", False).userid == 200_002
    with pytest.raises(StoreError, match="has users"):
        database.open_file(str(path), reset=True)


def test_a_store_of_a_version_without_numbers_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "api.sqlite"
    make(path, "ann")
    memory.write(str(path), known := memory.Memory(0))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 0")
    Path(memory.path_of(str(path))).unlink()
    make(path)
    found = memory.read(str(path))
    assert found is not None and found.number > known.number and 200_000 in found


@pytest.mark.parametrize("how", ["emptied", "removed", "replaced", "damaged", "another in its place"])
def test_a_store_that_is_lost_while_it_is_used_is_told_without_what_was_asked(tmp_path: Path, how: str) -> None:
    path, told = tmp_path / "api.sqlite", list[str]()
    store = database.open_file(str(path), told.append)
    ann = users.add(store, "ann", "a secret password", False)
    if how == "damaged":
        path.write_bytes(b"what is this? " * 1000)
    elif how == "another in its place":
        lose(path, "replaced")
        path.write_bytes(path.read_bytes())
    else:
        lose(path, how)
    for ask in (
        lambda: users.add(store, "bob", "another secret", False),
        lambda: users.one(store, "ann"),
        lambda: tokens.issue(store, ann, 60),
    ):
        with pytest.raises(StoreUnusable) as caught:
            ask()
        said = "".join(traceback.format_exception(caught.value))
        assert "[SQL" not in said and "$argon2" not in said and "[parameters" not in said
    assert len(told) == 3 and path.exists() == (how != "removed")


def test_on_a_full_disk_nobody_is_added_and_nothing_is_told_of_passwords(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        store = database.open_file(str(disk / "api.sqlite"))
        ann = users.add(store, "ann", "a secret password", False)
        filler = fill(disk)
        for ask in (
            lambda: users.add(store, "bob", "another secret", False),
            lambda: users.change(store, "ann", "another secret", True),
            lambda: tokens.issue(store, ann, 60),
        ):
            with pytest.raises(StoreUnusable) as caught:
                ask()
            said = "".join(traceback.format_exception(caught.value))
            assert "[SQL" not in said and "$argon2" not in said and "[parameters" not in said
        assert users.everybody(store) == [ann]
        filler.unlink()
        assert users.add(store, "bob", "long enough", False).userid >= 200_001
