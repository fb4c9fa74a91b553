"""What Alembic runs to bring a database up to date: over the connection that `database.open_file` has."""

from __future__ import annotations

from alembic import context

from headrace.service.store.tables import METADATA

# SQLite changes a table by making it anew.
context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
