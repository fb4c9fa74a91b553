"""The first tables: users and tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "users_and_tokens"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("userid", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("password", sa.String(256), nullable=False),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("added", sa.Float, nullable=False),
        sa.Column("removed", sa.Float),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("userid", sa.Integer, sa.ForeignKey("users.userid"), nullable=False),
        sa.Column("note", sa.String(200), nullable=False),
        sa.Column("session", sa.Boolean, nullable=False),
        sa.Column("issued", sa.Float, nullable=False),
        sa.Column("ends", sa.Float, nullable=False),
    )
    op.create_index("tokens_userid", "tokens", ["userid"])


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("users")
