"""Tokens in the database: random, kept as hashes, listed and revoked by their ids."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select

from headrace.service.store.errors import NoSuchToken
from headrace.service.store.tables import TOKENS, USERS
from headrace.service.store.users import User, one
from headrace.service.users.tokens import LONGEST_NOTE, Token

# Tokens of a user at a time; the oldest makes room.
MOST = 1000


def issue(engine: Engine, user: User, seconds: float, note: str = "", session: bool = False) -> tuple[str, Token]:
    """A new token for a user, as it is shown this once, and what is known of it from now on."""
    text, now = secrets.token_urlsafe(32), time.time()
    made = Token(secrets.token_hex(4), user.name, note[:LONGEST_NOTE], session, now, now + seconds)
    mine = TOKENS.c.userid == user.userid
    with engine.begin() as connection:
        connection.execute(delete(TOKENS).where(TOKENS.c.ends <= now))
        if connection.execute(select(func.count()).select_from(TOKENS).where(mine)).scalar_one() >= MOST:
            oldest = select(TOKENS.c.id).where(mine).order_by(TOKENS.c.issued).limit(1).scalar_subquery()
            connection.execute(delete(TOKENS).where(TOKENS.c.id == oldest))
        values = {"hash": _hash(text), "userid": user.userid, **made._asdict()}
        del values["user"]
        connection.execute(insert(TOKENS).values(values))
    return text, made


def user_of(engine: Engine, token: str) -> User | None:
    """Whose token this is, as long as it is valid."""
    query = (
        select(USERS.c.userid, USERS.c.name, USERS.c.admin, USERS.c.added)
        .join(TOKENS, TOKENS.c.userid == USERS.c.userid)
        .where(TOKENS.c.hash == _hash(token), TOKENS.c.ends > time.time(), USERS.c.removed.is_(None))
    )
    with engine.connect() as connection:
        row = connection.execute(query).first()
    return None if row is None else User(*row)


def listed(engine: Engine, name: str = "") -> list[Token]:
    """The valid tokens of a user ("": of all), the newest first. Raises NoSuchUser."""
    query = select(TOKENS.c.id, USERS.c.name, TOKENS.c.note, TOKENS.c.session, TOKENS.c.issued, TOKENS.c.ends).join(
        USERS, TOKENS.c.userid == USERS.c.userid
    )
    query = query.where(TOKENS.c.ends > time.time()).order_by(TOKENS.c.issued.desc())
    if name:
        query = query.where(TOKENS.c.userid == one(engine, name).userid)
    with engine.connect() as connection:
        return [Token(*row) for row in connection.execute(query)]


def revoke(engine: Engine, id: str, name: str = "") -> Token:
    """Revoke a token by its id; with `name` it must be that user's. Raises NoSuchToken."""
    for found in listed(engine, name):
        if found.id == id:
            with engine.begin() as connection:
                connection.execute(delete(TOKENS).where(TOKENS.c.id == id))
            return found
    raise NoSuchToken(f"there is no valid token with the id '{id}'" + (f" of user '{name}'" if name else ""))


def revoke_itself(engine: Engine, token: str) -> None:
    """Revoke the token of this text, as logging out does."""
    with engine.begin() as connection:
        connection.execute(delete(TOKENS).where(TOKENS.c.hash == _hash(token)))


def _hash(token: Any) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
