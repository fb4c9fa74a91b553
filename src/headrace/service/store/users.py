"""Users in the database: names, userids, and passwords as argon2id hashes."""

from __future__ import annotations

import pwd
import re
import time
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from headrace.service.store import NoSuchUser, StoreError, StoreUnusable, UseridTaken, memory
from headrace.service.store.database import Store
from headrace.service.users.userids import name_in_passwd
from headrace.storage.database import Database, Row

# Userids for users without an entry in passwd. None is given twice.
UID_RANGE = (200_000, 299_999)
LONGEST_PASSWORD = 1024
# A shorter password is accepted with a warning, because scripts for flux-restful-api have such.
SHORT_PASSWORD = 8
# argon2-cffi's parameters: those of RFC 9106 for little memory (64 MiB).
_hasher = PasswordHasher()
# Verified if no user has the name, so that the time does not reveal which names exist.
_DECOY = _hasher.hash("no user has this password")
COLUMNS = "users.userid, users.name, users.admin, users.added"
_INSERT = "INSERT INTO users (userid, name, password, admin, added) VALUES (:userid, :name, :password, :admin, :added)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}", re.ASCII)


class User(NamedTuple):
    """A user; `added` is in seconds since the epoch."""

    userid: int
    name: str
    admin: bool
    added: float


def add(store: Store, name: str, password: str, admin: bool, uid_range: tuple[int, int] = UID_RANGE) -> User:
    """Add a user with the userid that passwd has for the name. Raises StoreError.

    If passwd lacks the name, the user gets a userid that no user ever had, because a new user may be another person
    with the name of a removed user.
    """
    if not _NAME.fullmatch(name):
        raise StoreError(f"'{name}' cannot be a name: use up to 64 letters, digits and _ . @ -, first a letter or _")
    made = User(0, name, admin, time.time())
    hashed = _hashed(password)
    with store.changing() as database:
        found = database.rows("SELECT userid, removed FROM users WHERE name = :name", {"name": name})
        if found and found[0][1] is None:
            raise StoreError(f"there is a user '{name}' already")
        userid = _right_userid(store.path, database, name, None, uid_range)
        made = made._replace(userid=userid)
        row = {**made._asdict(), "password": hashed}
        if found and found[0][0] == userid:
            database.execute(
                "UPDATE users SET password = :password, admin = :admin, added = :added, removed = NULL "
                "WHERE userid = :userid",
                row,
            )
        else:
            if found:
                _retire(database, name, found[0][0])
            database.execute(_INSERT, row)
    return made


def renumber(store: Store, name: str, uid_range: tuple[int, int] = UID_RANGE) -> User:
    """Give a user the userid that passwd has for the name. Raises StoreError.

    If passwd lacks the name and has the user's userid for another name, the user gets a new userid. If the userid
    changes, all tokens of the user end.
    """
    with store.changing() as database:
        found, password = _one(database, name)
        userid = _right_userid(store.path, database, name, found.userid, uid_range)
        if userid != found.userid:
            _retire(database, name, found.userid)
            database.execute(_INSERT, {**found._asdict(), "userid": userid, "password": password})
    return found._replace(userid=userid)


def _retire(database: Database, name: str, userid: int) -> None:
    """Keep a former userid in the row of a removed user, so that it is not assigned to another user.

    The row gets a name that no user can have.
    """
    _end_tokens(database, userid)
    database.execute(
        "UPDATE users SET name = :name, password = '', admin = 0, removed = :now WHERE userid = :userid",
        {"name": f"{name} ({userid})", "now": time.time(), "userid": userid},
    )


def _end_tokens(database: Database, userid: int) -> None:
    database.execute("DELETE FROM tokens WHERE userid = :userid", {"userid": userid})


def _right_userid(path: str, database: Database, name: str, former: int | None, uid_range: tuple[int, int]) -> int:
    """The userid of passwd, taken from a removed user if need be; else the former one; else a new one."""
    try:
        userid = pwd.getpwnam(name).pw_uid
    except KeyError:
        if former is not None and name_in_passwd(former) is None:
            return former
        return _new_userid(path, database, uid_range)
    for other, removed in database.rows("SELECT name, removed FROM users WHERE userid = :userid", {"userid": userid}):
        if other == name:
            continue
        if removed is None:
            raise UseridTaken(
                f"the userid of '{name}' in passwd, {userid}, is that of '{other}' in this service: headrace api "
                f"users renumber {other}, or users remove {other}"
            )
        database.execute("DELETE FROM users WHERE userid = :userid", {"userid": userid})
    return userid


def _new_userid(path: str, database: Database, uid_range: tuple[int, int]) -> int:
    """A userid that no user ever had. It is recorded as assigned."""
    known = memory.read(path)
    if known is None:
        raise StoreUnusable(f"{memory.path_of(path)} was removed: bring it back from a copy")
    known = known.with_userids(userid for (userid,) in database.rows("SELECT userid FROM users"))
    low, high = uid_range
    for userid in range(known.last_of(low, high) + 1, high + 1):
        if name_in_passwd(userid) is None:
            memory.write(path, known.with_userids([userid]))
            return userid
    raise StoreError(f"no userid is left of {low}-{high}")


def everybody(store: Store) -> list[User]:
    """All users who were not removed, by name."""
    with store.reading() as database:
        rows = database.rows(f"SELECT {COLUMNS} FROM users WHERE removed IS NULL ORDER BY name")
    return [user_of_row(row) for row in rows]


def names(store: Store) -> dict[int, str]:
    """The names of all users by userid, also of removed users, whose jobs may still exist."""
    with store.reading() as database:
        return {userid: name for userid, name in database.rows("SELECT userid, name FROM users")}


def one(store: Store, name: str) -> User:
    """The user with the name. Raises NoSuchUser."""
    with store.reading() as database:
        return _one(database, name)[0]


def _one(database: Database, name: str) -> tuple[User, str]:
    """A user and the hash of the user's password. Raises NoSuchUser."""
    rows = database.rows(
        f"SELECT {COLUMNS}, password FROM users WHERE name = :name AND removed IS NULL", {"name": name}
    )
    if not rows:
        raise NoSuchUser(f"there is no user '{name}'")
    *row, password = rows[0]
    return user_of_row(row), password


def remove(store: Store, name: str) -> User:
    """Remove a user and the user's tokens; the userid stays taken. Raises StoreError."""
    with store.changing() as database:
        found, _ = _one(database, name)
        _end_tokens(database, found.userid)
        database.execute(
            "UPDATE users SET password = '', admin = 0, removed = :now WHERE userid = :userid",
            {"now": time.time(), "userid": found.userid},
        )
    return found


def change(store: Store, name: str, password: str | None = None, admin: bool | None = None) -> User:
    """Change what is not None. A new password ends the user's tokens. Raises StoreError."""
    # Hashing takes 50 ms, during which others may change the store.
    hashed = None if password is None else _hashed(password)
    with store.changing() as database:
        found, _ = _one(database, name)
        if admin is not None:
            found = found._replace(admin=admin)
            database.execute(
                "UPDATE users SET admin = :admin WHERE userid = :userid", {"admin": admin, "userid": found.userid}
            )
        if hashed is not None:
            database.execute(
                "UPDATE users SET password = :password WHERE userid = :userid",
                {"password": hashed, "userid": found.userid},
            )
            _end_tokens(database, found.userid)
    return found


def verified(store: Store, name: str, password: str) -> User | None:
    """The user with this name and password, None if wrong.

    It takes 50 ms and 64 MiB, also for an unknown name.
    """
    found: User | None
    try:
        with store.reading() as database:
            found, expected = _one(database, name)
    except NoSuchUser:
        found, expected = None, _DECOY
    try:
        _hasher.verify(expected, password[:LONGEST_PASSWORD])
    except (VerificationError, InvalidHashError, UnicodeError):
        return None
    return found


def user_of_row(row: Row) -> User:
    """A user from the columns userid, name, admin, added."""
    userid, name, admin, added = row
    return User(userid, name, bool(admin), added)


def _hashed(password: str) -> str:
    if not 0 < len(password) <= LONGEST_PASSWORD:
        raise StoreError(f"a password has 1 to {LONGEST_PASSWORD} characters, this one {len(password)}")
    try:
        return _hasher.hash(password)
    except UnicodeError:
        raise StoreError("a password is text without halves of characters") from None
