"""Tokens in the database: random, kept as hashes, listed and revoked by their ids."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from headrace.service.store import NoSuchToken
from headrace.service.store.database import Store
from headrace.service.store.users import COLUMNS, User, one, user_of_row
from headrace.service.users.tokens import LONGEST_NOTE, Token

# Tokens that a user may have; a further one replaces the oldest.
MOST = 1000


def issue(store: Store, user: User, seconds: float, note: str = "", session: bool = False) -> tuple[str, Token]:
    """Issue a token for a user. Returns its text, which is not stored, and its description."""
    text, now = secrets.token_urlsafe(32), time.time()
    made = Token(secrets.token_hex(4), user.name, note[:LONGEST_NOTE], session, now, now + seconds)
    of_user = {"userid": user.userid}
    with store.changing() as database:
        database.execute("DELETE FROM tokens WHERE ends <= :now", {"now": now})
        ((count,),) = database.rows("SELECT count(*) FROM tokens WHERE userid = :userid", of_user)
        if count >= MOST:
            database.execute(
                "DELETE FROM tokens WHERE id = (SELECT id FROM tokens WHERE userid = :userid ORDER BY issued LIMIT 1)",
                of_user,
            )
        database.execute(
            "INSERT INTO tokens (id, hash, userid, note, session, issued, ends) "
            "VALUES (:id, :hash, :userid, :note, :session, :issued, :ends)",
            {**made._asdict(), **of_user, "hash": _hash(text)},
        )
    return text, made


def user_of(store: Store, token: str) -> User | None:
    """The user of a valid token, None for an invalid one."""
    with store.reading() as database:
        rows = database.rows(
            f"SELECT {COLUMNS} FROM users "
            "JOIN tokens ON tokens.userid = users.userid "
            "WHERE tokens.hash = :hash AND tokens.ends > :now AND users.removed IS NULL",
            {"hash": _hash(token), "now": time.time()},
        )
    return user_of_row(rows[0]) if rows else None


def listed(store: Store, name: str = "") -> list[Token]:
    """The valid tokens of a user ("": of all), the newest first. Raises NoSuchUser."""
    sql = (
        "SELECT tokens.id, users.name, tokens.note, tokens.session, tokens.issued, tokens.ends FROM tokens "
        "JOIN users ON tokens.userid = users.userid WHERE tokens.ends > :now"
    )
    values: dict[str, float] = {"now": time.time()}
    if name:
        sql += " AND tokens.userid = :userid"
        values["userid"] = one(store, name).userid
    with store.reading() as database:
        rows = database.rows(f"{sql} ORDER BY tokens.issued DESC", values)
    return [Token(id, user, note, bool(session), issued, ends) for id, user, note, session, issued, ends in rows]


def revoke(store: Store, id: str, name: str = "") -> Token:
    """Revoke a token by its id; with `name` it must be that user's. Raises NoSuchToken."""
    for found in listed(store, name):
        if found.id == id:
            with store.changing() as database:
                database.execute("DELETE FROM tokens WHERE id = :id", {"id": id})
            return found
    raise NoSuchToken(f"there is no valid token with the id '{id}'" + (f" of user '{name}'" if name else ""))


def revoke_itself(store: Store, token: str) -> None:
    """Revoke the token with this text, as logging out does."""
    with store.changing() as database:
        database.execute("DELETE FROM tokens WHERE hash = :hash", {"hash": _hash(token)})


def _hash(token: Any) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
