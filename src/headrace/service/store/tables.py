"""The tables. A change of them needs a migration beside the others (`migrations/versions`)."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table

METADATA = MetaData()

# Times are in seconds since the epoch. The row of a removed user stays, so that its userid, which is in its jobs, is
# given to nobody else, unless passwd gives it.
USERS = Table(
    "users",
    METADATA,
    Column("userid", Integer, primary_key=True, autoincrement=False),
    Column("name", String(64), nullable=False, unique=True),
    Column("password", String(256), nullable=False),
    Column("admin", Boolean, nullable=False),
    Column("added", Float, nullable=False),
    Column("removed", Float),
)

# A token itself is kept nowhere; `id` is by what people speak of it. A session is the token of a browser's cookie.
TOKENS = Table(
    "tokens",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("userid", Integer, ForeignKey("users.userid"), nullable=False),
    Column("note", String(200), nullable=False),
    Column("session", Boolean, nullable=False),
    Column("issued", Float, nullable=False),
    Column("ends", Float, nullable=False),
    Index("tokens_userid", "userid"),
)
