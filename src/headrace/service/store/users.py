"""Users in the database: names, userids, and passwords as argon2id hashes."""

from __future__ import annotations

import pwd
import re
import time
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from headrace.service.store import memory
from headrace.service.store.database import changing
from headrace.service.store.errors import NoSuchUser, StoreError, StoreUnusable, UseridTaken
from headrace.service.store.tables import TOKENS, USERS
from headrace.service.users.userids import name_in_passwd

# The userids of those who have no entry in passwd; they are given for good.
UID_RANGE = (200_000, 299_999)
LONGEST_PASSWORD = 1024
# A shorter one is taken, with a warning: scripts of flux-restful-api's users have such.
SHORT_PASSWORD = 8
# argon2-cffi's parameters: those of RFC 9106 for little memory (64 MiB).
_hasher = PasswordHasher()
# Verified where no user has the name, so that the time it takes does not tell who is there.
_NOBODYS = _hasher.hash("no user has this password")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}", re.ASCII)


class User(NamedTuple):
    """A user; `added` is in seconds since the epoch."""

    userid: int
    name: str
    admin: bool
    added: float


def add(engine: Engine, name: str, password: str, admin: bool, uid_range: tuple[int, int] = UID_RANGE) -> User:
    """A new user: with the userid that passwd has for the name, else with one that nobody ever had, as another person
    may have the name of one who was removed. Raises StoreError.
    """
    if not _NAME.fullmatch(name):
        raise StoreError(f"'{name}' cannot be a name: up to 64 letters, digits and _ . @ -, of which a letter is first")
    hashed = _hashed(password)
    now = time.time()
    values = {"name": name, "password": hashed, "admin": admin, "added": now, "removed": None}
    with changing(engine) as connection:
        found = connection.execute(select(USERS.c.userid, USERS.c.removed).where(USERS.c.name == name)).first()
        if found is not None and found.removed is None:
            raise StoreError(f"there is a user '{name}' already")
        userid = _right_userid(connection, name, None, uid_range)
        if found is not None and found.userid == userid:
            connection.execute(update(USERS).where(USERS.c.userid == userid).values(values))
        else:
            if found is not None:
                _leave(connection, name, found.userid)
            connection.execute(insert(USERS).values(userid=userid, **values))
    return User(userid, name, admin, now)


def renumber(engine: Engine, name: str, uid_range: tuple[int, int] = UID_RANGE) -> User:
    """Give a user the userid that passwd has for the name; where passwd has given the user's to another one and has not
    the name, a new one. Tokens that were issued for another userid are not valid any more. Raises StoreError.
    """
    found = one(engine, name)
    with changing(engine) as connection:
        userid = _right_userid(connection, name, found.userid, uid_range)
        if userid != found.userid:
            row = connection.execute(select(USERS).where(USERS.c.userid == found.userid)).one()
            _leave(connection, name, found.userid)
            connection.execute(insert(USERS).values(**{**row._mapping, "userid": userid}))
    return found._replace(userid=userid)


def _leave(connection: Connection, name: str, userid: int) -> None:
    """Keep a userid that is not the user's any more, so that it is not given away: in the row of a removed user, whose
    name no user can have.
    """
    connection.execute(delete(TOKENS).where(TOKENS.c.userid == userid))
    values = {"name": f"{name} ({userid})", "password": "", "admin": False, "removed": time.time()}
    connection.execute(update(USERS).where(USERS.c.userid == userid).values(values))


def _right_userid(connection: Connection, name: str, former: int | None, uid_range: tuple[int, int]) -> int:
    """The userid of passwd, which is then no removed user's any more; else the former one; else a new one."""
    try:
        userid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return former if former is not None and name_in_passwd(former) is None else _new_userid(connection, uid_range)
    other = connection.execute(select(USERS.c.name, USERS.c.removed).where(USERS.c.userid == userid)).first()
    if other is not None and other.name != name:
        if other.removed is None:
            raise UseridTaken(
                f"the userid of '{name}' in passwd, {userid}, is that of '{other.name}' in this service: headrace api "
                f"users renumber {other.name}, or users remove {other.name}"
            )
        connection.execute(delete(USERS).where(USERS.c.userid == userid))
    return userid


def _new_userid(connection: Connection, uid_range: tuple[int, int]) -> int:
    """A userid that no user ever had, which is known to be given from now on."""
    path = str(connection.engine.url.database)
    known = memory.read(path)
    if known is None:
        raise StoreUnusable(f"{memory.path_of(path)} was removed: bring it back from a copy")
    known = known.with_userids(connection.execute(select(USERS.c.userid)).scalars())
    low, high = uid_range
    for userid in range(known.last_of(low, high) + 1, high + 1):
        if name_in_passwd(userid) is None:
            memory.write(path, known.with_userids([userid]))
            return userid
    raise StoreError(f"no userid is left of {low}-{high}")


def everybody(engine: Engine) -> list[User]:
    """The users that were not removed, by name."""
    with engine.connect() as connection:
        rows = connection.execute(select(USERS).where(USERS.c.removed.is_(None)).order_by(USERS.c.name))
        return [_user(row) for row in rows]


def names(engine: Engine) -> dict[int, str]:
    """The names of all users by userid, also of those that were removed, whose jobs may still be there."""
    with engine.connect() as connection:
        return {row.userid: row.name for row in connection.execute(select(USERS.c.userid, USERS.c.name))}


def one(engine: Engine, name: str) -> User:
    """Raises NoSuchUser."""
    with engine.connect() as connection:
        row = connection.execute(select(USERS).where(USERS.c.name == name, USERS.c.removed.is_(None))).first()
    if row is None:
        raise NoSuchUser(f"there is no user '{name}'")
    return _user(row)


def remove(engine: Engine, name: str) -> User:
    """Remove a user and the user's tokens; the userid stays taken. Raises StoreError."""
    found = one(engine, name)
    with engine.begin() as connection:
        connection.execute(delete(TOKENS).where(TOKENS.c.userid == found.userid))
        change = update(USERS).where(USERS.c.userid == found.userid)
        connection.execute(change.values(removed=time.time(), password="", admin=False))
    return found


def change(engine: Engine, name: str, password: str | None = None, admin: bool | None = None) -> User:
    """Change what is not None. With a new password, tokens that were issued before are not valid any more. Raises
    StoreError.
    """
    found = one(engine, name)
    values: dict[str, object] = {} if admin is None else {"admin": admin}
    if password is not None:
        values["password"] = _hashed(password)
    if not values:
        return found
    with engine.begin() as connection:
        connection.execute(update(USERS).where(USERS.c.userid == found.userid).values(values))
        if password is not None:
            connection.execute(delete(TOKENS).where(TOKENS.c.userid == found.userid))
    return found if admin is None else found._replace(admin=admin)


def verified(engine: Engine, name: str, password: str) -> User | None:
    """The user of this name and password. It takes 50 ms and 64 MiB, whether there is one or not."""
    with engine.connect() as connection:
        row = connection.execute(select(USERS).where(USERS.c.name == name, USERS.c.removed.is_(None))).first()
    try:
        right = _hasher.verify(row.password if row else _NOBODYS, password[:LONGEST_PASSWORD])
    except (VerificationError, InvalidHashError, UnicodeError):
        return None
    return _user(row) if row is not None and right else None


def _user(row: Row[tuple[object, ...]]) -> User:
    return User(row.userid, row.name, row.admin, row.added)


def _hashed(password: str) -> str:
    if not 0 < len(password) <= LONGEST_PASSWORD:
        raise StoreError(f"a password has 1 to {LONGEST_PASSWORD} characters, this one {len(password)}")
    try:
        return _hasher.hash(password)
    except UnicodeError:
        raise StoreError("a password is text without halves of characters") from None
